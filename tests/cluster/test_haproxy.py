"""Three servers behind HAProxy: streams while one is killed, one drained and one added; and what the prompt cache keeps."""

import http.client
import json
import signal
import threading

from cluster_process import HAProxy, Server, free_ports, need, wait_for

FLAGS = ["--metrics", "--parallel", 8, "--drain-delay", 3, "--drain", 120]
STREAMS, CLIENTS = 500, 16
CONVERSATIONS, TURNS = 20, 4


def start(port):
    return Server("--port", port, *FLAGS)


def ask(port, path, body):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    return connection, connection.getresponse()


class Stream:
    """One streamed answer: which server gave it, and how it ended."""

    def __init__(self, port, number):
        self.server, self.error = None, None
        body = {"prompt": f"Once upon a time number {number}", "max_tokens": 40 + number % 50, "stream": True,
                "temperature": 0}
        try:
            connection, reply = ask(port, "/v1/completions", body)
            self.server = reply.getheader("X-Server")
            data = reply.read()
            connection.close()
            if reply.status != 200:
                self.error = f"status {reply.status}: {data!r}"
            elif b"[DONE]" not in data:
                self.error = "the stream ended early"
        except (http.client.IncompleteRead, ConnectionError) as error:
            self.error = f"the connection broke: {error!r}"


def run_streams(port, events):
    """Starts all streams, a few at a time; calls events[n] when stream n begins."""
    streams, lock, numbers = [], threading.Lock(), iter(range(STREAMS))

    def client():
        while True:
            with lock:
                number = next(numbers, None)
                if number in events:
                    events[number]()
            if number is None:
                return
            stream = Stream(port, number)
            with lock:
                streams.append(stream)

    threads = [threading.Thread(target=client) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return streams


def test_streams(port, ports, servers):
    def kill():
        servers[0].process.kill()

    def drain():
        servers[1].process.send_signal(signal.SIGTERM)

    def add():
        servers.append(start(ports[3]))

    streams = run_streams(port, {100: kill, 200: add, 300: drain})
    assert len(streams) == STREAMS
    failed = [stream for stream in streams if stream.error]
    print(f"{STREAMS} streams, {len(failed)} failed:", *{stream.error for stream in failed})
    for stream in failed:
        assert stream.server == "one", f"{stream.server}: {stream.error}"
    assert len(failed) <= CLIENTS
    used = {name: sum(stream.server == name for stream in streams) for name in ("one", "two", "three", "four")}
    print("streams of each server:", used)
    assert all(used.values())
    assert servers[0].wait() != 0
    assert servers[1].wait() == 0, "a drained server ends well"


def converse(port):
    """Conversations in turns. Gives prompt tokens, and how many of them came from a cache."""
    prompts = cached = 0
    histories = [[{"role": "user", "content": f"Tell me about cat {n}."}] for n in range(CONVERSATIONS)]
    for turn in range(TURNS):
        for history in histories:
            connection, reply = ask(port, "/v1/chat/completions",
                                    {"messages": history, "max_tokens": 24, "temperature": 0})
            answer = json.loads(reply.read())
            connection.close()
            assert reply.status == 200, answer
            prompts += answer["usage"]["prompt_tokens"]
            cached += answer["usage"]["prompt_tokens_details"]["cached_tokens"]
            history += [answer["choices"][0]["message"], {"role": "user", "content": f"And then, {turn}?"}]
    return prompts, cached


def test_cache():
    ports = free_ports(6)
    alone = start(ports[0])
    prompts, cached_alone = converse(alone.port)
    assert alone.stop() == 0
    assert cached_alone > prompts / 3
    servers = [start(port) for port in ports[1:4]]
    proxy = HAProxy(ports[5], ports[1:5])
    wait_for(lambda: is_ready(ports[5]))
    _, cached = converse(ports[5])
    proxy.stop()
    print(f"of {prompts} prompt tokens {cached_alone} were cached by one server, {cached} by three")
    assert cached > 0.8 * cached_alone
    computed = [server.metric("llamacpp:prompt_tokens_total") for server in servers]
    print("prompt tokens that each server computed:", computed)
    assert all(computed)
    for server in servers:
        assert server.stop() == 0


def is_ready(port):
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("GET", "/health")
        status = connection.getresponse().status
        connection.close()
        return status == 200
    except OSError:
        return False


def test_nothing_ready():
    """Without a server the error is JSON, as the servers write it."""
    ports = free_ports(5)
    proxy = HAProxy(ports[4], ports[:4])
    wait_for(lambda: proxy_answers(ports[4]))
    connection, reply = ask(ports[4], "/v1/completions", {"prompt": "a"})
    assert reply.status == 503
    assert reply.getheader("Retry-After") == "5"
    assert json.loads(reply.read())["error"]["message"] == "no server is ready"
    connection.close()
    proxy.stop()


def proxy_answers(port):
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("GET", "/health")
        connection.getresponse().read()
        connection.close()
        return True
    except OSError:
        return False


need("haproxy")
test_nothing_ready()
test_cache()
ports = free_ports(5)
servers = [start(port) for port in ports[:3]]
proxy = HAProxy(ports[4], ports[:4])
wait_for(lambda: is_ready(ports[4]))
test_streams(ports[4], ports, servers)
proxy.stop()
for server in servers[2:]:
    assert server.stop() == 0
print("ok")
