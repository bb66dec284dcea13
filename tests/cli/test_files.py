"""Nothing is lost: files that are there already, write-protected files, full disks, closed descriptors, and what is left in a
saved conversation after it was taken back."""

import contextlib
import itertools
import json
import os
import resource
import signal
import stat
import struct
import subprocess
import unittest

from commands import MAKE_MODEL, MODEL, PLAIN, RECURRENT, SALVO, folder, path, read, salvo
from model_entries import with_entries

FORCED = ("--temp", "0", "--logit-bias", "120=1000")  # x and x and x
WRITERS = {  # everything that is written by name: arguments without the file
    "quantize": lambda name: ("quantize", PLAIN, name, "Q4_0"),
    "run": lambda name: ("run", "-m", MODEL, "-p", "a", "-n", "2", "--state-save", name),
    "eval": lambda name: ("eval", "-m", PLAIN, "--tokens", "1,2", "--logits", name),
}


def write(name, text=b"precious"):
    with open(path(name), "wb") as file:
        file.write(text)
    return path(name)


def chat(lines, *arguments, status=0, model=MODEL):
    text = "".join(line + "\n" for line in lines).encode()
    return salvo("chat", "-n", 4, *FORCED, *arguments, stdin=text, model=model, status=status)[1]


def leftovers():
    """Temporary neighbours of files, which nothing may leave behind."""
    return [name for name in os.listdir(folder.name) if name.count(".") and len(name.rsplit(".", 1)[1]) == 8]


class Existing(unittest.TestCase):
    def tearDown(self):
        self.assertEqual(leftovers(), [])

    def test_files_are_kept(self):
        for name, arguments in WRITERS.items():
            with self.subTest(name):
                file = write("kept-" + name)
                error = salvo(*arguments(file), model=None, status=1)[1]
                self.assertIn(f"{file}: file exists; --force replaces it", error)
                self.assertEqual(read("kept-" + name), b"precious")
                salvo(*arguments(file), "--force", model=None)
                self.assertGreater(len(read("kept-" + name)), len(b"precious"))

    def test_write_protected_files_are_never_replaced(self):
        for name, arguments in WRITERS.items():
            with self.subTest(name):
                file = write("protected-" + name)
                os.chmod(file, 0o444)
                error = salvo(*arguments(file), "--force", model=None, status=1)[1]
                self.assertIn("write-protected", error)
                self.assertEqual(read("protected-" + name), b"precious")
        write("protected-chat")
        os.chmod(path("protected-chat"), 0o444)
        self.assertIn("write-protected", chat(["/save! " + path("protected-chat")], status=1))
        self.assertEqual(read("protected-chat"), b"precious")

    def test_a_replaced_file_keeps_its_mode(self):
        for name, arguments in WRITERS.items():
            file = write("mode-" + name)
            os.chmod(file, 0o604)
            salvo(*arguments(file), "--force", model=None)
            self.assertEqual(stat.S_IMODE(os.stat(file).st_mode), 0o604)

    def test_what_is_no_file(self):
        os.mkdir(path("a-folder"))
        os.symlink("loop", path("loop"))
        for name, arguments in WRITERS.items():
            for output, words in ((path("a-folder"), "not a regular file"), (path("loop"), "symbolic links"),
                                  (path("absent/file"), "No such file"), (path("two\nlines/x"), "two?lines")):
                error = salvo(*arguments(output), "--force", model=None, status=1)[1]
                self.assertIn(words, error)
                self.assertEqual(error.count("\n"), 1, error)
        os.unlink(path("loop"))
        os.rmdir(path("a-folder"))

    def test_a_name_with_a_line_break(self):
        salvo(*WRITERS["eval"](path("two\nlines")), model=None)
        self.assertEqual(len(read("two\nlines")), 331 * 4)
        error = salvo(*WRITERS["eval"](path("two\nlines")), model=None, status=1)[1]
        self.assertEqual(error.count("\n"), 1, error)

    @unittest.skipIf(os.geteuid() == 0, "root may write anywhere")
    def test_a_folder_that_cannot_be_written(self):
        os.mkdir(path("closed-folder"), 0o500)
        for arguments in WRITERS.values():
            self.assertIn("Permission denied", salvo(*arguments(path("closed-folder/x")), model=None, status=1)[1])

    def test_devices_and_pipes(self):
        row = salvo("eval", "--tokens", "1,2", "--logits", "-", model=PLAIN)[0]
        self.assertEqual(salvo("eval", "--tokens", "1,2", "--logits", "/dev/null", model=PLAIN)[1], "")
        os.mkfifo(path("fifo"))
        process = subprocess.Popen([SALVO, *WRITERS["eval"](path("fifo"))])
        self.assertEqual(read("fifo"), row)
        self.assertEqual(process.wait(), 0)
        if os.path.exists("/dev/full"):
            self.assertIn("No space left", salvo("eval", "--tokens", "1", "--logits", "/dev/full", model=PLAIN, status=1)[1])
        for name in ("quantize", "run"):
            self.assertIn("not a regular file", salvo(*WRITERS[name](path("fifo")), model=None, status=1)[1])

    def test_a_state_that_was_loaded_can_be_saved_again(self):
        state = path("state")
        salvo("run", "-p", "a", "-n", 2, "--state-save", state)
        first = read("state")
        os.link(state, path("same-state"))
        salvo("run", "-n", 2, "--state-load", path("same-state"), "--state-save", state)
        self.assertGreater(len(read("state")), len(first))
        self.assertEqual(read("same-state"), first)
        write("other-state")
        salvo("run", "-n", 2, "--state-load", state, "--state-save", path("other-state"), status=1)

    def test_a_state_without_tokens(self):
        state = path("empty-state")
        chat(["/save! " + state])
        for more in ([], ["--regex", "x+"], ["--json", "--regex", "x+"]):
            output, error = salvo("run", "--state-load", state, *more, status=1)
            self.assertEqual((output, error), (b"", f"salvo: {state}: the state has no tokens, and the prompt is empty\n"))
        self.assertEqual(salvo("run", "--state-load", state, "--regex", "xx", "-p", "a", "--temp", 0)[0], b"xx")

    def test_conversations(self):
        file = write("conversation")
        self.assertIn("/save!", chat(["hello", "/save " + file], status=1))
        self.assertEqual(read("conversation"), b"precious")
        chat(["hello", "/save! " + file, "more", "/save " + file])  # its own file now
        long = len(read("conversation"))
        chat(["/load " + file, "/undo", "/save " + file])
        self.assertLess(len(read("conversation")), long)

    def test_a_file_that_somebody_else_put_in_its_place_is_kept(self):
        file = path("shared-conversation")
        process = subprocess.Popen([SALVO, "chat", "-m", MODEL, "-n", "2", *FORCED], stdin=subprocess.PIPE,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

        def say(line, answer):
            process.stdin.write(line.encode() + b"\n")
            process.stdin.flush()
            self.assertIn(answer, process.stderr.readline())

        say("/save " + file, b"0 messages in")
        os.unlink(file)
        write("shared-conversation")  # the inode may be the same
        say("/save " + file, b"file exists")
        self.assertEqual(read("shared-conversation"), b"precious")
        say("/save! " + file, b"0 messages in")
        say("/save " + file, b"0 messages in")
        process.communicate()

    def test_one_of_two_that_write_the_same_new_file_is_refused(self):
        subprocess.run([MAKE_MODEL, "llama-256", "F16", path("source.gguf")], check=True)
        out = path("race.gguf")
        processes = [subprocess.Popen([SALVO, "quantize", path("source.gguf"), out, kind, "-q"], stderr=subprocess.PIPE)
                     for kind in ("Q4_0", "Q8_0", "Q5_0", "Q4_1")]
        errors = [process.communicate()[1].decode() for process in processes]
        self.assertEqual(sorted(process.returncode for process in processes), [0, 1, 1, 1])
        for process, error in zip(processes, errors):
            self.assertEqual("already" in error, process.returncode == 1, error)
        salvo("info", model=out)


class OwnInput(unittest.TestCase):
    """A model is never written over, whatever leads to it."""

    def assert_refused(self, source, output, kept):
        for force in ([], ["--force"]):
            before = read(kept)
            error = salvo("quantize", source, output, "Q4_0", *force, model=None, status=1)[1]
            self.assertIn("refusing to overwrite", error)
            self.assertEqual(read(kept), before)

    def test_names_and_links(self):
        write("own.gguf", read("plain.gguf"))
        os.symlink("own.gguf", path("symbolic.gguf"))
        os.link(path("own.gguf"), path("hard.gguf"))
        for output in ("own.gguf", "symbolic.gguf", "hard.gguf", "./own.gguf"):
            self.assert_refused(path("own.gguf"), os.path.join(folder.name, output), "own.gguf")
        self.assert_refused(path("symbolic.gguf"), path("own.gguf"), "own.gguf")
        self.assertTrue(os.path.islink(path("symbolic.gguf")))

    def test_parts_of_a_split_model(self):
        def split(number):
            return [(b"split.no", 2, struct.pack("<H", number)), (b"split.count", 2, struct.pack("<H", 2))]

        write("split-00001-of-00002.gguf", with_entries(read("plain.gguf"), split(0)))
        write("split-00002-of-00002.gguf", with_entries(struct.pack("<4sIQQ", b"GGUF", 3, 0, 0), split(1)))
        first = path("split-00001-of-00002.gguf")
        for number in (1, 2):
            self.assert_refused(first, path(f"split-0000{number}-of-00002.gguf"), f"split-0000{number}-of-00002.gguf")
        salvo("quantize", first, path("joined.gguf"), "Q4_0", model=None)

    def test_other_outputs(self):
        before = read("words.gguf")
        self.assertIn("refusing to overwrite", salvo("run", "-p", "a", "-n", 1, "--state-save", MODEL, "--force", status=1)[1])
        self.assertIn("refusing to overwrite", salvo("eval", "--tokens", 1, "--logits", MODEL, "--force", status=1)[1])
        self.assertIn("refusing to overwrite", chat(["/save! " + MODEL], status=1))
        self.assertEqual(read("words.gguf"), before)

    def test_a_quantised_source_is_warned_of(self):
        self.assertIn("quantised already", salvo("quantize", PLAIN, path("again.gguf"), "Q4_0", model=None)[1])
        self.assertEqual(salvo("quantize", PLAIN, path("wide.gguf"), "F16", model=None)[1], "")
        self.assertEqual(salvo("quantize", path("wide.gguf"), path("small.gguf"), "Q4_0", model=None)[1], "")
        self.assertEqual(salvo("quantize", PLAIN, path("quiet.gguf"), "Q4_0", "-q", model=None)[1], "")

    def test_names_of_files_do_not_reach_the_terminal_as_they_are(self):
        name = path("red\x1b[31m\n.gguf")
        for command in (("quantize", PLAIN, name, "Q4_0"), ("info", name), ("show", name)):
            output = salvo(*command, model=None)[0]
            self.assertNotIn(b"\x1b", output)
            self.assertIn(b"red\\x1b[31m\\n.gguf", output)


class FullDisk(unittest.TestCase):
    """No file may be longer than 100 bytes: writing fails as on a full disk."""

    def fail(self, *arguments):
        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))

        error = salvo(*arguments, model=None, status=1, preexec_fn=limit)[1]
        self.assertIn("File too large", error)
        self.assertEqual(leftovers(), [])

    def test_no_half_of_a_file(self):
        for name, arguments in WRITERS.items():
            self.fail(*arguments(path("full-" + name)))
            self.assertFalse(os.path.exists(path("full-" + name)))
            file = write("old-" + name)
            self.fail(*arguments(file), "--force")
            self.assertEqual(read("old-" + name), b"precious")

    def test_an_interrupt(self):
        command = [SALVO, "eval", "-m", PLAIN, "--tokens", ",".join(["1"] * 400), "--all", "--logits", path("stopped"),
                   "-t", "1", "--cpu-isa", "scalar", "-b", "1", "-v"]
        process = subprocess.Popen(command, stderr=subprocess.PIPE)
        process.stderr.readline()  # the engine is open
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        self.assertIn(process.returncode, (0, 130, -signal.SIGINT))
        self.assertEqual(leftovers(), [])


class Odd(unittest.TestCase):
    def test_names_that_are_no_files(self):
        for arguments, status, words in (
            (("tokenize", "-m", MODEL, "-f", "/dev/zero"), 1, "/dev/zero: a device with more than 64 MiB"),
            (("eval", "-m", MODEL, "--tokens", "@"), 2, "the file name after @ is empty"),
            (("quantize", PLAIN, "-", "Q8_0"), 2, "not standard output"),
            (("quantize", PLAIN, "", "Q8_0"), 2, "name is empty"), (("quantize", "", "x", "Q8_0"), 2, "name is empty"),
            (("info", "-m", "."), 1, ".: a folder"),
            (("run", "--help=1"), 2, "--help takes no value"),
            (("verify", PLAIN, "-c", "5"), 2, "'-c'"), (("verify", PLAIN, "-b", "5"), 2, "'-b'"), (("verify", PLAIN, "--pin"), 2, "'--pin'"),
            (("run", "-m", MODEL, "-p", "a", "--stop", "b\\x00"), 2, "contains a NUL"),
        ):
            with self.subTest(arguments):
                output, error = salvo(*arguments, model=None, status=status, cwd=folder.name)
                self.assertEqual((output, error.count("\n")), (b"", 1), error)
                self.assertIn(words, error)
        self.assertFalse(os.path.exists(path("-")))

    def test_a_line_without_end_is_refused(self):
        process = subprocess.Popen([SALVO, "chat", "-m", MODEL], bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        with process:
            with contextlib.suppress(BrokenPipeError):
                for _ in range(65):  # MiB; the pipe stays open
                    process.stdin.write(bytes(1 << 20))
            self.assertEqual((process.wait(60), process.stdout.read(), process.stderr.read()), (1, b"", b"salvo: standard input: File too large\n"))

    def test_an_error_is_one_write(self):
        reader, writer = os.pipe2(os.O_DIRECT)  # a read gives one write
        subprocess.run([SALVO, "run", "-m", "no such model", "-p", "x"], stdin=subprocess.DEVNULL, stderr=writer, timeout=60, check=False)
        self.assertRegex(os.read(reader, 4096), rb"\Asalvo: no such model: .*\n\Z")
        os.close(reader)
        os.close(writer)

    def test_an_ignored_interrupt_stays_ignored(self):
        command = [SALVO, "run", "-m", MODEL, "-p", "hello", "-n", "400", "-v", *FORCED]
        process = subprocess.Popen(command, bufsize=0, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
        process.stderr.readline()  # the engine is open
        for _ in range(20):
            process.send_signal(signal.SIGINT)
            process.stdout.read(1)
        output, _ = process.communicate(timeout=60)
        self.assertEqual((process.returncode, 20 + len(output)), (0, 400))


class Descriptors(unittest.TestCase):
    def test_closed_ones_in_every_combination(self):
        for closed in itertools.chain.from_iterable(itertools.combinations(range(3), n) for n in (1, 2, 3)):
            with self.subTest(closed):
                redirections = " ".join(f"{descriptor}>&-" if descriptor else "0<&-" for descriptor in closed)
                command = f"exec '{SALVO}' run -m '{MODEL}' -n 2 --temp 0 --state-save '{path('closed')}' --force -p hello {redirections}"
                done = subprocess.run(["sh", "-c", command], input=b" world", capture_output=True, timeout=60)
                self.assertEqual(done.returncode, 1 if 1 in closed else 0, done.stderr)
                if 1 in closed and 2 not in closed:
                    self.assertIn(b"cannot write", done.stderr)
                self.assertEqual(salvo("info")[1], "")  # the model is what it was

    def test_a_closed_input_is_an_empty_one(self):
        for command, status, words in (("run -n 1", 2, "the prompt is empty"), ("chat", 0, "")):
            name, *more = command.split()
            done = subprocess.run(["sh", "-c", f"exec '{SALVO}' {name} -m '{MODEL}' {' '.join(more)} <&-"],
                                  capture_output=True, timeout=60)
            self.assertEqual((done.returncode, done.stdout), (status, b""), done.stderr)
            self.assertIn(words, done.stderr.decode())


class Prompts(unittest.TestCase):
    def ids(self, *arguments, stdin=b""):
        return json.loads(salvo("run", "-n", 1, "--json", *arguments, stdin=stdin)[0])["prompt_tokens"]

    def test_standard_input_stands_before_the_text(self):
        for piped, text, both in ((b"a b\n", "c", "a b\\nc"), (b"a b", "c", "a b c"), (b"a b", " c", "a b c"), (b"", "c", "c")):
            greedy = ("-n", 4, "--temp", 0, "--json")
            got, expected = (json.loads(salvo("run", *greedy, "-p", prompt, stdin=stdin)[0])
                             for prompt, stdin in ((text, piped), (both, b"")))
            self.assertEqual((got["prompt_tokens"], got["ids"]), (expected["prompt_tokens"], expected["ids"]))
        self.assertEqual(self.ids("-p", "", stdin=b"a b"), self.ids("-p", "a b"))
        self.assertEqual(self.ids("-p", "c", stdin=b"a\\n"), self.ids("-p", "a\\\\n c"))  # its backslashes stay
        self.assertIn("to its end", salvo("run", "--help", model=None)[0].decode())

    def test_nothing_is_read_from_dev_null(self):
        done = subprocess.run([SALVO, "run", "-m", MODEL, "-p", "hello", "-n", "1", "--json"], stdin=subprocess.DEVNULL,
                              capture_output=True)
        self.assertEqual(json.loads(done.stdout)["prompt_tokens"], 1)

    def test_a_full_context_is_one_line(self):
        output, error = salvo("run", "-p", "a", "-c", 20, *FORCED)
        self.assertEqual(output, b"x" * 19)
        self.assertRegex(error, r"\Asalvo: warning: the context of 20 tokens is full.*\n\Z")
        self.assertEqual(salvo("run", "-p", "a", "-c", 20, "-q", *FORCED)[1], "")
        self.assertEqual(salvo("run", "-p", "a", "-c", 20, "-n", 4, *FORCED)[1], "")


class TakenBack(unittest.TestCase):
    """Messages removed by /undo, /clear and the like are not in the file that /save writes, neither as text nor as tokens."""

    SECRET = "zq zq zq"

    def ids(self):
        ids = json.loads(salvo("tokenize", "--json", "-p", self.SECRET)[0])["ids"]
        return struct.pack(f"<{len(ids) - 2}i", *ids[1:-1])  # its ends may merge with what is around

    def saved(self, lines, model, *arguments):
        name = path("taken-back")
        chat([*lines, "/save! " + name], *arguments, model=model)
        return read("taken-back")

    def test_what_was_taken_back(self):
        for model in (MODEL, RECURRENT):
            said = self.saved(["hello", self.SECRET], model)
            self.assertIn(self.SECRET.encode(), said)
            self.assertIn(self.ids(), said)
            for lines in (["hello", self.SECRET, "/undo"], [self.SECRET, "/undo"], [self.SECRET, "/clear"],
                          ["/system " + self.SECRET, "hello", '/system ""'],
                          ["/system " + self.SECRET, "hello", "/system be kind"],
                          ["/system be kind", self.SECRET, "/clear"],
                          [self.SECRET, "/clear", "hello"]):
                with self.subTest(lines):
                    saved = self.saved(lines, model)
                    self.assertNotIn(self.SECRET.encode(), saved)
                    self.assertNotIn(self.ids(), saved)

    def test_it_goes_on_as_if_it_had_not_been_said(self):
        def last_answer(*lines, model):
            text = "".join(line + "\n" for line in lines).encode()
            greedy = ("-n", 6, "--temp", 0, "--presence-penalty", 0, "--frequency-penalty", 0, "--logit-bias", "263=-inf",
                      "--logit-bias", "10=-inf")
            return salvo("chat", *greedy, "-q", stdin=text, model=model)[0].splitlines()[-1]

        for model in (MODEL, RECURRENT):
            expected = last_answer("hello", "more", model=model)
            last_answer("hello", self.SECRET, "/undo", "/save! " + path("taken-back"), model=model)
            self.assertEqual(last_answer("/load " + path("taken-back"), "more", model=model), expected)
            self.assertEqual(last_answer("hello", self.SECRET, "/undo", "/save! " + path("taken-back"), "more", model=model),
                             expected)


if __name__ == "__main__":
    unittest.main(argv=[__file__, *os.sys.argv[4:]])
