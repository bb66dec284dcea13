"""A hub on this machine for the tests of `salvo pull`: it lists repositories, redirects to a second address that has the files,
and makes the mistakes that a test puts into its queue."""

import hashlib
import http.server
import json
import os
import signal
import ssl
import threading
import urllib.parse


def sha256(data):
    return hashlib.sha256(data).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        hub = self.server.hub
        path = urllib.parse.urlsplit(self.path)
        name = urllib.parse.unquote(path.path)
        hub.requests.append((self.server.role, name, dict(self.headers)))
        try:
            if name.startswith("/api/models/"):
                self.listing(name, urllib.parse.parse_qs(path.query))
            elif "/resolve/main/" in name:
                self.resolve(name)
            elif name.startswith("/cdn/"):
                repository, file = name[len("/cdn/"):].split("//")
                self.file(hub.repositories[repository].get(file), None)
            elif name.startswith("/files/"):
                data = hub.files.get(name[len("/files/"):])
                self.file(data, data and hub.etag and sha256(data)[:20])
            else:
                self.answer(404)
        except (BrokenPipeError, ConnectionResetError, ssl.SSLError):
            self.close_connection = True

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), value)
        if "Transfer_Encoding" not in headers and "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def listing(self, name, query):
        hub = self.server.hub
        repository = name[len("/api/models/"):].removesuffix("/tree/main")
        fault = hub.take("listing")
        if repository not in hub.repositories:
            return self.answer(404)
        if repository in hub.gated:
            return self.answer(401, X_Error_Message="Access to this model is restricted")
        if fault.get("status"):
            return self.answer(fault["status"], **fault.get("headers", {}))
        entries = [{"type": "directory", "oid": "0" * 40, "size": 0, "path": "folder"}]
        for path, data in hub.repositories[repository].items():
            entry = {"type": "file", "oid": "1" * 40, "size": len(data), "path": path}
            if not hub.plain:
                entry["lfs"] = {"oid": sha256(data), "size": len(data), "pointerSize": 134}
            entry.update(hub.lies.get(path, {}))
            entries.append(entry)
        page, more = int(query.get("page", ["0"])[0]), {}
        if hub.page_size:
            if (page + 1) * hub.page_size < len(entries):
                more["Link"] = f'<{hub.url}{name}?page={page + 1}>; rel="next"'
            entries = entries[page * hub.page_size:(page + 1) * hub.page_size]
        body = json.dumps(entries).encode()
        if "cut" in fault:
            self.answer(200, body[:len(body) // 2], Content_Length=str(len(body)), **more)
            self.close_connection = True
        else:
            self.answer(200, fault.get("body", body), **more)

    def resolve(self, name):
        hub = self.server.hub
        repository, path = name[1:].split("/resolve/main/")
        data = hub.repositories.get(repository, {}).get(path)
        if data is None:
            return self.answer(404)
        fault = hub.take("resolve")
        target = fault.get("location") or f"{hub.file_url}/cdn/{repository}//{urllib.parse.quote(path)}"
        more = {} if hub.plain else {"X_Linked_Etag": f'"{fault.get("sum", sha256(data))}"',
                                     "X_Linked_Size": str(fault.get("size", len(data)))}
        return self.answer(fault.get("status", 302), b"a page" * 10, Location=target, **more)

    def file(self, data, etag):
        hub = self.server.hub
        if data is None:
            return self.answer(404)
        fault = hub.take("file")
        kind = fault.get("kind")
        if kind == "status":
            return self.answer(fault["status"], b"an error" * 5, **fault.get("headers", {}))
        if kind == "change":
            hub.change()
            return self.answer(503)
        whole, start, status = data, 0, 200
        wanted = self.headers.get("Range")
        is_same = self.headers.get("If-Range") in (None, f'"{etag}"')
        if wanted and kind != "ignore range" and is_same:
            start, status = int(wanted.removeprefix("bytes=").removesuffix("-")), 206
            if start >= len(whole):
                return self.answer(416)
        if kind == "other range" and status == 206:
            start = start // 2
        body = whole[start:]
        headers = {"Content-Range": f"bytes {start}-{len(whole) - 1}/{len(whole)}"} if status == 206 else {}
        if kind == "lie about range" and status == 206:
            headers["Content-Range"] = f"bytes {int(wanted[6:-1])}-{len(whole) - 1}/{len(whole)}"
            body = bytes(len(body))
        if kind == "other total":
            headers["Content-Range"] = f"bytes {start}-{len(whole)}/{len(whole) + 1}"
        if etag:
            headers["ETag"] = f'"{etag}"'
        if kind == "corrupt":
            at = fault["at"] % len(body)
            body = body[:at] + bytes([body[at] ^ 1]) + body[at + 1:]
        if kind == "page":
            body, headers, status = b"<html>sign in</html>", {}, 200
        if kind == "encoded":
            headers["Content-Encoding"] = "gzip"
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        chunked = kind in ("endless", "no length")
        if chunked:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(len(body) - fault.get("less", 0) if kind == "short" else len(body)))
        self.end_headers()
        if kind in ("cut", "stall", "kill", "hold"):
            self.wfile.write(body[:fault["at"] % (len(body) + 1)])
            self.wfile.flush()
            if kind == "hold":
                hub.held.set()
                hub.go_on.wait(60)
                self.wfile.write(body[fault["at"] % (len(body) + 1):])
                return None
            if kind == "stall":
                hub.ended.wait(30)
            if kind == "kill":
                hub.kill_client(fault.get("when"))
            self.close_connection = True
        elif chunked:
            body += bytes(100000) if kind == "endless" else b""
            for at in range(0, len(body), 50000):
                piece = body[at:at + 50000]
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.write(b"0\r\n\r\n")
        else:
            self.wfile.write(body[:len(body) - fault.get("less", 0)] if kind == "short" else body)
        return None


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        pass


class Hub:
    def __init__(self, certificate=None):
        self.repositories, self.files, self.lies, self.gated = {}, {}, {}, set()
        self.page_size, self.etag, self.plain = 0, True, False
        self.requests, self.faults, self.met = [], [], 0
        self.held, self.go_on, self.ended = threading.Event(), threading.Event(), threading.Event()
        self.change, self.client = lambda: None, None
        self.servers, scheme = [], "https" if certificate else "http"
        for role in ("hub", "files"):  # two ports, as two hosts
            server = Server(("127.0.0.1", 0), Handler)
            server.hub, server.role = self, role
            if certificate:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(*certificate)
                server.socket = context.wrap_socket(server.socket, server_side=True)
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
            self.servers.append(server)
        self.url, self.file_url = (f"{scheme}://localhost:{server.server_port}" for server in self.servers)

    def take(self, place):
        """The next fault, if it is for this kind of request."""
        if self.faults and self.faults[0].get("place", "file") == place:
            self.met += 1
            return self.faults.pop(0)
        return {}

    def kill_client(self, when=None):
        """Kills the client at once, or as soon as `when()` is true."""
        while when and not when() and not self.ended.wait(0.005):
            pass
        if self.client:
            os.kill(self.client.pid, signal.SIGKILL)

    def asked(self, word):
        return [request for request in self.requests if word in request[1]]

    def close(self):
        self.ended.set()
        for server in self.servers:
            server.shutdown()
            server.server_close()
