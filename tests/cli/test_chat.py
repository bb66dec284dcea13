"""Conversations: which tokens are computed for each answer, what commands do, files, full contexts, terminals."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

from model_entries import with_entries

SALVO, MAKE_WORDS = sys.argv[1:3]
folder = tempfile.TemporaryDirectory()
MODEL = os.path.join(folder.name, "words.gguf")  # a vocabulary of bytes and a few words, random weights
RECURRENT = os.path.join(folder.name, "recurrent.gguf")
UNTOLD = os.path.join(folder.name, "untold.gguf")  # as MODEL, without a template
TEMPLATE = (b"{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
            b"{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
for shape, file in (("llama-tiny", MODEL), ("rwkv7-tiny", RECURRENT)):
    subprocess.run([MAKE_WORDS, shape, UNTOLD], check=True)
    with open(UNTOLD, "rb") as source, open(file, "wb") as target:
        text = struct.pack("<Q", len(TEMPLATE)) + TEMPLATE
        target.write(with_entries(source.read(), [(b"tokenizer.chat_template", 8, text)]))
subprocess.run([MAKE_WORDS, "llama-tiny", UNTOLD], check=True)
ENVIRONMENT = {**os.environ, "XDG_STATE_HOME": os.path.join(folder.name, "state"), "TERM": "xterm", "LANG": "C"}
ENVIRONMENT.pop("NO_COLOR", None)
FORCED = ("--temp", "0", "--logit-bias", "120=1000")  # x and x and x: it never ends by itself
STATISTICS = re.compile(
    r"^prompt: (\d+) tokens computed, (\d+) reused, .*\nanswer: (\d+) tokens, .* by: (\w+); context: (\d+) of \d+$", re.M)


def path(name):
    return os.path.join(folder.name, name)


def chat(lines, *arguments, model=MODEL, status=0):
    """Says lines to `salvo chat` through a pipe; gives the answers, standard error, and the statistics of each answer:
    tokens computed, reused, generated, in the context, and what ended it."""
    command = [SALVO, "chat", "-m", model, "--stats", "-t", "2", *map(str, arguments)]
    text = "".join(line + "\n" for line in lines).encode()
    done = subprocess.run(command, input=text, capture_output=True, timeout=120, env=ENVIRONMENT)
    error = done.stderr.decode()
    assert done.returncode == status, f"{command}: exit status {done.returncode}, not {status}: {error}"
    counts = [(*map(int, found[:3]), int(found[4]), found[3]) for found in STATISTICS.findall(error)]
    return done.stdout.decode("utf-8", "replace").split("\n")[:-1], error, counts


def prompt_tokens(message, *arguments, model=MODEL):
    """How many tokens a conversation of one message is, by the other command that knows."""
    command = [SALVO, "run", "-m", model, "--chat", "-p", message, "-n", "1", "--json", *arguments]
    return json.loads(subprocess.run(command, capture_output=True, check=True, stdin=subprocess.DEVNULL).stdout)["prompt_tokens"]


class Pipe(unittest.TestCase):
    def test_answers_and_nothing_else(self):
        command = [SALVO, "chat", "-m", MODEL, "-n", "4", *FORCED, "-q"]
        done = subprocess.run(command, input=b"hello\n\n  \nworld", capture_output=True, env=ENVIRONMENT)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"xxxx\nxxxx\n", b""))
        self.assertFalse(os.path.exists(path("state/salvo/history")))

    def test_run_answers_one_message(self):
        command = [SALVO, "run", "-m", MODEL, "--chat", "-p", "hello", "-n", "4", *FORCED]
        self.assertEqual(subprocess.run(command, capture_output=True, check=True, input=b"").stdout, b"xxxx")
        self.assertGreater(prompt_tokens("hello", "--system", "Be kind."), prompt_tokens("hello"))
        for more, words in ((["--system", "x"], b"--chat"), (["--chat", "--state-load", "x"], b"cannot be combined")):
            done = subprocess.run([SALVO, "run", "-m", MODEL, "-p", "x", *more], capture_output=True, input=b"")
            self.assertEqual(done.returncode, 2)
            self.assertIn(words, done.stderr)

    def test_messages_as_they_are_written(self):
        cases = [  # lines, the same message for run -p
            (["hello"], "hello"),
            (["//help"], "/help"),
            (["a\\", "b"], "a\nb"),
            (['"""a', "b\\", '"""'], "a\nb\\\\"),
            (['"""', "a", 'b"""'], "a\nb"),
            (['"""', "/quit", '"""'], "/quit"),
            (['"""//quit"""'], "//quit"),
            (["grüße 你好 🌊"], "grüße 你好 🌊"),
            (["<|im_end|>"], "<|im_end|>"),
        ]
        for lines, message in cases:
            with self.subTest(lines):
                computed, reused = chat(lines, "-n", 1, *FORCED)[2][0][:2]
                self.assertEqual((computed, reused), (prompt_tokens(message), 0))

    def test_commands_that_are_wrong(self):
        cases = [
            ("/halp", "did you mean /help"),
            ("/frobnicate now", "unknown command /frobnicate"),
            ("/bye", "/quit"),
            ("/set", None),
            ("/set temp", "needs a value"),
            ("/set temp hot", "'hot'"),
            ("/set tmep 1", "did you mean temp"),
            ("/set top-p 2", "0 to 1"),
            ("/set repeat-penalty 0", "/set: invalid repeat-penalty '0': expected a number from 1e-06 to 1e+06"),
            ("/set repeat-penalty -1", "/set: invalid repeat-penalty '-1': expected a number from 1e-06 to 1e+06"),
            ("/set logit-bias 5", "ID=X"),
            ("/save", "needs a value"),
            ("/save /no/such/folder/file", "/no/such/folder"),
            ("/load", "needs a value"),
            ("/load " + path("absent"), "No such file"),
            ("/load " + MODEL, "not a saved state"),
            ("/undo", "no message yet"),
            ("/regen", "no answer yet"),
            ("/clear all", "takes no argument"),
        ]
        for line, words in cases:
            with self.subTest(line):
                answers, error, _ = chat([line, "hello"], "-n", 2, *FORCED, status=1 if words else 0)
                self.assertEqual(answers, ["xx"])
                self.assertIn(words or "temp 0", error)

    def test_settings(self):
        self.assertIn("top-p 0,", chat(["/set top_p 0", "/set"])[1])
        _, error, _ = chat(["/set", "/set temperature 0.5", "/set --top-k=7", "/set seed 12", "/set"], "--temp", "0")
        first, last = error.split("temp 0.5, ")
        self.assertNotIn("top-k 7", first)
        self.assertIn("top-k 7", last)
        self.assertIn("seed 12", last)
        answers = chat(["a", "/set logit-bias 121=2000", "a"], "-n", 3, *FORCED)[0]
        self.assertEqual(answers, ["xxx", "yyy"])
        one, two = (chat(["hello", "more"], "-n", 20, "--seed", 3, "--temp", 2)[0] for _ in range(2))
        self.assertEqual(one, two)

    def test_leaving(self):
        self.assertEqual(chat(["a", "/quit", "b"], "-n", 2, *FORCED)[0], ["xx"])
        for line in ("/help", "/stats"):
            _, error, _ = chat([line])
            self.assertIn("/regen" if line == "/help" else "0 answers", error)

    def test_options_that_are_wrong(self):
        for arguments, words in ((["--on-full", "burst"], "stop or slide"), (["--json"], "--json"),
                                 (["words"], "-m"), (["-i"], "-i"), (["--stop", ""], "--stop")):
            done = subprocess.run([SALVO, "chat", "-m", MODEL, *arguments], input=b"", capture_output=True)
            self.assertEqual(done.returncode, 2)
            self.assertIn(words, done.stderr.decode())
        for arguments in (["-cnv"], ["-i"], ["--interactive"], ["--conversation"]):
            done = subprocess.run([SALVO, "run", "-m", MODEL, *arguments], input=b"", capture_output=True)
            self.assertEqual(done.returncode, 2)
            self.assertIn("salvo chat", done.stderr.decode())


class Computed(unittest.TestCase):
    """Only new tokens are computed. If -n ends an answer, its last token is computed in the next turn."""

    def test_turns(self):
        for model in (MODEL, RECURRENT):
            _, _, counts = chat(["hello", "and more", "and again"], "-n", 8, *FORCED, model=model)
            self.assertEqual(counts[0][:3], (prompt_tokens("hello", model=model), 0, 8))
            for before, now in zip(counts, counts[1:]):
                self.assertEqual(now[1], before[0] + before[1] + 8 - 1)
                self.assertLess(now[0], now[1] + 12)
                self.assertEqual(now[3], now[0] + now[1] + 8)

    def test_the_answer_again(self):
        for model in (MODEL, RECURRENT):
            answers, _, counts = chat(["hello", "more", "/regen", "/regen"], "-n", 8, "--temp", 3, "--top-k", 0, "--top-p", 1,
                                      "--min-p", 0, "--seed", 5, "--logit-bias", "263=-inf", model=model)
            self.assertEqual([count[0] for count in counts[2:]], [1, 1])
            self.assertEqual(sum(counts[2][:2]), sum(counts[1][:2]))
            self.assertEqual(sum(counts[3][:2]), sum(counts[1][:2]))
        answers, error, _ = chat(["hello", "/regen"], "-n", 8, "--temp", 0, "--logit-bias", "263=-inf")
        self.assertEqual(answers[:len(answers) // 2], answers[len(answers) // 2:])
        self.assertIn("temperature 0", error)
        several = {tuple(chat(["hello"] + ["/regen"] * n, "-n", 8, "--temp", 1, "--seed", 5, "--top-k", 50, "--logit-bias",
                              "120=9", "--logit-bias", "121=9")[0][-1:]) for n in range(4)}
        self.assertGreater(len(several), 1)

    def test_taking_back(self):
        for model in (MODEL, RECURRENT):
            straight = chat(["hello", "world"], "-n", 8, *FORCED, model=model)[2]
            counts = chat(["hello", "something else", "/undo", "world"], "-n", 8, *FORCED, model=model)[2]
            self.assertEqual(sum(counts[2][:2]), sum(straight[1][:2]))
            self.assertGreaterEqual(counts[2][1], counts[0][3] - 1)  # all of the first turn
            counts = chat(["hello", "world", "/undo", "world"], "-n", 8, *FORCED, model=model)[2]
            self.assertEqual(counts[2][0], 1)

    def test_a_new_conversation(self):
        counts = chat(["hello", "/clear", "hello", "/undo", "hello"], "-n", 8, *FORCED)[2]
        self.assertEqual(sum(counts[1][:2]), sum(counts[0][:2]))
        self.assertEqual((counts[1][0], counts[2][0]), (1, 1))

    def test_the_system_message(self):
        alone = chat(["hello"], "-n", 2, *FORCED)[2][0][0]
        by_option = chat(["hello"], "-n", 2, *FORCED, "--system", "Be kind.")[2][0][0]
        self.assertEqual(by_option, prompt_tokens("hello", "--system", "Be kind."))
        self.assertGreater(by_option, alone)
        changed = chat(["/system Be kind.", "hello", "/clear", "hello", '/system ""', "/clear", "hello"], "-n", 2, *FORCED)[2]
        self.assertEqual([sum(count[:2]) for count in changed], [by_option, by_option, alone])
        shown = chat(["/system", "/system Be kind.", "/system", "hello", '/system ""', "/system"], "-n", 2, *FORCED)[1]
        self.assertEqual(shown.count("no system message)"), 2)
        self.assertEqual(shown.count("  Be kind.\n"), 1)

    def test_the_default_model(self):
        cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        model = os.path.join(cache, "salvo/models/SmolLM2-135M-Instruct.Q4_1.gguf")
        if not os.path.exists(model):
            self.skipTest("the default model is not installed")
        questions = ["Write one sentence about the sea.", "And one about the sky.", "Thank you! \U0001f30a"]
        answers, _, counts = chat(questions, "--temp", 0, "-n", 60, model=model)
        self.assertIn("sea", answers[0])
        for before, now in zip(counts, counts[1:]):
            self.assertGreaterEqual(now[1], before[3] - 1)  # all but, at most, the last token
        if len(answers) == 3:  # one line each, so that they can be distinguished: then every prompt is what the template makes
            said = []
            for question, answer, count in zip(questions, answers, counts):
                said.append({"role": "user", "content": question})
                with open(path("said.json"), "w") as file:
                    json.dump(said, file)
                command = [SALVO, "template", "-m", model, "--messages", path("said.json"), "--ids"]
                ids = subprocess.run(command, capture_output=True, check=True).stdout.split()
                self.assertEqual(sum(count[:2]), len(ids))
                said.append({"role": "assistant", "content": answer})

    def test_a_model_without_a_template(self):
        answers, _, counts = chat(["hello", "more"], "-n", 4, *FORCED, model=UNTOLD)
        self.assertEqual(answers, ["xxxx", "xxxx"])
        self.assertEqual(counts[0][0], prompt_tokens("hello", model=UNTOLD))


class Files(unittest.TestCase):
    def test_going_on(self):
        for model in (MODEL, RECURRENT):
            greedy = ("--temp", 0, "-n", 8, "--presence-penalty", 0, "--frequency-penalty", 0)
            whole, _, expected = chat(["hello", "more", "and more"], *greedy, model=model)
            first = chat(["hello", "more", "/save! " + path("chat")], *greedy, model=model)[0]
            rest, error, counts = chat(["/load " + path("chat"), "and more"], *greedy, model=model)
            self.assertIn("4 messages", error)
            self.assertEqual(first + rest, whole)
            self.assertEqual(counts, expected[2:])

            state = ["-m", model, "--temp", "0", "-n", "4", "--state-load", path("chat")]
            subprocess.run([SALVO, "run", *state, "-p", "x"], check=True, capture_output=True, input=b"")
            other = RECURRENT if model == MODEL else MODEL
            self.assertIn("another model", chat(["/load " + path("chat")], model=other, status=1)[1])

    def test_files_that_are_refused_change_nothing(self):
        chat(["hello", "/save! " + path("chat")], "-n", 8, *FORCED)
        with open(path("chat"), "rb") as file:
            data = file.read()
        subprocess.run([SALVO, "run", "-m", MODEL, "-p", "hello", "-n", "2", "--state-save", path("plain")], check=True,
                       capture_output=True, stdin=subprocess.DEVNULL)
        damaged = {"cut": data[:-1], "half": data[:len(data) // 2], "long": data + b"x",
                   "bit": data[:-9] + bytes([data[-9] ^ 1]) + data[-8:],
                   "state": data[:200] + bytes([data[200] ^ 1]) + data[201:], "empty": b""}
        for name, bytes_ in damaged.items():
            with open(path(name), "wb") as file:
                file.write(bytes_)
        expected = chat(["hello", "more"], "-n", 8, *FORCED)[2]
        for name in (*damaged, "plain"):
            with self.subTest(name):
                answers, error, counts = chat(["hello", "/load " + path(name), "more"], "-n", 8, *FORCED, status=1)
                self.assertIn(path(name), error)
                self.assertRegex(error, "cut|damaged|without a conversation|too few|empty")
                self.assertEqual(counts, expected)


class Full(unittest.TestCase):
    MESSAGES = ["a b c d e f", "g h i j k l", "m n o p q r", "s t u v w x"]

    def test_stopping(self):
        answers, error, counts = chat(self.MESSAGES, "-n", 8, "-c", 80, *FORCED, status=1)
        self.assertEqual(answers, ["x" * 8] * len(answers))
        self.assertTrue(0 < len(answers) < 4)
        self.assertIn("the context is full", error)
        self.assertIn("--on-full slide", error)
        self.assertNotIn("no longer in it", error)
        # The refused message is not part of the conversation: after /undo there is room again.
        again = chat(self.MESSAGES + ["/undo", self.MESSAGES[1]], "-n", 8, "-c", 80, *FORCED, status=1)[0]
        self.assertEqual(len(again), len(answers) + 1)

    def test_an_answer_that_does_not_fit(self):
        answers, error, counts = chat(["hello"], "-c", 60, *FORCED)
        self.assertEqual(counts[0][4], "context")
        self.assertEqual(counts[0][3], 60)
        self.assertEqual(answers, ["x" * counts[0][2]])
        self.assertIn("the answer ends here", error)

    def test_sliding(self):
        for model in (MODEL, RECURRENT):
            system = ("--system", "keep this")
            answers, error, counts = chat(self.MESSAGES * 3, "-n", 8, "-c", 90, "--on-full", "slide", *FORCED, *system,
                                          model=model)
            self.assertEqual(answers, ["x" * 8] * 12)
            self.assertIn("no longer in it", error)
            self.assertTrue(all(count[3] <= 90 for count in counts))
            # The last turns as if the dropped ones had never been.
            last = chat(self.MESSAGES[-1:], "-n", 8, *FORCED, *system, model=model)[2][0]
            for computed, reused, *_ in counts:
                self.assertGreaterEqual(computed + reused, last[0] - 2)

    def test_sliding_within_an_answer(self):
        for model in (MODEL, RECURRENT):
            answers, error, counts = chat(self.MESSAGES[:2] + ["z"], "-n", 40, "-c", 100, "--on-full", "slide", *FORCED,
                                          model=model)
            self.assertEqual(answers, ["x" * 40] * 3)
            self.assertIn("no longer in it", error)

    def test_a_stop_string_across_a_slide(self):
        slide = ("-c", 100, "--on-full", "slide", *FORCED)
        answers, error, counts = chat(self.MESSAGES[:2] + ["z"], "-n", 45, *slide, "--stop", "x" * 40)
        self.assertIn("no longer in it", error)
        self.assertEqual(answers, [])
        self.assertEqual([(count[2], count[4]) for count in counts], [(40, "stop")] * 3)
        answers = chat(self.MESSAGES[:2] + ["z"], "-n", 40, *slide, "--stop", "x" * 41)[0]  # held back, and not complete
        self.assertEqual(answers, ["x" * 40] * 3)

    def test_a_message_that_never_fits(self):
        error = chat(["y" * 200], "-c", 80, *FORCED, status=1)[1]
        self.assertRegex(error, r"the message does not fit: .* 2\d\d tokens, the context has 80")
        answers, error, counts = chat(["hello", "y" * 200, "more"], "-n", 4, "-c", 80, "--on-full", "slide", *FORCED, status=1)
        self.assertEqual(answers, ["xxxx", "xxxx"])
        self.assertIn("does not fit", error)
        self.assertEqual(counts, chat(["hello", "more"], "-n", 4, "-c", 80, *FORCED)[2])


class Terminal:
    """`salvo chat`, or another command, on a terminal of its own."""

    def __init__(self, *arguments, command="chat", model=MODEL, columns=80, **environment):
        self.process, self.master = None, None
        child, self.master = pty.fork()
        if child == 0:
            signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores it
            os.execve(SALVO, [SALVO, command, "-m", model, *map(str, arguments)], {**ENVIRONMENT, **environment})
        self.child = child
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.seen = b""

    def wait_for(self, words, seconds=30):
        """Reads until `words` come; gives what came before and with them."""
        end = time.time() + seconds
        pattern = words if isinstance(words, re.Pattern) else re.compile(re.escape(words))
        while not (found := pattern.search(self.seen)):
            left = end - time.time()
            if left <= 0 or not select.select([self.master], [], [], left)[0]:
                raise AssertionError(f"{words} did not come: {self.seen}")
            try:
                data = os.read(self.master, 65536)
            except OSError:
                data = b""
            if not data:
                raise AssertionError(f"{words} did not come before the end: {self.seen}")
            self.seen += data
        before, self.seen = self.seen[:found.end()], self.seen[found.end():]
        return before

    def type(self, text):
        os.write(self.master, text.encode() if isinstance(text, str) else text)

    def end(self):
        """Returns the remaining output and the exit status."""
        deadline = time.time() + 30
        while True:
            if not select.select([self.master], [], [], max(0, deadline - time.time()))[0]:
                os.kill(self.child, signal.SIGKILL)
                raise AssertionError(f"it does not end: {self.seen}")
            try:
                data = os.read(self.master, 65536)
            except OSError:
                break
            if not data:
                break
            self.seen += data
        os.close(self.master)
        return self.seen, os.waitstatus_to_exitcode(os.waitpid(self.child, 0)[1])


PROMPT = re.compile(rb">(\x1b\[0?m)? ")


class OnATerminal(unittest.TestCase):
    def test_first_screen(self):
        terminal = Terminal(NO_COLOR="1")
        screen = re.sub(r"\r\x1b\[K[^\r\n]*(?=\r\x1b\[K)", "", terminal.wait_for(PROMPT).decode())  # of a progress line
        self.assertLessEqual(len(screen.strip().splitlines()), 6)  # five lines, an empty one among them, and the prompt
        for word in ("cpu", "context 512", "/help", "Ctrl-D"):
            self.assertIn(word, screen)
        self.assertNotRegex(screen, r"\x1b\[[0-9;]*m")
        terminal.type("\x04")
        self.assertEqual(terminal.end()[1], 0)

    def test_help_does_not_break_words(self):
        words = set(re.findall(r"[^\s()]+", chat(["/help"])[1]))
        for columns in (40, 59, 61, 80):
            terminal = Terminal("-q", columns=columns, NO_COLOR="1")
            terminal.wait_for(PROMPT)
            terminal.type("/help\r")
            terminal.wait_for(b"/help\r\n")
            shown = re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "", terminal.wait_for(PROMPT).decode())
            lines = shown.splitlines()[:-1]
            self.assertLessEqual(max(map(len, lines)), columns)
            self.assertEqual({word for line in lines for word in line.split()} - words, set())
            terminal.type("\x04")
            terminal.end()

    def test_colours(self):
        terminal = Terminal()
        self.assertRegex(terminal.wait_for(PROMPT).decode(), r"\x1b\[[0-9;]*m")
        terminal.type("\x04")
        terminal.end()
        terminal = Terminal(TERM="dumb")
        self.assertNotIn(b"\x1b", terminal.wait_for(PROMPT))
        terminal.type("/quit\r")
        self.assertEqual(terminal.end()[1], 0)

    def test_no_escape_sequences_on_a_dumb_terminal(self):
        """Neither for words at the edge of an answer nor for a progress line."""
        words = ("-n", 200, "--seed", 1, "--logit-bias", "120=1004", "--logit-bias", "32=1000")  # some x, some blanks
        for name, escapes in (("xterm", True), ("dumb", False)):
            terminal = Terminal(*words, columns=20, TERM=name, NO_COLOR="1")
            terminal.wait_for(PROMPT)
            terminal.type("a\r")
            terminal.wait_for(b"a\r\n")
            self.assertEqual(b"\x1b[K" in terminal.wait_for(PROMPT), escapes)
            terminal.type("/quit\r")
            terminal.end()
            terminal = Terminal("-p", 4, "-n", 2, "-r", 2, "-c", 64, command="bench", TERM=name)
            self.assertEqual(b"\x1b[K" in terminal.end()[0], escapes)

    def test_a_signal_leaves_the_terminal_as_it_was(self):
        for number in (signal.SIGTERM, signal.SIGHUP):
            terminal = Terminal("-q")
            before = terminal.wait_for(PROMPT)
            self.assertIn(b"\x1b[?2004h", before)  # pasted text is marked
            os.kill(terminal.child, number)
            seen, status = terminal.end()
            self.assertIn(b"\x1b[?2004l", seen)
            self.assertEqual(status, -number)

    def test_stopping_an_answer(self):
        terminal = Terminal("-c", 400000, "-q", "--allow-loops", *FORCED, NO_COLOR="1")
        terminal.wait_for(PROMPT)
        terminal.type("hello\r")
        terminal.wait_for(b"xxxx")
        terminal.type("\x03")
        terminal.wait_for(b"(stopped)")
        terminal.wait_for(PROMPT)
        terminal.type("half a line\x03")
        terminal.wait_for(PROMPT)
        terminal.type("again\r")
        terminal.wait_for(b"xxxx")
        terminal.type("\x03")
        terminal.wait_for(b"(stopped)")
        terminal.type("/stats\r")
        terminal.wait_for(b"2 answers")
        terminal.type("\x04")
        self.assertEqual(terminal.end()[1], 0)

    def test_what_was_typed_comes_back(self):
        state = {"XDG_STATE_HOME": path("terminal-state"), "NO_COLOR": "1"}
        terminal = Terminal("-n", 3, *FORCED, **state)
        if not self.has_editing():
            terminal.type("/quit\r")
            terminal.end()
            self.skipTest("built without libedit")
        terminal.wait_for(PROMPT)
        terminal.type("grüße 你好 🌊\r")
        terminal.wait_for(b"xxx\r\n")
        terminal.type("\x04")
        terminal.end()
        history = path("terminal-state/salvo/history")
        self.assertEqual(os.stat(history).st_mode & 0o777, 0o600)
        with open(history, encoding="utf-8") as file:
            self.assertEqual(file.read(), "grüße 你好 🌊\n")
        terminal = Terminal("-n", 3, *FORCED, **state)
        terminal.wait_for(PROMPT)
        terminal.type("\x10\r")  # Ctrl-P
        terminal.wait_for("grüße 你好 🌊".encode())
        terminal.wait_for(b"xxx\r\n")
        terminal.type("\x04")
        terminal.end()

    def has_editing(self):
        return b"without libedit" not in subprocess.run([SALVO, "chat", "--help"], capture_output=True).stdout

    def test_pasted_lines_are_one_message(self):
        if not self.has_editing():
            self.skipTest("built without libedit")
        terminal = Terminal("-n", 3, "--stats", *FORCED, NO_COLOR="1")
        terminal.wait_for(PROMPT)
        terminal.type("\x1b[200~a\rb\x1b[201~\r")
        counts = terminal.wait_for(b"by: length").decode()
        self.assertIn(f"prompt: {prompt_tokens('a' + chr(10) + 'b')} tokens computed", counts)
        terminal.type("\x04")
        terminal.end()

    def test_a_model_does_not_drive_the_terminal(self):
        for byte in (27, 7, 8, 13):
            arguments = ("-n", 4, "--temp", 0, "--logit-bias", f"{byte}=1000")
            terminal = Terminal("--stats", *arguments, NO_COLOR="1", TERM="dumb")
            terminal.wait_for(PROMPT)
            terminal.type("/stats\r")
            terminal.wait_for(b"peak memory")
            terminal.wait_for(PROMPT)
            terminal.type("hello\r")
            shown = terminal.wait_for(b"after 4 tokens (-n)").split(b"hello")[-1]
            self.assertNotIn(bytes([byte]), shown.replace(b"\r\n", b""), shown)
            terminal.type("/quit\r")
            terminal.end()
            command = [SALVO, "chat", "-m", MODEL, "-q", *map(str, arguments)]
            piped = subprocess.run(command, input=b"hello\n", capture_output=True).stdout
            if byte != 13:  # a blank before the answer's beginning
                self.assertEqual(piped.strip(b"\n"), bytes([byte]) * 4)

    def test_typing_while_an_answer_comes(self):
        if not self.has_editing():
            self.skipTest("built without libedit")
        terminal = Terminal("-c", 400000, "-q", "--allow-loops", *FORCED, NO_COLOR="1")
        terminal.wait_for(PROMPT)
        terminal.type("hello\r")
        terminal.wait_for(b"xxxx")
        terminal.type("abc")
        time.sleep(0.3)
        terminal.type("\x03")
        self.assertNotIn(b"abc", terminal.wait_for(b"(stopped)"))
        terminal.wait_for(PROMPT)
        terminal.type("\x15/quit\r")
        self.assertEqual(terminal.end()[1], 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
