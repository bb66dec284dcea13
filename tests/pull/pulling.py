"""Common to the tests of `salvo pull`: a hub, two versions of a model, and a function that runs the command."""

import os
import subprocess
import sys
import tempfile
import unittest

from hub import Hub

SALVO, MAKE_MODEL, MAKE_WORDS = sys.argv[1:4]
work = tempfile.TemporaryDirectory()
NAME = "tiny-Q8_0.gguf"
SOURCE = "hf:org/repo"


def make(shape, kind):
    path = os.path.join(work.name, "made.gguf")
    subprocess.run([MAKE_MODEL, shape, kind, path], check=True)
    with open(path, "rb") as file:
        return file.read()


FIRST, SECOND = make("llama-tiny", "Q8_0"), make("llama-tiny", "F16")


class Pulling(unittest.TestCase):
    certificate = None

    def setUp(self):
        self.hub = Hub(self.certificate)
        self.addCleanup(self.hub.close)
        self.hub.repositories["org/repo"] = {NAME: FIRST, "README.md": b"hello"}
        self.cache = tempfile.mkdtemp(dir=work.name)
        self.folder = os.path.join(self.cache, "salvo", "models")
        self.environment = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
        self.environment |= {"XDG_CACHE_HOME": self.cache, "HF_ENDPOINT": self.hub.url, "NO_PROXY": "", "SALVO_PULL_PAUSE": "10"}
        for key in ("HF_TOKEN", "SALVO_MODEL", "HF_HUB_OFFLINE", "CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR", "XDG_RUNTIME_DIR"):
            self.environment.pop(key, None)

    def start(self, *arguments, **more):
        client = subprocess.Popen([SALVO, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True, env=self.environment, **more)
        self.hub.client = client
        return client

    def salvo(self, *arguments, status=0, **more):
        """Runs a command; standard output, or standard error of one that should fail."""
        client = self.start(*arguments, **more)
        out, error = client.communicate(timeout=60)
        if status is not None:
            self.assertEqual(client.returncode, status, f"{arguments}: {error}")
        self.error = error
        return error if status else out

    def pull(self, *arguments, status=0, **more):
        return self.salvo("pull", *arguments, status=status, **more)

    def path(self, name=NAME):
        return os.path.join(self.folder, name)

    def read(self, name=NAME):
        with open(self.path(name), "rb") as file:
            return file.read()

    def models(self):
        """Names in the models folder, without salvo's own notes."""
        return sorted(name for name in os.listdir(self.folder) if not name.startswith(".")) if os.path.isdir(self.folder) else []

    def notes(self):
        return sorted(os.listdir(os.path.join(self.folder, ".salvo")))

    def kept(self):
        """How many bytes of unfinished files are on disk."""
        folder = os.path.join(self.folder, ".salvo")
        return sum(os.path.getsize(os.path.join(folder, note)) for note in self.notes() if note.endswith(".part"))

    def kill_at(self, size):
        """A fault: the client is killed when it has written so many bytes of the file."""
        return {"kind": "kill", "at": size, "when": lambda: self.kept() == size}
