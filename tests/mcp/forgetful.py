"""An MCP server over HTTP that forgets its sessions, or lets nobody in any more, when it is told to. Standard library only."""

import json
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

sessions = set()
initialized = []
arrived = threading.Event()
revoked = threading.Event()


class Endpoint(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, message=None, **headers):
        body = b"" if message is None else json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", "application/json")
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer(405)

    do_DELETE = do_GET

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if revoked.is_set():
            return self.answer(401, WWW_Authenticate="Bearer")
        method, session = message.get("method"), self.headers.get("Mcp-Session-Id")
        if method == "initialize":
            session = str(uuid.uuid4())
            sessions.add(session)
            initialized.append(session)
            result = {"protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}},
                      "serverInfo": {"name": "forgetful", "version": "1"}}
            return self.answer(200, {"id": message["id"], "result": result}, Mcp_Session_Id=session)
        if session not in sessions:
            return self.answer(404)
        if "id" not in message:
            return self.answer(202)
        if method == "tools/list":
            tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("wait", "forget", "revoke", "sessions")]
            return self.answer(200, {"id": message["id"], "result": {"tools": tools}})
        if method == "tools/call" and message["params"]["name"] == "wait":
            arrived.set()
            threading.Event().wait()
        if method == "tools/call" and message["params"]["name"] == "forget":
            arrived.wait()
            sessions.clear()
        if method == "tools/call" and message["params"]["name"] == "revoke":
            revoked.set()
        content = [{"type": "text", "text": str(len(initialized))}]
        self.answer(200, {"id": message["id"], "result": {"content": content} if method == "tools/call" else {}})


server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
server.daemon_threads = True
print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
server.serve_forever()
