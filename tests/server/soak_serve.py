"""soak_serve.py SALVO SECONDS [MODEL]: mixed load with random disconnects, for `make soak`.

Every answer is compared with the one that the same request got alone; the memory of the server must not grow.
"""

import json
import os
import random
import socket
import sys
import threading
import time

from serve_process import STORIES, Server

SECONDS = float(sys.argv[2])
MODEL = sys.argv[3] if len(sys.argv) > 3 else STORIES
SEED = int(os.environ.get("SEED", "1"))
CLIENTS = 12
WORDS = "once upon a time there was little dog cat girl who liked to play in the big park with her red ball and blue box".split()


def make_body(source):
    prompt = " ".join(source.choices(WORDS, k=source.randrange(1, 120)))
    body = {"n_predict": source.randrange(1, 60), "max_tokens": source.randrange(1, 60), "seed": source.randrange(1000),
            "temperature": source.choice([0, 0.5, 1.0]), "top_k": source.choice([0, 5, 40]), "cache_prompt": source.random() < 0.8}
    if source.random() < 0.2:
        body["stop"] = source.choice(WORDS)
    if source.random() < 0.2:
        body["repeat_penalty"] = 1.3
    kind = source.randrange(5)
    if kind == 0:
        return "/v1/chat/completions", {**body, "messages": [{"role": "user", "content": prompt}]}
    if kind == 1:
        return "/v1/chat/completions", {**body, "messages": [{"role": "user", "content": prompt}], "logprobs": True, "top_logprobs": 3}
    if kind == 2:
        return "/v1/completions", {**body, "prompt": prompt, "n": 2, "logprobs": 2, "echo": source.random() < 0.5}
    return "/completion", {**body, "prompt": prompt, "n_probs": source.choice([0, 4])}


def texts(path, answer, stream):
    """The texts of an answer, and log-probabilities where they are whole."""
    if path == "/completion":
        if stream:
            return ["".join(part["content"] for part in answer.objects())]
        return [answer.json["content"]]
    if not stream:
        return [choice["message"]["content"] if "message" in choice else choice["text"] for choice in answer.json["choices"]]
    found = {}
    for part in answer.objects():
        for choice in part["choices"]:
            text = (choice["delta"].get("content") or "") if "delta" in choice else choice["text"]
            found[choice["index"]] = found.get(choice["index"], "") + text
    return [found[index] for index in sorted(found)]


class Soak:
    def __init__(self):
        self.server = Server("--metrics", "--parallel", 3, "--ctx-size", 512, "--threads", 1, models=(MODEL,))
        source = random.Random(SEED)
        self.requests = []
        for _ in range(60):
            path, body = make_body(source)
            answer = self.server.post(path, {**body, "cache_prompt": False})
            assert answer.status == 200, answer.body
            self.requests.append((path, body, texts(path, answer, False)))
        self.end = time.monotonic() + SECONDS
        self.lock = threading.Lock()
        self.compared = self.left = self.refused = 0
        self.wrong = []

    def leave(self, source, path, body):
        """A client that goes away at some moment: within the request, before or within the answer."""
        data = json.dumps({**body, "stream": source.random() < 0.7, "n_predict": 400, "max_tokens": 400}).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode()
        whole = head + data
        with socket.create_connection(("127.0.0.1", self.server.port)) as connection:
            connection.sendall(whole[:source.choice([len(whole), len(whole), source.randrange(len(whole))])])
            if source.random() < 0.3:
                connection.shutdown(socket.SHUT_WR)
            connection.settimeout(source.choice([0.001, 0.05, 0.3]))
            try:
                while source.random() < 0.9 and connection.recv(source.choice([1, 100, 4000])):
                    pass
            except (TimeoutError, ConnectionError):
                pass
            if source.random() < 0.3:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset

    def client(self, number):
        source = random.Random(SEED * 1000 + number)
        while time.monotonic() < self.end:
            path, body, expected = source.choice(self.requests)
            if source.random() < 0.3:
                self.leave(source, path, body)
                with self.lock:
                    self.left += 1
                continue
            stream = source.random() < 0.5
            answer = self.server.post(path, {**body, "stream": stream})
            found = texts(path, answer, stream) if answer.status == 200 else None
            with self.lock:
                self.refused += answer.status != 200
                self.compared += answer.status == 200
                if answer.status not in (200, 429) or (found is not None and found != expected):
                    self.wrong.append((path, body, answer.status, found, expected))

    def memory(self):
        with open(f"/proc/{self.server.process.pid}/status", encoding="utf-8") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmRSS")) / 1024

    def run(self):
        threads = [threading.Thread(target=self.client, args=(number,)) for number in range(CLIENTS)]
        for thread in threads:
            thread.start()
        samples = []
        while any(thread.is_alive() for thread in threads):
            time.sleep(min(5, SECONDS / 20))
            samples.append(self.memory())
        for thread in threads:
            thread.join()
        metrics = {name: self.server.metric(name) for name in (
            "salvo:requests_cancelled_total", "salvo:requests_failed_total", "salvo:http_buffered_bytes_most", "llamacpp:tokens_predicted_total")}
        status = self.server.stop()
        early, late = max(samples[:max(1, len(samples) // 3)]), max(samples[-max(1, len(samples) // 3):])
        print(json.dumps({"seconds": SECONDS, "compared": self.compared, "left": self.left, "refused": self.refused,
                          "wrong": len(self.wrong), "status": status, "memory_mb": [round(samples[0]), round(early), round(late)], **metrics}))
        for wrong in self.wrong[:5]:
            print("wrong:", wrong)
        for line in self.server.lines:
            if "ready" not in line and "listening" not in line:
                print(line, end="")
        return 0 if not self.wrong and status == 0 and late < early * 1.1 + 20 else 1


if __name__ == "__main__":
    sys.exit(Soak().run())
