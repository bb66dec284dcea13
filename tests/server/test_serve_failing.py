"""A device that fails: requests in flight end with an error, queued ones are answered by the engine that is opened next."""

import json
import os
import sys
import tempfile
import threading
import unittest

from serve_process import LIMIT, Answer, fill_queue, start_failing

PROGRAM = sys.argv[2]
PROMPT = "Once upon a time"
LONG = {"prompt": PROMPT, "n_predict": 100, "ignore_eos": True, "seed": 3}
SHORT = [{"prompt": f"{PROMPT}, there was number {number}", "n_predict": 12, "seed": number} for number in range(4)]


def start(file):
    return start_failing(PROGRAM, file)


def sums(server):
    """The counters of /metrics, which never fall."""
    lines = server.get("/metrics").body.decode().splitlines()
    names = [line.split()[2] for line in lines if line.startswith("# TYPE ") and line.endswith(" counter")]
    return {name: server.metric(name) for name in names}


class Failing(unittest.TestCase):
    def test_a_device_is_lost(self):
        with tempfile.TemporaryDirectory() as folder:
            sane = start("never")
            expected = [sane.post("/completion", body).json["content"] for body in SHORT]
            whole = sane.post("/completion", LONG).json["content"]
            self.assertEqual(sane.stop(), 0)

            file = os.path.join(folder, "go")
            server = start(file)
            answers = {}

            def ask(name, path, body):
                answers[name] = server.post(path, body)

            threads = [threading.Thread(target=ask, args=("stream", "/completion", {**LONG, "stream": True}))]
            threads[0].start()
            server.wait_for(lambda: server.metric("llamacpp:requests_processing") == 1)
            for number, body in enumerate(SHORT):
                threads.append(threading.Thread(target=ask, args=(number, "/completion", {**body, "stream": number % 2 == 1})))
                threads[-1].start()
                server.wait_for(lambda: server.metric("llamacpp:requests_deferred") == number + 1)
            before = sums(server)
            with open(file, "w", encoding="utf-8"):
                pass
            server.wait_for(lambda: server.metric("salvo:device_failures_total") == 1)
            while_opening = sums(server)
            for thread in threads:
                thread.join(LIMIT)
            after = sums(server)
            self.assertGreater(before["llamacpp:tokens_predicted_total"], 0)
            for name, value in before.items():
                self.assertLessEqual(value, while_opening[name], name)
                self.assertLessEqual(while_opening[name], after[name], name)
            self.assertEqual(after["salvo:requests_finished_total"], len(SHORT))
            self.assertGreaterEqual(after["llamacpp:tokens_predicted_total"], before["llamacpp:tokens_predicted_total"] + 12 * len(SHORT))
            # In flight: what was computed, then an error, then the end.
            *parts, last = answers["stream"].objects()
            self.assertEqual(last["error"]["code"], 500)
            self.assertTrue(parts and whole.startswith("".join(part["content"] for part in parts)))
            # Queued: as if nothing had happened, from an empty cache.
            for number, answer in enumerate(answers[number] for number in range(len(SHORT))):
                self.assertEqual(answer.status, 200, answer.body)
                text = "".join(part["content"] for part in answer.objects()) if number % 2 else answer.json["content"]
                self.assertEqual(text, expected[number])
            self.assertEqual(answers[0].json["timings"]["cache_n"], 0)
            self.assertEqual(server.get("/health").status, 200)
            self.assertEqual(server.post("/completion", LONG).json["content"], whole)
            self.assertEqual(server.metric("salvo:device_failures_total"), 1)
            self.assertEqual(server.stop(), 0)

    def test_clients_that_leave_before_it_is_open_again(self):
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "go")
            server = start(file)
            connections = []
            for number in range(3):
                connection = server.connect()
                connection.request("POST", "/completion", json.dumps({**LONG, "stream": True}), {"Content-Type": "application/json"})
                connections.append(connection)
                server.wait_for(lambda: server.metric("salvo:requests_submitted_total") == number + 1)
            with open(file, "w", encoding="utf-8"):
                pass
            for connection in connections[1:]:
                connection.close()
            reply = connections[0].getresponse()
            self.assertIn("error", Answer(reply.status, reply.headers, reply.read()).objects()[-1])
            connections[0].close()
            server.wait_for(lambda: server.get("/health").status == 200)
            self.assertEqual(server.post("/completion", SHORT[0]).status, 200)
            self.assertEqual(server.stop(), 0)

    def test_a_full_queue(self):
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "go")
            server = start(file)
            connections = fill_queue(server)
            for path, body in (("/completion", LONG), ("/completion", {**LONG, "stream": True}), ("/v1/embeddings", {"input": PROMPT})):
                answer = server.post(path, body)
                self.assertEqual((answer.status, answer.json["error"]["type"]), (429, "rate_limit_error"), answer.body)
                self.assertEqual(answer.headers["Retry-After"], "1")
            self.assertEqual(server.metric("salvo:requests_refused_total"), 3)
            connections[1].close()
            with open(file, "w", encoding="utf-8"):
                pass
            server.wait_for(lambda: server.post("/completion", SHORT[0]).status == 200)
            reply = connections[2].getresponse()
            self.assertEqual(len(json.loads(reply.read())["choices"]), 128)
            for connection in connections:
                connection.close()
            self.assertEqual(server.stop(), 0)

    def test_an_engine_that_cannot_be_opened_again(self):
        server = start("gone")
        body = server.post("/completion", {**LONG, "stream": True}).objects()[-1]
        self.assertEqual(body["error"]["code"], 500)
        self.assertEqual(server.wait(), 1)
        self.assertIn("the device has failed", server.lines[-1])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
