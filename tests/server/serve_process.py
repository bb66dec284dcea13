"""A `salvo serve` of a test, and requests to it. The first argument of the test is the program salvo."""

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
import unittest

SALVO = sys.argv[1]
DATA = os.environ.get("SALVO_TEST_DATA") or os.path.join(os.environ.get("SALVO_SOURCE", "."), "..", "shared", "data")
STORIES = os.path.join(DATA, "stories260k", "stories260K-f32.gguf")
LIMIT = 600  # seconds against a hang; nothing is measured

if not os.path.exists(STORIES):
    print("skipped: no", STORIES)
    sys.exit(77)


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)

    def events(self):
        """The data of a stream's events. Each is JSON but the last one, if that is [DONE]."""
        lines = [line for line in self.body.decode().split("\n\n") if line]
        return [line.removeprefix("data: ") for line in lines if not line.startswith(":")]

    def objects(self):
        return [json.loads(event) for event in self.events() if event != "[DONE]"]


class Server:
    def __init__(self, *flags, models=(STORIES,), wait=True, command=None):
        if not command:
            command = [SALVO, "serve", "--port", "0", "--backend", "cpu"]
            for model in models:
                command += ["-m", model]
        self.process = subprocess.Popen([*command, *map(str, flags)], stderr=subprocess.PIPE, text=True)
        self.lines = []
        self.port = None
        self.started = threading.Event()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        assert self.started.wait(LIMIT), "the server does not start"
        if self.port and wait:
            self.wait_for(lambda: self.get("/health").status == 200)

    def read(self):
        for line in self.process.stderr:
            self.lines.append(line)
            if line.startswith("listening on "):
                self.port = int(line.rsplit(":", 1)[1])
                self.started.set()
        self.started.set()

    def wait_for(self, condition):
        end = time.monotonic() + LIMIT
        while not condition():
            assert time.monotonic() < end, "waited too long"
            time.sleep(0.02)

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT)

    def ask(self, method, path, body=None, headers=None):
        connection = self.connect()
        connection.request(method, path, body, headers or {})
        reply = connection.getresponse()
        answer = Answer(reply.status, reply.headers, reply.read())
        connection.close()
        return answer

    def get(self, path, **headers):
        return self.ask("GET", path, None, headers)

    def post(self, path, body, headers=None):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.ask("POST", path, data, {"Content-Type": "application/json", **(headers or {})})

    def metric(self, name):
        values = [line.split()[-1] for line in self.get("/metrics").body.decode().splitlines()
                  if line.startswith((name + " ", name + "{"))]
        return sum(float(value) for value in values)

    def stop(self, number=signal.SIGTERM):
        """Ends the server and gives its exit status."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self):
        status = self.process.wait(LIMIT)
        self.reader.join(LIMIT)
        self.process.stderr.close()
        return status


def start_failing(program, file):
    """A server with one session, whose device stops at position 40 until the file exists and then fails once (serve_failing.c)."""
    return Server(command=[program, STORIES, file])


def fill_queue(server):
    """One request has the session of a server whose device stands still, and 256 wait, as many as may. Their connections."""
    connections = []
    for choices, tokens, waiting in ((1, 100, 0), (128, 1, 128), (128, 1, 256)):
        connection = server.connect()
        body = {"prompt": "Once upon a time", "max_tokens": tokens, "ignore_eos": True, "seed": 1, "n": choices}
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        connections.append(connection)
        server.wait_for(lambda: (server.metric("llamacpp:requests_processing"), server.metric("llamacpp:requests_deferred")) == (1, waiting))
    return connections


class ServerTest(unittest.TestCase):
    """Tests with one server, started with `flags`."""
    flags = ()

    @classmethod
    def setUpClass(cls):
        cls.server = Server(*cls.flags)

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0, "".join(cls.server.lines)

    def ok(self, path, body):
        answer = self.server.post(path, body)
        self.assertEqual(answer.status, 200, answer.body)
        return answer
