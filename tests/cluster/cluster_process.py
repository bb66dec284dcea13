"""Programs of a test that listen on ports of their own."""

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "server"))
from serve_process import LIMIT, STORIES, Server  # noqa: E402, F401

EXAMPLES = os.path.join(os.environ.get("SALVO_SOURCE", "."), "examples", "cluster")


def need(*programs):
    """Skips the test if a program is not installed. Debian installs some in /usr/sbin."""
    os.environ["PATH"] += ":/usr/sbin"
    missing = [name for name in programs if not shutil.which(name)]
    if missing:
        print("skipped: not installed:", *missing)
        sys.exit(77)


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def wait_for(condition):
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.05)


class HAProxy:
    """HAProxy with examples/cluster/haproxy.cfg, whose ports are replaced."""

    def __init__(self, port, servers):
        with open(os.path.join(EXAMPLES, "haproxy.cfg")) as file:
            text = file.read()
        for number, replacement in [(8080, port), *zip(range(8081, 8085), servers)]:
            text, count = re.subn(rf"^( +(?:bind|server +\w+) +127\.0\.0\.1:){number}$", rf"\g<1>{replacement}", text, flags=re.M)
            assert count == 1, number
        self.folder = tempfile.TemporaryDirectory()
        path = os.path.join(self.folder.name, "haproxy.cfg")
        with open(path, "w") as file:
            file.write(text)
        self.process = subprocess.Popen(["haproxy", "-q", "-f", path])
        self.port = port

    def stop(self):
        self.process.terminate()
        self.process.wait(LIMIT)
        self.folder.cleanup()
