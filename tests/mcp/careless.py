"""An MCP server over HTTP whose event streams are not as they should be. Standard library only."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOOLS = ("whole", "long", "bytes", "deep", "half", "number", "broken_off", "openings")
opened = []


class Endpoint(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", kind="application/json"):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", kind)
        self.send_header("Mcp-Session-Id", "one")
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def do_GET(self):
        opened.append(1)
        self.answer(200, b"retry: 0\nid: 1\ndata:\n\n", "text/event-stream")

    def do_DELETE(self):
        self.answer(200)

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        method, params = message.get("method"), message.get("params") or {}
        if "id" not in message:
            return self.answer(202)

        def whole(result):
            return json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()

        def said(text):
            return whole({"content": [{"type": "text", "text": text}]})

        if method == "initialize":
            return self.answer(200, whole({
                "protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                "serverInfo": {"name": "careless", "version": "1"}}))
        if method == "tools/list":
            return self.answer(200, whole({"tools": [{"name": n, "inputSchema": {"type": "object"}} for n in TOOLS]}))
        if method != "tools/call":
            return self.answer(200, whole({}))
        answers = {
            "whole": said("whole"),
            "long": said("x" * 2_000_000),
            "bytes": said("CUT").replace(b"CUT", b"\xff\xfe"),
            "deep": said("deep").replace(b'"content"', b'"structuredContent":{"a":' + b"[" * 5_000 + b"]" * 5_000 + b'},"content"'),
            "half": said("\ud83c"),
            "number": said("").replace(b'"content"', b'"structuredContent":{"n":1e999},"content"'),
            "broken_off": said("broken off")[:30],
            "openings": said(str(len(opened))),
        }
        self.answer(200, b"data: " + answers[params["name"]] + b"\n\n", "text/event-stream")


server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
server.daemon_threads = True
print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
server.serve_forever()
