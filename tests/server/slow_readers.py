"""slow_readers.py SALVO [READERS]: many clients that read one byte a second, and a flood of connections; for `make soak`.

Prints what the readers cost by the server's counters, and the time between tokens of another client before and with them.
"""

import json
import resource
import socket
import sys
import threading
import time

from serve_process import Server

READERS = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
BODY = {"prompt": "Once upon a time", "n_predict": 400, "max_tokens": 400, "ignore_eos": True, "stream": True, "seed": 1}


def head(path, body):
    data = json.dumps(body).encode()
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data


def gaps(server, rounds):
    """Milliseconds between the events of streams, sorted."""
    found = []
    for _ in range(rounds):
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(head("/completion", BODY))
            last, rest = None, b""
            while b"\r\n0\r\n\r\n" not in rest:
                piece = connection.recv(65536)
                if not piece:
                    break
                now = time.perf_counter()
                if last is not None:
                    found.append((now - last) * 1e3)
                last, rest = now, (rest + piece)[-16:]
    return sorted(found)


def quantile(values, share):
    return round(values[min(len(values) - 1, int(len(values) * share))], 3)


def main():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))
    server = Server("--metrics", "--parallel", 4, "--threads", 1)
    memory = lambda: next(int(line.split()[1]) for line in open(f"/proc/{server.process.pid}/status") if line.startswith("VmRSS"))
    before, memory_before = gaps(server, 5), memory()

    readers, waiting = [], READERS
    stop = threading.Event()

    def read_slowly():
        while not stop.is_set():
            begin = time.monotonic()
            for reader in list(readers):
                try:
                    reader.recv(1)
                except (BlockingIOError, ConnectionError):
                    pass
            stop.wait(max(0, 1 - (time.monotonic() - begin)))

    thread = threading.Thread(target=read_slowly)
    thread.start()
    while waiting:
        for _ in range(min(waiting, 100)):
            reader = socket.socket()
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            reader.connect(("127.0.0.1", server.port))
            reader.sendall(head("/v1/chat/completions", {**BODY, "messages": [{"role": "user", "content": "Tell me a story"}], "logprobs": True}))
            reader.setblocking(False)
            readers.append(reader)
        waiting -= min(waiting, 100)
        # The queue has room for the next hundred.
        server.wait_for(lambda: server.metric("llamacpp:requests_deferred") < 100)
    # All have had what fits, or wait for their readers.
    server.wait_for(lambda: server.metric("llamacpp:requests_deferred") == 0 and server.metric("llamacpp:requests_processing") <=
                    server.metric("salvo:requests_paused"))
    memory_with, unsent = memory(), server.metric("salvo:http_unsent_bytes")
    during = gaps(server, 5)
    figures = {"readers": READERS, "connections": server.metric("salvo:http_connections"), "unsent_bytes": unsent,
               "unsent_of_each": round(unsent / READERS), "most_of_one": server.metric("salvo:http_buffered_bytes_most"),
               "memory_kb_of_each": round((memory_with - memory_before) / READERS, 1),
               "between_ms_before": {"p50": quantile(before, 0.5), "p99": quantile(before, 0.99)},
               "between_ms_with": {"p50": quantile(during, 0.5), "p99": quantile(during, 0.99)}}
    stop.set()
    thread.join()
    for reader in readers:
        reader.close()
    print(json.dumps(figures))

    # A flood: each connection asks once, from eight loopback addresses.
    begin, answered, count = time.monotonic(), 0, 20000
    for number in range(count):
        with socket.socket() as client:
            client.bind((f"127.0.0.{1 + number % 8}", 0))
            client.connect(("127.0.0.1", server.port))
            client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            answered += b"200 OK" in client.recv(4096)
    print(json.dumps({"connections": count, "answered": answered, "seconds": round(time.monotonic() - begin, 1),
                      "still_open": server.metric("salvo:http_connections")}))
    return server.stop() or figures["most_of_one"] > 65536


if __name__ == "__main__":
    sys.exit(main())
