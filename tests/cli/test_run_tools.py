"""`salvo run --tools` and `salvo chat --tools`: calls as lines of JSON, text as it is, results, mistakes."""
import json
import os
import pathlib
import pty
import re
import select
import struct
import subprocess
import sys
import tempfile
import unittest

from model_entries import with_entries

SALVO, MAKE_WORDS = sys.argv[1:3]
TEMPLATES = pathlib.Path(__file__).parent.parent / "templates/tools"
folder = tempfile.TemporaryDirectory()


def make_model(name):
    """A vocabulary of bytes and a few words, random weights, and a template."""
    file = os.path.join(folder.name, name + ".gguf")
    template = (TEMPLATES / (name + ".jinja")).read_bytes()
    subprocess.run([MAKE_WORDS, "llama-tiny", file], check=True)
    with open(file, "rb") as plain:
        model = with_entries(plain.read(), [(b"tokenizer.chat_template", 8, struct.pack("<Q", len(template)) + template)])
    with open(file, "wb") as told:
        told.write(model)
    return file


MODEL = make_model("functionary_v32")  # an answer begins with the name of a tool, or with "all"
X = ("--logit-bias", "120=1000", "--logit-bias", "125=900")  # the letters that the answer has where it may: x and }
A = ("--logit-bias", "97=1000")


def tools(text):
    file = os.path.join(folder.name, "tools.json")
    with open(file, "w", encoding="utf-8") as out:
        out.write(text)
    return file


TOOLS = [{"type": "function", "function": {"name": "x", "description": "does something"}}]
CALL = {"name": "x", "arguments": {}}
EITHER = ("--temp", "1", "--min-p", "0", "--logit-bias", "120=900", "--logit-bias", "125=500", "--logit-bias", "97=900")  # a call or text, as the seed says


def run(*arguments, text=json.dumps(TOOLS)):
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


def chat(lines, *arguments, model=MODEL):
    command = [SALVO, "chat", "-m", model, "-n", "12", "-c", "2048", "--stats", "--tools", tools(json.dumps(TOOLS)), *arguments]
    result = subprocess.run(command, input="".join(line + "\n" for line in lines), capture_output=True, text=True, check=False, timeout=60)
    counts = [int(computed) + int(reused) for computed, reused in re.findall(r"^prompt: (\d+) tokens computed, (\d+) reused", result.stderr, re.M)]
    return result, counts


def prompt_tokens(messages):
    """The prompt of a conversation, by the command that renders templates."""
    file = os.path.join(folder.name, "messages.json")
    with open(file, "w", encoding="utf-8") as out:
        json.dump({"messages": messages, "tools": TOOLS}, out)
    return len(subprocess.run([SALVO, "template", "-m", MODEL, "--messages", file, "--ids"], capture_output=True, check=True).stdout.split())


def asked(number, arguments="{}"):
    call = {"id": f"call{number:05d}", "type": "function", "function": {"name": "x", "arguments": arguments}}
    return {"role": "assistant", "content": "", "tool_calls": [call]}


class Chat(unittest.TestCase):
    def seed(self):
        """A seed with which the first answer is a call and the second one is text."""
        for seed in range(1, 40):
            result, counts = chat(["Hello", "Rex"], *EITHER, "--seed", str(seed))
            lines = result.stdout.splitlines()
            if len(lines) == 2 and lines[0].startswith("{") and not lines[1].startswith("{"):
                return str(seed), result, counts
        raise AssertionError("no seed")

    def test_results_are_lines_of_the_input(self):
        seed, result, counts = self.seed()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(json.loads(result.stdout.splitlines()[0]), CALL)
        said = [{"role": "user", "content": "Hello"}]
        expected = [prompt_tokens(said)]
        said += [asked(100), {"role": "tool", "tool_call_id": "call00100", "name": "x", "content": "Rex"}]
        self.assertEqual(counts, [*expected, prompt_tokens(said)])
        # Undone, the turn leaves nothing behind; saved and loaded, it is all there.
        again, counts = chat(["Hello", "Rex", "/undo", "Hello"], *EITHER, "--seed", seed)
        self.assertIn("(removed: Hello)", again.stderr)
        self.assertEqual(counts[2], counts[0])
        file = os.path.join(folder.name, "saved")
        self.assertIn("4 messages", chat(["Hello", "Rex", "/save! " + file], *EITHER, "--seed", seed)[0].stderr)
        loaded, counts = chat(["/load " + file, "more"], *A, "--temp", "0")
        said += [{"role": "assistant", "content": result.stdout.splitlines()[1]}, {"role": "user", "content": "more"}]
        self.assertEqual((loaded.returncode, counts), (0, [prompt_tokens(said)]))
        regenerated, counts = chat(["/load " + file, "/regen", "more"], *A, "--temp", "0")
        self.assertEqual((regenerated.returncode, counts[0]), (0, expected[0]))

    def test_an_input_that_ends_before_the_result(self):
        result, counts = chat(["Hello"], *X, "--temp", "0")
        self.assertEqual(result.returncode, 1)
        self.assertIn("the input ends before the result of x", result.stderr)
        self.assertEqual((json.loads(result.stdout), len(counts)), (CALL, 1))

    def test_a_form_that_the_prompt_describes(self):
        """The description stays in the system message, and results are messages that are no questions."""
        model = make_model("plain")
        described, alone = (chat(["Hello"], *A, "--temp", "0", *more, model=model)[1][0] for more in ((), ("--system", "Be kind.")))
        changed, counts = chat(["/system Be kind.", "Hello", '/system ""', "/clear", "Hello", "/system"], *A, "--temp", "0", model=model)
        self.assertEqual((changed.returncode, counts), (0, [alone, described]))
        self.assertIn("does something", changed.stderr)

    def test_commands_and_mistakes(self):
        result, _ = chat(["/tools", "/tools x"], *A)
        self.assertIn("  x\n    does something\n", result.stderr)
        self.assertIn("/tools takes no argument", result.stderr)
        command = [SALVO, "chat", "-m", MODEL, "--tools", tools("{")]
        result = subprocess.run(command, input="", capture_output=True, text=True, check=False, timeout=60)
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertIn("no JSON array", result.stderr)

    def test_on_a_terminal(self):
        child, master = pty.fork()
        if child == 0:
            arguments = [SALVO, "chat", "-m", MODEL, "-n", "12", "-c", "2048", "--temp", "0", *X, "--tools", tools(json.dumps(TOOLS))]
            os.execve(SALVO, arguments, {**os.environ, "TERM": "dumb", "XDG_STATE_HOME": folder.name, "NO_COLOR": "1"})
        seen = b""

        def wait_for(words):
            nonlocal seen
            while words not in seen:
                self.assertTrue(select.select([master], [], [], 60)[0], seen)
                seen += os.read(master, 65536)
            seen = seen[seen.index(words) + len(words):]

        wait_for(b"Ctrl-D quits.")
        wait_for(b"> ")
        for text, words in ((b"Hello\r", b'{"name": "x", "arguments": {}}'), (b"", b"result of x> "), (b"Rex\r", b"result of x> "),
                            (b"\x03", b"the answer is not kept"), (b"/undo\r", b"no message yet"), (b"Hi\r", b"result of x> ")):
            os.write(master, text)
            wait_for(words)
            if text in (b"\x03", b"/undo\r"):  # input typed before the prompt may be lost
                wait_for(b"> ")
        os.write(master, b"\x04")
        wait_for(b"the input ends before the result of x")
        os.close(master)
        os.waitpid(child, 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
