"""slow_readers.py SALVO [READERS]: many clients that read one byte a second, and a flood of connections; for `make soak`.

Prints what the readers cost by the server's counters, and the time between tokens of another client before, with and after them.
"""

import json
import os
import resource
import socket
import subprocess
import sys
import threading
import time

from serve_process import Server

READERS = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
ROUNDS = 10
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


def read_slowly(port, count):
    """The readers, in a process of their own: threads of one interpreter would delay the client that measures. Begins a hundred for each line of input."""
    readers = []
    stop = threading.Event()

    def read():
        while not stop.is_set():
            begin = time.monotonic()
            for reader in list(readers):
                try:
                    reader.recv(1)
                except (BlockingIOError, ConnectionError):
                    pass
            stop.wait(max(0, 1 - (time.monotonic() - begin)))

    thread = threading.Thread(target=read)
    thread.start()
    body = {**BODY, "messages": [{"role": "user", "content": "Tell me a story"}], "logprobs": True}
    for _ in sys.stdin:
        for _ in range(min(count - len(readers), 100)):
            reader = socket.socket()
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            reader.connect(("127.0.0.1", port))
            reader.sendall(head("/v1/chat/completions", body))
            reader.setblocking(False)
            readers.append(reader)
        print(len(readers), flush=True)
    stop.set()
    thread.join()


def seconds_of(process):
    """Processor time that a process has used."""
    with open(f"/proc/{process.pid}/stat", encoding="utf-8") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))
    if sys.argv[1] == "--read":
        return read_slowly(int(sys.argv[2]), int(sys.argv[3]))
    server = Server("--metrics", "--parallel", 4, "--threads", 1)
    memory = lambda: next(int(line.split()[1]) for line in open(f"/proc/{server.process.pid}/status") if line.startswith("VmRSS"))
    gaps(server, 1)
    memory_before = memory()
    before = gaps(server, ROUNDS)

    readers = subprocess.Popen([sys.executable, __file__, "--read", str(server.port), str(READERS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    begun = 0
    while begun < READERS:
        readers.stdin.write("more\n")
        readers.stdin.flush()
        begun = int(readers.stdout.readline())
        # The queue has room for the next hundred.
        server.wait_for(lambda: server.metric("llamacpp:requests_deferred") < 100)
    # All have had what fits, or wait for their readers.
    server.wait_for(lambda: server.metric("llamacpp:requests_deferred") == 0 and server.metric("llamacpp:requests_processing") <=
                    server.metric("salvo:requests_paused"))
    memory_with, unsent = memory(), server.metric("salvo:http_unsent_bytes")
    used = seconds_of(server.process)
    time.sleep(10)
    idle = (seconds_of(server.process) - used) / 10
    during = gaps(server, ROUNDS)
    figures = {"readers": READERS, "connections": server.metric("salvo:http_connections"), "unsent_bytes": unsent,
               "unsent_of_each": round(unsent / READERS), "most_of_one": server.metric("salvo:http_buffered_bytes_most"),
               "memory_kb_of_each": round((memory_with - memory_before) / READERS, 1), "processor_share_of_readers": round(idle, 4)}
    readers.stdin.close()
    readers.wait()
    server.wait_for(lambda: server.metric("llamacpp:requests_processing") == 0)
    after = gaps(server, ROUNDS)
    for name, values in (("before", before), ("with", during), ("after", after)):
        figures[f"between_ms_{name}"] = {"p50": quantile(values, 0.5), "p99": quantile(values, 0.99), "p999": quantile(values, 0.999)}
    print(json.dumps(figures), flush=True)

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
