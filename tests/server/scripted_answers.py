"""A server in front of `salvo serve`: it forwards everything but the chat, whose answers the test writes."""

import http.client
import http.server
import json
import socket
import threading

HOP = {"connection", "transfer-encoding", "content-length", "date", "server", "keep-alive"}


class Scripted(http.server.ThreadingHTTPServer):
    """`script(body, answer)` is called for each chat; answer.send(text) streams a part. The server at `behind` may be exchanged."""
    daemon_threads = True

    def __init__(self, behind, script, port=0):
        super().__init__(("127.0.0.1", port), Handler)
        self.behind, self.script = behind, script
        self.bodies = []
        self.connections = set()
        self.held = {}  # path -> (event of its request, event that lets the answer go on), for one GET each
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/"

    def stop(self):
        """Like the end of a process: all open connections are closed, also idle ones."""
        self.shutdown()
        self.server_close()
        for connection in list(self.connections):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def handle_error(self, request, client_address):
        """A browser that stops an answer closes its connection."""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self):
        super().setup()
        self.server.connections.add(self.connection)

    def finish(self):
        self.server.connections.discard(self.connection)
        super().finish()

    def wait_until_left(self):
        """Returns when the client has closed the connection."""
        try:
            while self.connection.recv(1000):
                pass
        except OSError:
            pass

    def log_message(self, *_):
        pass

    def do_GET(self):
        arrived, go_on = self.server.held.pop(self.path, (None, None))
        if arrived:
            arrived.set()
            go_on.wait()
        connection = http.client.HTTPConnection("127.0.0.1", self.server.behind)
        connection.request("GET", self.path, headers={"Host": "127.0.0.1"})
        reply = connection.getresponse()
        body = reply.read()
        connection.close()
        self.send_response(reply.status)
        for name, value in reply.getheaders():
            if name.lower() not in HOP:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.bodies.append(body)
        self.close_connection = True
        self.server.script(body, self)

    def refuse(self, status, **error):
        data = json.dumps({"error": {"code": status, **error}}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def begin(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()

    def event(self, value):
        self.wfile.write(f"data: {json.dumps(value)}\n\n".encode())
        self.wfile.flush()

    def send(self, text, **delta):
        self.event({"choices": [{"index": 0, "delta": {"content": text, **delta}, "finish_reason": None}]})

    def end(self, finish="stop", **timings):
        self.event({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}], "timings": timings})
        self.wfile.write(b"data: [DONE]\n\n")
