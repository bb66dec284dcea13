"""`salvo run --tools`: calls as lines of JSON, text as it is, mistakes."""
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

from model_entries import with_entries

SALVO, MAKE_WORDS = sys.argv[1:3]
TEMPLATE = (pathlib.Path(__file__).parent.parent / "templates/tools/functionary_v32.jinja").read_bytes()
folder = tempfile.TemporaryDirectory()
MODEL = os.path.join(folder.name, "words.gguf")  # a vocabulary of bytes and a few words, random weights
subprocess.run([MAKE_WORDS, "llama-tiny", MODEL], check=True)
with open(MODEL, "rb") as plain:
    model = with_entries(plain.read(), [(b"tokenizer.chat_template", 8, struct.pack("<Q", len(TEMPLATE)) + TEMPLATE)])
with open(MODEL, "wb") as told:
    told.write(model)
X = ("--logit-bias", "120=1000", "--logit-bias", "125=900")  # the letters that the answer has where it may: x and }
A = ("--logit-bias", "97=1000")


def tools(text):
    file = os.path.join(folder.name, "tools.json")
    with open(file, "w", encoding="utf-8") as out:
        out.write(text)
    return file


def run(*arguments, text=json.dumps([{"type": "function", "function": {"name": "x"}}])):
    command = [SALVO, "run", "-m", MODEL, "-p", "Hello", "--temp", "0", "-n", "12", "-q", "--tools", tools(text), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, stdin=subprocess.DEVNULL)


class Run(unittest.TestCase):
    def test_calls_are_lines_of_json(self):
        result = run("--chat", *X)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(json.loads(result.stdout.splitlines()[0]), {"name": "x", "arguments": {}})

    def test_json_has_the_calls(self):
        answer = json.loads(run("--chat", "--json", *X).stdout)
        self.assertEqual(answer["tool_calls"][0], {"name": "x", "arguments": {}})
        self.assertTrue(answer["text"].startswith("x\n{"))

    def test_text_is_no_call(self):
        result = run("--chat", *A)
        self.assertEqual(result.returncode, 0)
        self.assertTrue(result.stdout.startswith("aa"), result.stdout)
        self.assertEqual(json.loads(run("--chat", "--json", *A).stdout)["tool_calls"], [])

    def test_mistakes(self):
        for arguments, text, status, words in (((), "[]", 2, "--tools needs --chat"), (("--chat",), "{", 1, "no JSON array"),
                                               (("--chat",), "[]", 1, "no tool"), (("--chat", "--regex", "a"), "[]", 2, "combined")):
            result = run(*arguments, text=text)
            self.assertEqual((result.returncode, result.stdout), (status, ""), result.stderr)
            self.assertIn(words, result.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
