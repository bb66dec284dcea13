"""Common to the tests of commands: a folder of models, and a function that runs a command."""

import os
import subprocess
import sys
import tempfile

SALVO, MAKE_WORDS, MAKE_MODEL = sys.argv[1:4]
folder = tempfile.TemporaryDirectory()


def path(name):
    return os.path.join(folder.name, name)


def read(name):
    with open(path(name), "rb") as file:
        return file.read()


MODEL = path("words.gguf")  # a vocabulary of bytes and a few words, random weights
PLAIN = path("plain.gguf")  # no vocabulary
RECURRENT = path("recurrent.gguf")  # as MODEL, without a KV cache
subprocess.run([MAKE_WORDS, "llama-tiny", MODEL], check=True)
subprocess.run([MAKE_WORDS, "rwkv7-tiny", RECURRENT], check=True)
subprocess.run([MAKE_MODEL, "llama-tiny", "Q8_0", PLAIN], check=True)


def salvo(*arguments, stdin=b"", model=MODEL, status=0, **more):
    """Runs a command; gives standard output and standard error as bytes and text."""
    command = [SALVO, arguments[0], *([] if model is None else ["-m", model]), *map(str, arguments[1:])]
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=120, **more)
    error = done.stderr.decode()
    assert done.returncode == status, f"{command}: exit status {done.returncode}, not {status}: {error}"
    return done.stdout, error
