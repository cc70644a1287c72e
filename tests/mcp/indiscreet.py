"""An MCP server over HTTP that says in all that it says what it was sent. Standard library only."""

import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOOLS = ("result", "error", "protocol_error", "status", "denied", "garbled", "progress", "gone")


class Endpoint(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def head(self):
        return f"{self.path} {json.dumps(dict(self.headers))}"

    def answer(self, status, body, kind="application/json", **headers):
        body = body.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", kind)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def do_GET(self):
        self.answer(500, self.head(), "text/plain")

    do_DELETE = do_GET

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        method, params = message.get("method"), message.get("params") or {}

        def wrapped(**answer):
            return json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer})

        if "id" not in message:
            return self.answer(202, "")
        if method == "initialize":
            info = {"name": "indiscreet", "version": "1"}
            return self.answer(200, wrapped(result={
                "protocolVersion": params["protocolVersion"], "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": info, "instructions": self.head()}))
        if method == "tools/list":
            about = self.path + self.headers["Authorization"]
            tools = [{"name": name, "description": about, "inputSchema": {"type": "object"}} for name in TOOLS]
            return self.answer(200, wrapped(result={"tools": tools}))
        if method != "tools/call":
            return self.answer(200, wrapped(error={"code": -32000, "message": self.head(), "data": self.head()}))
        result = {"content": [{"type": "text", "text": self.head()}]}
        match params["name"]:
            case "result":
                self.answer(200, wrapped(result=result))
            case "error":
                self.answer(200, wrapped(result={**result, "isError": True}))
            case "protocol_error":
                self.answer(200, wrapped(error={"code": -32000, "message": self.head(), "data": self.head()}))
            case "status":
                self.answer(400, self.head(), "text/plain")
            case "denied":
                self.answer(401, self.head(), "text/plain", WWW_Authenticate="Bearer error_description=" + self.head())
            case "garbled":
                self.answer(200, self.head(), "text/" + self.headers["X-Zone"])
            case "progress":
                sign = {"progressToken": params["_meta"]["progressToken"], "progress": 1, "message": self.head()}
                sign = json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": sign})
                self.answer(200, f"data: {sign}\n\ndata: {wrapped(result=result)}\n\n", "text/event-stream")
            case "gone":
                changed = json.dumps({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
                self.answer(200, f"data: {changed}\n\ndata: {wrapped(result=result)}\n\n", "text/event-stream")
                os._exit(0)


server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
server.daemon_threads = True
print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
server.serve_forever()
