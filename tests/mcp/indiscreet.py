"""An MCP server over HTTP that says in all that it says what it was sent. Standard library only."""

import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOOLS = ("result", "error", "protocol_error", "status", "denied", "scope", "garbled", "progress", "resumed", "gone")
unfinished = {}


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
        answer = unfinished.pop(self.headers.get("Last-Event-ID"), None)
        if answer:
            return self.answer(200, f"data: {answer}\n\n", "text/event-stream")
        self.answer(500, self.head(), "text/plain")

    def do_DELETE(self):
        self.answer(200 if self.headers["Mcp-Session-Id"] == self.headers["X-Api-Key"] else 500, "")

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        method, params = message.get("method"), message.get("params") or {}

        def wrapped(**answer):
            return json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer})

        if method == "initialize":
            info = {"name": "indiscreet", "version": "1"}
            answer = wrapped(result={
                "protocolVersion": params["protocolVersion"], "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": info, "instructions": self.head()})
            sign = {"level": "info", "data": self.head()}
            sign = json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": sign})
            events = f"data: {sign}\n\ndata: {answer}\n\n"
            return self.answer(200, events, "text/event-stream", Mcp_Session_Id=self.headers["X-Api-Key"])
        if self.headers["Mcp-Session-Id"] != self.headers["X-Api-Key"]:
            return self.answer(404, "")
        if "id" not in message:
            return self.answer(202, "")
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
            case "scope":
                told = f'Bearer error="insufficient_scope", scope="{self.headers["X-Api-Key"]}"'
                self.answer(403, self.head(), "text/plain", WWW_Authenticate=told)
            case "garbled":
                self.answer(200, self.head(), f'text/{self.headers["X-Zone"]}; a={self.headers["X-Api-Key"]}')
            case "progress":
                sign = {"progressToken": params["_meta"]["progressToken"], "progress": 1, "message": self.head()}
                sign = json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": sign})
                self.answer(200, f"data: {sign}\n\ndata: {wrapped(result=result)}\n\n", "text/event-stream")
            case "resumed":
                unfinished[self.head()] = wrapped(result=result)
                events = f"id: {self.head()}\ndata: {json.dumps(self.head())}\n\n"
                self.answer(200, events, "text/event-stream")
            case "gone":
                changed = json.dumps({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
                self.answer(200, f"data: {changed}\n\ndata: {wrapped(result=result)}\n\n", "text/event-stream")
                os._exit(0)


server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
server.daemon_threads = True
print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
server.serve_forever()
