"""Contracts of the commands: what goes to which stream, exit statuses, JSON keys, and clear words about bad input."""

import json
import math
import os
import signal
import stat
import struct
import subprocess
import sys
import time
import unittest

from commands import MAKE_MODEL, MODEL, PLAIN, RECURRENT, SALVO, path, read, salvo
from model_entries import with_entries

SIMPLE = sys.argv[4]
NAN = path("nan.gguf")  # as PLAIN, with NaN among the last weights
CONTEXT = 512  # of MODEL and PLAIN


class Run(unittest.TestCase):
    def test_standard_output_gets_the_text_and_nothing_else(self):
        text, error = salvo("run", "-p", "hello", "-n", 8, "--temp", 0, "-t", 2)
        self.assertEqual(error, "")
        again, error = salvo("run", "-p", "hello", "-n", 8, "--temp", 0, "-t", 1, "--stats")
        self.assertEqual(text, again)
        for word in ("prompt", "tok/s", "first token", "submissions per token", "peak memory", "seed"):
            self.assertIn(word, error)
        result = json.loads(salvo("run", "-p", "hello", "-n", 8, "--temp", 0, "--json")[0])
        self.assertEqual(len(result["ids"]), 8)
        self.assertEqual(result["finish_reason"], "length")
        self.assertEqual(result["prompt_tokens"], 1)
        self.assertEqual(result["timings"]["submissions_per_token"], 1)
        self.assertEqual(result["text"].encode(), text.decode("utf-8", "replace").encode())

    def test_the_prompt_comes_from_anywhere(self):
        with open(path("prompt"), "wb") as file:
            file.write(b"hello\nworld")
        by_file = salvo("run", "-f", path("prompt"), "-n", 5, "--temp", 0)[0]
        self.assertEqual(by_file, salvo("run", "-n", 5, "--temp", 0, stdin=b"hello\nworld")[0])
        self.assertEqual(by_file, salvo("run", "-p", "hello\\nworld", "-n", 5, "--temp", 0)[0])
        self.assertEqual(by_file, salvo("run", "-p", "hel\\x6co\nworld", "-n", 5, "--temp", 0)[0])
        count = json.loads(salvo("run", "-p", "a\\nb", "-n", 1, "--no-escape", "--json")[0])["prompt_tokens"]
        self.assertEqual(count, 4)

    def test_control_tokens_are_text_unless_asked(self):
        plain = json.loads(salvo("run", "-p", "<|im_start|>", "-n", 1, "--json")[0])["prompt_tokens"]
        parsed = json.loads(salvo("run", "-p", "<|im_start|>", "-n", 1, "--special", "--json")[0])["prompt_tokens"]
        self.assertGreater(plain, 5)
        self.assertEqual(parsed, 1)

    def test_a_saved_state_goes_on_where_it_stopped(self):
        greedy = ("--temp", 0, "--presence-penalty", 0, "--frequency-penalty", 0, "--ignore-eos", "--json")
        for model in (MODEL, RECURRENT):
            whole = json.loads(salvo("run", "-p", "hello", "-n", 20, *greedy, model=model)[0])["ids"]
            first = json.loads(salvo("run", "-p", "hello", "-n", 8, "--state-save", path("state"), "--force", *greedy, model=model)[0])
            rest = json.loads(salvo("run", "-n", 12, "--state-load", path("state"), *greedy, model=model)[0])
            self.assertEqual(whole, first["ids"] + rest["ids"])
            other = RECURRENT if model == MODEL else MODEL
            error = salvo("run", "-p", "a", "-n", 1, "--state-load", path("state"), model=other, status=1)[1]
            self.assertIn("another model", error)
        with open(path("cut"), "wb") as file:
            file.write(read("state")[:-9])
        for name, words in (("cut", "the state was cut"), ("absent", "No such file"), ("words.gguf", "not a saved state")):
            error = salvo("run", "-p", "a", "-n", 1, "--state-load", path(name), status=1)[1]
            self.assertIn(words, error)
            self.assertIn(path(name), error)

        with open(path("long"), "wb") as file:
            file.write(read("state") + b"more")
        self.assertIn("4 bytes follow", salvo("run", "-p", "a", "--state-load", path("long"), status=1)[1])

    def test_where_a_state_goes_is_looked_at_first(self):
        os.mkdir(path("a-folder"))
        os.mkfifo(path("a-pipe"))
        for name in ("no/such/state", "a-folder", "a-pipe"):
            output, error = salvo("run", "-p", "a", "-n", 3, "--state-save", path(name), status=1)
            self.assertEqual(output, b"")
            self.assertIn(path(name), error)
        os.symlink("pointed-to", path("a-link"))
        open(path("pointed-to"), "w").close()
        salvo("run", "-p", "a", "-n", 3, "--state-save", path("a-link"), "--force")
        self.assertTrue(os.path.islink(path("a-link")))
        salvo("run", "-n", 3, "--state-load", path("pointed-to"))

    def test_names_of_files_are_not_empty(self):
        for option in ("--state-load", "--state-save", "-f"):
            error = salvo("run", "-n", 1, option, "", status=2)[1]
            self.assertIn("empty", error)
            self.assertIn(option, error)
        self.assertIn("-m is empty", salvo("run", "-p", "a", model="", status=2)[1])
        self.assertIn("empty", salvo("quantize", "", path("never.gguf"), "F16", model=None, status=2)[1])

    def test_bytes_without_tokens(self):
        with open(path("lacking.gguf"), "wb") as file:  # no token for 0xff
            text = struct.pack("<Q", 2) + b"\xc3\xbf"
            self.assertEqual(read("words.gguf").count(text), 1)
            file.write(read("words.gguf").replace(text, struct.pack("<Q", 2) + b"\xc3\x80"))
        error = salvo("run", "-p", "\\xff\\xff", "-n", 1, model=path("lacking.gguf"), status=2)[1]
        self.assertIn("2 of the 2 bytes of the text have no token", error)
        self.assertIn("the prompt has no tokens", error)
        self.assertIn("1 of the 2 bytes of the text", salvo("run", "-p", "a\\xff", "-n", 1, model=path("lacking.gguf"))[1])

    def test_a_path_stands_once_in_a_message(self):
        for key in ("llama.wkv.head_size", "tokenizer.ggml.unknown_token_id"):  # a text where a number belongs
            with open(path("typed.gguf"), "wb") as file:
                entry = (key.encode(), 8, struct.pack("<Q", 1) + b"x")
                file.write(with_entries(read("words.gguf"), [entry]))
            error = salvo("run", "-p", "a", model=path("typed.gguf"), status=1)[1]
            self.assertIn(f"'{key}' has type STRING", error)
            self.assertEqual(error.count("typed.gguf"), 1, error)

    def test_the_same_seed_gives_the_same_text(self):
        first = salvo("run", "-p", "a", "-n", 30, "-s", 7)[0]
        self.assertEqual(first, salvo("run", "-p", "a", "-n", 30, "--seed", 7)[0])
        self.assertNotEqual(first, salvo("run", "-p", "a", "-n", 30, "--seed", 8)[0])

    def test_ends(self):
        forced = ["--logit-bias", "120=1000", "--temp", 0]  # x and x and x
        self.assertEqual(salvo("run", "-p", "a", "-n", 4, *forced)[0], b"xxxx")
        stopped = json.loads(salvo("run", "-p", "a", "--stop", "yy", "--stop", "xxx", *forced, "--json")[0])
        self.assertEqual((stopped["text"], stopped["finish_reason"]), ("", "stop"))
        full = json.loads(salvo("run", "-p", "a", "-c", 20, *forced, "--json")[0])
        self.assertEqual((len(full["ids"]), full["finish_reason"]), (19, "context"))
        ending = ["--logit-bias", "263=1000", "--temp", 0]  # the end token
        self.assertEqual(json.loads(salvo("run", "-p", "a", *ending, "--json")[0])["finish_reason"], "end")
        ignored = json.loads(salvo("run", "-p", "a", "-n", 3, "--ignore-eos", *ending, "--json")[0])
        self.assertEqual((ignored["ids"], ignored["finish_reason"]), ([263] * 3, "length"))

    def test_half_a_character_is_not_written(self):
        for byte, text in ((0xC3, b""), (0xF0, b""), (0xFF, b"\xff")):
            forced = ["--logit-bias", f"{byte}=1000", "--temp", 0, "-n", 1]
            self.assertEqual(salvo("run", "-p", "a", *forced)[0], text)
            result = json.loads(salvo("run", "-p", "a", *forced, "--json")[0])
            self.assertEqual((result["ids"], result["text"]), ([byte], text.decode("utf-8", "replace")))

    def test_a_full_context_is_said(self):
        output, error = salvo("run", "-p", "x", "-c", 1)
        self.assertEqual(output, b"")
        self.assertRegex(error, "warning: the context of 1 tokens is full")
        self.assertEqual(salvo("run", "-p", "x", "-c", 1, "-q")[1], "")

    def test_a_failed_request_gives_one_line(self):
        error = salvo("run", "-p", "x", "-c", 2000000, "-t", 1000, status=2)[1]
        self.assertEqual(error.count("\n"), 1, error)

    @unittest.skipUnless(os.path.exists("/dev/full"), "no /dev/full")
    def test_write_errors_have_a_reason(self):
        for more in ([], ["--json"]):
            with open("/dev/full", "wb") as full:
                done = subprocess.run([SALVO, "run", "-m", MODEL, "-p", "hello", "-n", "8", *more], stdout=full,
                                      stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
            self.assertEqual(done.returncode, 1)
            self.assertIn(b"No space left", done.stderr)

    def test_a_cancelled_prompt_counts_what_was_computed(self):
        length = 60000
        with open(path("long"), "w") as file:
            file.write("x" * length)
        command = [SALVO, "run", "-m", MODEL, "-f", path("long"), "-c", "100000", "-n", "1", "-q", "-v", "--stats",
                   "--json", "-b", "16", "-t", "1", "--cpu-isa", "scalar"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for line in process.stderr:
            if line.startswith(b"prompt of"):
                break
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        output, error = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130)
        result = json.loads(output)
        self.assertEqual(result["finish_reason"], "cancelled")
        self.assertLess(result["prompt_tokens"], length)
        self.assertIsNone(result["timings"]["first_token_ms"])
        self.assertIn(f"{result['prompt_tokens']} of {length} tokens", error.decode())
        self.assertIn("first token  none", error.decode())

    def test_bad_input_is_said_clearly(self):
        cases = [  # arguments, exit status, words
            (["-p", ""], 2, ["prompt is empty"]),
            (["-p", "x", "-n", "0"], 2, ["-n", "'0'"]),
            (["-p", "x", "-n", "-5"], 2, ["-n", "'-5'"]),
            (["-p", "x", "-n", "many"], 2, ["-n", "'many'"]),
            (["-p", "x", "-n", "4294967296"], 2, ["-n", "4294967296", "from 1 to 4294967295"]),
            (["-p", "x", "--temp", "-1"], 2, ["--temp", "'-1'", "at least 0"]),
            (["-p", "x", "--temp", "nan"], 2, ["--temp"]),
            (["-p", "x", "--top-p", "1.5"], 2, ["--top-p", "0 to 1"]),
            (["-p", "x", "--min-p=-0.1"], 2, ["--min-p"]),
            (["-p", "x", "--repeat-penalty", "0"], 2, ["run: invalid --repeat-penalty '0': expected a number from 1e-06 to 1e+06"]),
            (["-p", "x", "--repeat-penalty", "-1"], 2, ["run: invalid --repeat-penalty '-1': expected a number from 1e-06 to 1e+06"]),
            (["-p", "x", "--repeat-penalty", "2e6"], 2, ["run: invalid --repeat-penalty '2e6': expected a number from 1e-06 to 1e+06"]),
            (["-p", "x", "-t", "0"], 2, ["-t"]),
            (["-p", "x", "-t", "-2"], 2, ["-t", "-2"]),
            (["-p", "x", "-t", "1000"], 2, ["1000"]),
            (["-p", "x", "-b", "-1"], 2, ["-b"]),
            (["-p", "x", "-c", "-1"], 2, ["-c"]),
            (["-p", "x", "-s", "-2"], 2, ["-s"]),
            (["-p", "x", "--logit-bias", "5"], 2, ["--logit-bias", "ID=X"]),
            (["-p", "x", "--logit-bias", "99999=1"], 2, ["99999"]),
            (["-p", "x", "--stop", ""], 2, ["--stop"]),
            (["-p", "x", "--kv-type", "q3"], 2, ["--kv-type", "q3"]),
            (["-p", "x", "--kv-memory", "8X"], 2, ["--kv-memory", "8X"]),
            (["-p", "x", "--kv-memory", "0"], 2, ["--kv-memory", "0"]),
            (["-p", "x", "--kv-memory", "-1"], 2, ["--kv-memory", "-1"]),
            (["-p", "x", "--kv-memory", "18446744073709551615G"], 2, ["--kv-memory"]),
            (["-p", "x", "--kv-memory", "100"], 2, ["a KV memory of 100 bytes is too small"]),
            (["-p", "x", "--backend", "cuda"], 1, ["backend 'cuda' "]),
            (["-p", "x", "--backend", "abacus"], 2, ["abacus"]),
            (["-p", "x", "--device", "9"], 2, ["no device 9"]),
            (["-p", "x", "--cpu-isa", "mmx"], 2, ["mmx", "; available: "]),
            (["-p", "x", "-f", "y"], 2, ["-p and -f"]),
            (["-f", path("absent")], 1, ["absent", "No such file"]),
            (["-p", "x y z", "-c", "4"], 1, ["5 tokens", "4"]),
            (["-p", "x", "--tmep", "1"], 2, ["--temp"]),
        ]
        for arguments, status, words in cases:
            with self.subTest(arguments):
                output, error = salvo("run", *arguments, status=status)
                self.assertEqual(output, b"")
                self.assertEqual(error.count("\n"), 1, error)
                for word in words:
                    self.assertIn(word, error)

    def test_contexts_that_do_not_fit_name_both_numbers(self):
        wide = path("wide.gguf")
        subprocess.run([MAKE_MODEL, "smollm-135m", "Q4_0", wide], check=True)
        error = salvo("eval", "--tokens", 1, "-c", 60000000, "--kv-type", "f32", "-q", status=1, model=wide)[1]
        self.assertRegex(error, r"context of 60000000 .*needs \d+ MB .*has \d+ MB")
        os.unlink(wide)

    def test_models_that_cannot_run(self):
        self.assertIn("no such file", salvo("run", "-p", "x", model="/absent.gguf", status=1)[1].lower())
        self.assertIn("vocab", salvo("run", "-p", "x", model=PLAIN, status=1)[1])
        with open(PLAIN, "rb") as file:
            damaged = file.read()
        with open(path("damaged.gguf"), "wb") as file:
            file.write(damaged.replace(b"output_norm.weight", b"output_morn.weight"))
        self.assertIn("output_norm.weight", salvo("eval", "--tokens", "1", model=path("damaged.gguf"), status=1)[1])
        with open(path("other.gguf"), "wb") as file:
            file.write(damaged.replace(b"llama", b"lllll"))
        self.assertIn("lllll", salvo("eval", "--tokens", "1", model=path("other.gguf"), status=1)[1])

    def test_control_c_ends_with_statistics(self):
        command = [SALVO, "run", "-m", MODEL, "-p", "a", "--logit-bias", "120=1000", "--stats", "-c", "400000", "-q"]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(process.stdout.read(3), b"xxx")
        process.send_signal(signal.SIGINT)
        output, error = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130)
        self.assertIn("cancelled", error.decode())
        self.assertIn("peak memory", error.decode())

    def test_a_closed_pipe_ends_it(self):
        command = f"'{SALVO}' run -m '{MODEL}' -p a --ignore-eos -c 100000 -q < /dev/null | head -c 10 | wc -c"
        start = time.time()
        self.assertEqual(subprocess.run(command, shell=True, capture_output=True).stdout.strip(), b"10")
        self.assertLess(time.time() - start, 60)


class Eval(unittest.TestCase):
    def test_logits(self):
        tokens = "1,2,3,4,5"
        salvo("eval", "--tokens", tokens, "--logits", path("last"), model=PLAIN)
        salvo("eval", "--tokens", tokens, "--logits", path("all"), "--all", "-b", 2, model=PLAIN)
        last, rows = read("last"), read("all")
        self.assertEqual(len(last), 331 * 4)
        self.assertEqual(len(rows), 5 * 331 * 4)
        self.assertEqual(rows[-len(last):], last)
        with open(path("ids"), "w") as file:
            file.write("1 2\n3, 4\t5\n")
        salvo("eval", "--tokens", "@" + path("ids"), "--logits", path("last"), "--force", model=PLAIN)
        self.assertEqual(read("last"), last)

        self.assertEqual(salvo("eval", "--tokens", tokens, "--logits", "-", model=PLAIN)[0], last)
        for more, positions in ([], [4]), (["--all"], [0, 1, 2, 3, 4]):
            written = json.loads(
                salvo("eval", "--tokens", tokens, "--logits", path("rows"), "--force", "--json", *more, model=PLAIN)[0])
            self.assertEqual(
                written, {"path": path("rows"), "rows": len(positions), "vocabulary": 331, "positions": positions})

        top = json.loads(salvo("eval", "--tokens", tokens, "--json", model=PLAIN)[0])["rows"][0]["top"]
        logits = struct.unpack("331f", last)
        order = sorted(range(331), key=lambda i: (-logits[i], i))[:10]
        self.assertEqual([entry["id"] for entry in top], order)
        total = sum(math.exp(value) for value in logits)
        self.assertAlmostEqual(top[0]["probability"], math.exp(logits[order[0]]) / total, places=5)
        self.assertEqual(len(salvo("eval", "--tokens", tokens)[0].splitlines()), 11)

    def test_of_equal_logits_the_lowest_ids_come_first(self):
        whole = read("plain.gguf")
        with open(path("zeros.gguf"), "wb") as file:  # the last norm is among what is 0
            file.write(whole[:len(whole) // 20] + b"\0" * (len(whole) - len(whole) // 20))
        top = json.loads(salvo("eval", "--tokens", "1,2", "--json", model=path("zeros.gguf"))[0])["rows"][0]["top"]
        self.assertEqual([(entry["id"], entry["logit"]) for entry in top], [(i, 0) for i in range(10)])
        self.assertAlmostEqual(top[9]["probability"], 1 / 331, places=6)

    def test_nan_names_its_position(self):
        output, error = salvo("eval", "--tokens", "1,2,3", model=NAN, status=1)
        self.assertIn(b"after position 2", output)
        self.assertIn("after position 2 is NaN", error)
        salvo("eval", "--tokens", "1,2,3", "--logits", path("nans"), model=NAN)
        self.assertTrue(all(map(math.isnan, struct.unpack("331f", read("nans")))))

    def test_bad_input(self):
        cases = [
            ([], 2, "--tokens"),
            (["--tokens", ""], 2, "empty"),
            (["--tokens", "1,x"], 2, "'x'"),
            (["--tokens", "1,-2"], 2, "'-2'"),
            (["--tokens", "1,,2"], 2, "missing"),
            (["--tokens", "1,2,"], 2, "missing"),
            (["--tokens", ",1"], 2, "missing"),
            (["--tokens", "1", "--logits", "-", "--json"], 2, "standard output"),
            (["--tokens", "1,331"], 2, "331 is outside"),
            (["--tokens", "1,2,3", "-c", "2"], 1, "3 tokens"),
            (["--tokens", "1", "--logits", "/nowhere/at/all"], 1, "/nowhere/at/all"),
            (["--tokens", "@" + path("absent")], 1, "absent"),
        ]
        for arguments, status, words in cases:
            with self.subTest(arguments):
                self.assertIn(words, salvo("eval", *arguments, model=PLAIN, status=status)[1])


class Template(unittest.TestCase):
    CHATML = b"{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endfor %}{% if add_generation_prompt %}<|im_start|>{% endif %}"
    HI = [{"role": "user", "content": "hello<|im_end|>"}]

    def render(self, template, request, *arguments, model=None, status=0):
        with open(path("template"), "wb") as file:
            file.write(template)
        with open(path("messages"), "w") as file:
            file.write(request if isinstance(request, str) else json.dumps(request))
        return salvo("template", "--template", path("template"), "--messages", path("messages"), *arguments, model=model, status=status)

    def test_text_and_ids(self):
        text = b"<|im_start|>user\nhello<|im_end|><|im_end|>"
        self.assertEqual(self.render(self.CHATML, self.HI), (text + b"<|im_start|>", ""))
        self.assertEqual(self.render(self.CHATML, self.HI, "--no-generation-prompt"), (text, ""))
        self.assertEqual(self.render(self.CHATML, {"messages": self.HI, "add_generation_prompt": False}), (text, ""))
        self.assertEqual(salvo("template", "--template", path("template"), "--messages", "-", model=None, stdin=json.dumps(self.HI).encode())[0],
                         text + b"<|im_start|>")
        ids = self.render(self.CHATML, self.HI, "--ids", model=MODEL)[0].decode().split()
        plain = salvo("tokenize", "--ids", "-p", "hello<|im_end|>")[0].decode().split()
        special = salvo("tokenize", "--ids", "--special", "-p", "<|im_start|>user\n", stdin=b"")[0].decode().split()
        end = salvo("tokenize", "--ids", "--special", "-p", "<|im_end|>")[0].decode().split()
        self.assertEqual(ids[:1] + ids[-2:], [special[0], end[0], special[0]])
        self.assertEqual(ids[-2 - len(plain):-2], plain)

    def test_variables_of_a_request(self):
        template = b"{{ tools | tojson }} {{ enable_thinking }} {{ bos_token is defined }} {{ messages[0].content[0].text }}"
        request = {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}], "tools": [{"x": 1}], "enable_thinking": False}
        self.assertEqual(self.render(template, request)[0], b'[{"x": 1}] False False a')
        two = [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]
        self.assertEqual(self.render(b"{{ '>' + messages[0].content }}", two)[0], b">a\nb")

    def test_a_text_begins_once(self):
        expected = salvo("tokenize", "--ids", "--bos", "-p", "hello")[0].split()
        self.assertEqual(len(expected), 2)
        model = path("begun-chat.gguf")
        with open(model, "wb") as file:
            file.write(with_entries(read("words.gguf"), [(b"tokenizer.ggml.add_bos_token", 7, b"\1")]))
        word = self.render(b"{{ bos_token }}", self.HI, model=model)[0]
        for template in (b"{{ bos_token }}hello", b"hello", word + b"hello"):
            self.assertEqual(self.render(template, self.HI, "--ids", model=model)[0].split(), expected)
        self.assertEqual(self.render(b"{{ bos_token }}hello", self.HI, "--ids", model=MODEL)[0].split(), expected)
        self.assertEqual(self.render(b"hello", self.HI, "--ids", model=MODEL)[0].split(), expected[1:])
        twice = self.render(b"{{ bos_token }}{{ bos_token }}hello", self.HI, "--ids", model=model)[0].split()
        self.assertEqual(len(twice), 3)  # what the template writes is not corrected

    def test_without_a_template(self):
        expected = b"User: hello<|im_end|>\n\nAssistant:"
        with open(path("messages"), "w") as file:
            json.dump(self.HI, file)
        for model in (MODEL, RECURRENT):
            self.assertEqual(salvo("template", "--messages", path("messages"), model=model)[0], expected)
        named = path("named.gguf")
        with open(named, "wb") as file:
            entry = (b"tokenizer.chat_template", 8, struct.pack("<Q", 10) + b"rwkv-world")
            file.write(with_entries(read("words.gguf"), [entry]))
        self.assertEqual(salvo("template", "--messages", path("messages"), model=named)[0], expected)

    def test_bad_input(self):
        for template, request, status, words in (
            (b"{{ x.y }}", [], 1, "line 1, column 5: 'x' is undefined"),
            (b"a\n{% if %}", [], 1, "line 2, column 7"),
            (b"{{ raise_exception('Only users') }}", [], 1, "Only users"),
            (b"x", "{", 1, "JSON: line 1, column 2"),
            (b"x", "", 1, "is empty"),
        ):
            output, error = self.render(template, request, status=status)
            self.assertEqual((output, error.count("\n")), (b"", 1))
            self.assertIn(words, error)
        self.assertIn("--messages", salvo("template", model=None, status=2)[1])
        self.assertIn("standard input", salvo("template", "--messages", "-", "--template", "-", model=None, status=2)[1])
        self.assertIn("absent", salvo("template", "--messages", path("absent"), model=None, status=1)[1])
        self.assertIn("absent", salvo("template", "--messages", path("template"), "--template", path("absent"), model=None, status=1)[1])


class Others(unittest.TestCase):
    def test_bench(self):
        result = json.loads(
            salvo("bench", "-p", "8,16", "-n", 4, "-d", "0,20", "-r", 2, "--json", "-t", 2, model=PLAIN)[0])
        names = [test["test"] for test in result["tests"]]
        self.assertEqual(names, ["pp8", "pp16", "tg4", "pp8@d20", "pp16@d20", "tg4@d20"])
        self.assertEqual((result["backend"], result["threads"]), ("cpu", 2))
        self.assertTrue(result["model"] and result["device"])
        for test in result["tests"]:
            self.assertGreater(test["avg_ts"], 0)
            self.assertGreaterEqual(test["stddev_ts"], 0)
            self.assertLessEqual(test["submissions_per_token"], 1)
        self.assertEqual(result["tests"][2]["submissions_per_token"], 1)
        table = salvo("bench", "-p", 8, "-n", 4, "-r", 1, model=PLAIN)[0].decode()
        for word in ("pp8", "tg4", "tok/s", "±", "peak memory"):
            self.assertIn(word, table)
        self.assertIn("Q8_0, ", table.splitlines()[0])
        self.assertNotIn(" ,", table.splitlines()[0])
        salvo("bench", "-p", CONTEXT, "-n", 0, "-c", CONTEXT, "-r", 1, model=PLAIN)
        self.assertIn("context of 600 tokens,", salvo("bench", "-p", 600, "-n", 0, "-c", 512, model=PLAIN, status=2)[1])
        self.assertIn("no test to run", salvo("bench", "-p", 0, "-n", 0, model=PLAIN, status=2)[1])
        self.assertIn("-r", salvo("bench", "-r", 0, model=PLAIN, status=2)[1])
        self.assertIn("-p", salvo("bench", "-p", "8,", model=PLAIN, status=2)[1])

    def test_the_name_of_a_model_cannot_control_the_terminal(self):
        with open(path("named.gguf"), "wb") as file:
            file.write(read("plain.gguf").replace(b", random", b"\x1b[2Jname", 1))
        for arguments in (("bench", "-p", 8, "-n", 0, "-r", 1), ("bench", "--sessions", 1, "-p", 8, "-n", 4, "-r", 1),
                          ("info", "--metadata"), ("show",)):
            output, error = salvo(*arguments, model=path("named.gguf"))
            self.assertIn(b"name", output)
            self.assertNotIn(b"\x1b", output + error.encode())

    def test_bench_sessions(self):
        result = json.loads(
            salvo("bench", "--sessions", "1,3,16", "-p", "8", "-n", 6, "-r", 2, "--json", "-t", 1, model=PLAIN)[0])
        self.assertEqual([test["test"] for test in result["tests"]], ["tg6x1", "tg6x3", "tg6x16"])
        self.assertEqual([test["sessions"] for test in result["tests"]], [1, 3, 16])
        for test in result["tests"]:
            self.assertAlmostEqual(test["session_ts"] * test["sessions"] / test["avg_ts"], 1, places=4)
            for key in ("avg_ts", "prompt_ts", "first_token_ms", "between_tokens_ms"):
                self.assertGreater(test[key], 0)
            self.assertGreaterEqual(test["first_token_p99_ms"], test["first_token_ms"])
            self.assertGreaterEqual(test["between_tokens_p99_ms"], test["between_tokens_ms"])
        table = salvo("bench", "--sessions", 2, "-n", 4, "-r", 1, model=PLAIN)[0].decode()
        for word in ("tg4x2", "tok/s", "between tokens", "peak memory"):
            self.assertIn(word, table)
        bench = ("bench", "--sessions", 2, "-p", 8, "-n", 6, "-r", 1, "--json", "-t", 1)
        coming = json.loads(salvo(*bench, "--rate", 2000, "--requests", 5, model=PLAIN)[0])["tests"][0]
        self.assertEqual((coming["rate"], coming["requests"]), (2000, 5))
        self.assertGreater(coming["first_token_p99_ms"], 0)
        beside = json.loads(salvo(*bench, "--arriving", 200, model=PLAIN)[0])["tests"][0]
        self.assertEqual(beside["arriving_prompt"], 200)
        self.assertGreater(beside["arriving_between_tokens_p99_ms"], 0)
        self.assertAlmostEqual(
            beside["arriving_stretch"] * beside["between_tokens_ms"] / beside["arriving_between_tokens_p99_ms"], 1, places=4)
        self.assertIn("--sessions", salvo("bench", "--rate", 1, model=PLAIN, status=2)[1])
        for arguments, message in ((("--sessions", "1,0"), "--sessions 0"), (("--sessions", 2, "--rate", 1, "--arriving", 8), "--rate and"),
                                   (("--sessions", 2, "--rate", "1e-9"), "1000 seconds"), (("--sessions", 2, "-n", 3), "at least 4"),
                                   (("--sessions", 2, "-d", 8), "-d cannot"), (("--sessions", 2, "-p", 0), "-p is 0"),
                                   (("--sessions", 2, "--ahead", 8), "--ahead"), (("--sessions", 2, "--profile"), "--profile"),
                                   (("--sessions", 4097), "at most 4096"), (("--sessions", 2, "-c", 20), "-c is 20")):
            self.assertIn(message, salvo("bench", *arguments, model=PLAIN, status=2)[1])

    def test_perplexity(self):
        text = "".join(f"line {i} says hello\n" for i in range(60))
        with open(path("text"), "w") as file:
            file.write(text)
        result = json.loads(salvo("perplexity", "-f", path("text"), "-c", 64, "--json")[0])
        self.assertAlmostEqual(result["perplexity"], math.exp(result["nll"]), places=6)
        by_input = json.loads(salvo("perplexity", "-c", 64, "--json", stdin=text.encode())[0])
        self.assertEqual((result["nll"], result["tokens"]), (by_input["nll"], by_input["tokens"]))
        count = json.loads(salvo("tokenize", "-p", text, "--json")[0])["count"]
        windows = (count + 63) // 64
        self.assertEqual((result["windows"], result["tokens"]), (windows, count - windows))
        half = json.loads(salvo("perplexity", "-f", path("text"), "-c", 64, "--second-half", "--json")[0])
        self.assertEqual((half["windows"], half["tokens"]), (count // 64, count // 64 * 31))
        self.assertIn("perplexity", salvo("perplexity", "-f", path("text"))[0].decode())
        self.assertIn("too short", salvo("perplexity", stdin=b"x", status=1)[1])
        self.assertIn("absent", salvo("perplexity", "-f", path("absent"), status=1)[1])

    def test_perplexity_is_that_of_the_logits(self):
        with open(path("short"), "w") as file:
            file.write("hello world")
        ids = json.loads(salvo("tokenize", "-f", path("short"), "--json")[0])["ids"]
        salvo("eval", "--tokens", ",".join(map(str, ids)), "--all", "--logits", path("rows"), "--force")
        rows = read("rows")
        vocabulary = len(rows) // 4 // len(ids)
        values = struct.unpack(f"{len(ids) * vocabulary}f", rows)
        nll = 0
        for i in range(len(ids) - 1):
            row = values[i * vocabulary:(i + 1) * vocabulary]
            nll += math.log(sum(map(math.exp, row))) - row[ids[i + 1]]
        result = json.loads(salvo("perplexity", "-f", path("short"), "--json")[0])
        self.assertAlmostEqual(result["nll"], nll / (len(ids) - 1), places=4)

    def test_quantize(self):
        out = path("quantized.gguf")
        salvo("quantize", MODEL, out, "q4_0", "-t", 2, model=None)
        self.assertLess(os.path.getsize(out), os.path.getsize(MODEL))
        salvo("run", "-p", "hello", "-n", 3, model=out)
        for name in ("Q3_K", "q4_K", "Q5_K"):
            salvo("quantize", MODEL, out, name, "--force", model=None)
            short = read("quantized.gguf")
            salvo("quantize", MODEL, out, name + "_M", "--force", model=None)
            self.assertEqual(read("quantized.gguf"), short)
            salvo("quantize", MODEL, out, name, "--pure", "--force", model=None)
        self.assertIn("Q4_K_M", salvo("quantize", MODEL, path("never.gguf"), "Q9", model=None, status=2)[1])
        self.assertIn("TYPE", salvo("quantize", MODEL, model=None, status=2)[1])
        self.assertIn("/nowhere", salvo("quantize", MODEL, "/nowhere/x.gguf", "F16", model=None, status=1)[1])
        self.assertFalse(os.path.exists(path("never.gguf")))

    def test_quantize_leaves_nothing_when_stopped(self):
        wide = path("wide.gguf")
        subprocess.run([MAKE_MODEL, "smollm-135m", "F16", wide], check=True)
        os.mkdir(path("out"))
        for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            command = [SALVO, "quantize", wide, path("out/small.gguf"), "Q3_K_M", "-t", "1", "-q"]
            process = subprocess.Popen(command, stderr=subprocess.PIPE)
            while not os.listdir(path("out")) and process.poll() is None:
                time.sleep(0.01)
            process.send_signal(number)
            error = process.communicate(timeout=60)[1]
            self.assertEqual(process.returncode, status)
            self.assertIn(b"small.gguf: not written", error)
            self.assertEqual(os.listdir(path("out")), [])
        os.unlink(wide)

    def test_quantize_refuses_what_is_no_file(self):
        os.mkfifo(path("pipe"))
        for name in ("", "pipe"):
            error = salvo("quantize", MODEL, path(name), "F16", model=None, status=1)[1]
            self.assertIn("not a regular file", error)
        self.assertTrue(stat.S_ISFIFO(os.stat(path("pipe")).st_mode))

    def test_verify(self):
        self.assertIn("passed", salvo("verify", model=PLAIN)[0].decode())
        result = json.loads(salvo("verify", "--backend", "cpu:scalar", "--tokens", "1,2,3", "--json", model=PLAIN)[0])
        self.assertTrue(result["passed"])
        self.assertEqual(result["positions"], 3)
        self.assertEqual(result["outputs_failed"], 0)
        self.assertIn("cuda", salvo("verify", "--against", "cuda", model=PLAIN, status=1)[1])
        self.assertIn("empty", salvo("verify", "--tokens", "", model=PLAIN, status=2)[1])

    def test_a_model_of_nan_is_not_verified(self):
        for more in ([], ["--backend", "cpu:scalar"]):
            result = json.loads(salvo("verify", *more, "--json", model=NAN, status=1)[0])
            self.assertFalse(result["passed"])
            self.assertGreater(result["outputs"][0]["not_finite"], 0)

    def test_info_shows_the_program(self):
        text = salvo("info", "--program", model=PLAIN)[0].decode()
        for word in ("matmul", "attend", "plan for 1 tokens"):
            self.assertIn(word, text)

        plain = json.loads(salvo("info", "--json", model=PLAIN)[0])
        whole = json.loads(salvo("info", "--program", "--json", model=PLAIN)[0])
        lines = whole.pop("program") + whole.pop("plan")
        self.assertEqual(whole, plain)
        self.assertEqual(lines, text.splitlines())

    def test_words_that_are_nearly_right(self):
        for arguments, words in (
            (["rnu"], "`salvo run`"),
            (["--vrsion"], "--version"),
            (["--version", "more"], "'more'"),
            ([], "usage: salvo COMMAND"),
        ):
            done = subprocess.run([SALVO, *arguments], capture_output=True)
            self.assertEqual((done.returncode, done.stdout), (2, b""))
            self.assertIn(words, done.stderr.decode())

    def test_no_home_is_named(self):
        done = subprocess.run([SALVO, "info"], capture_output=True, env={})
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"neither XDG_CACHE_HOME nor HOME", done.stderr)

    def test_help_and_completions_know_shared_options(self):
        self.assertIn("--kv-type", salvo("help", "run", model=None)[0].decode())
        self.assertIn("--kv-type", salvo("completions", "bash", model=None)[0].decode())

    def test_the_simple_example(self):
        done = subprocess.run([SIMPLE, MODEL, "hello"], capture_output=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        begun = path("begun.gguf")  # one that wants a token at the beginning
        with open(begun, "wb") as file:
            file.write(with_entries(read("words.gguf"), [(b"tokenizer.ggml.add_bos_token", 7, b"\1")]))
        self.assertEqual(json.loads(salvo("run", "-p", "hello", "-n", 1, "--json", model=begun)[0])["prompt_tokens"], 2)
        done = subprocess.run([SIMPLE, begun, "hello"], capture_output=True, timeout=60)
        self.assertEqual(done.stdout, salvo("run", "-p", "hello", "-n", 64, "-s", 0, model=begun)[0])
        done = subprocess.run([SIMPLE, "/absent.gguf", "hello"], capture_output=True, timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"/absent.gguf", done.stderr)


if __name__ == "__main__":
    weights = read("plain.gguf")
    with open(NAN, "wb") as nan_file:
        nan_file.write(weights[:-(len(weights) // 8)] + b"\xff" * (len(weights) // 8))
    unittest.main(argv=sys.argv[:1] + sys.argv[5:])
