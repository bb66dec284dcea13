"""Numbers on the command line: their limits, the first beyond them, and words that are none."""

import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest

from model_entries import with_entries

SALVO, MAKE_WORDS = sys.argv[1:3]
folder = tempfile.TemporaryDirectory()
MODEL = os.path.join(folder.name, "words.gguf")
NO_NUMBERS = ("", " ", "-", "-1", "+1", " 1", "1 ", "1.0", "1e3", "0x10", "1,2", "one", "\u0661")
NO_FLOATS = ("", "-", "nan", "-nan", "inf", "-inf", "infinity", "1e39", "-1e39", "1.5x", "1,5", "1 ", "1 2", "one", "--")
MINUS_ONE = ("--tokens", "--top-k", "--repeat-last-n")  # all there are
MOST_32, MOST_SEED = 2**32 - 1, 2**64 - 2


def salvo(*arguments, status=0):
    done = subprocess.run([SALVO, *map(str, arguments)], capture_output=True, timeout=120)
    error = done.stderr.decode()
    assert done.returncode == status, f"{arguments}: exit status {done.returncode}, not {status}: {error}"
    return done.stdout, error


def run(*arguments, status=0):
    return salvo("run", "-m", MODEL, "-p", "a", *arguments, status=status)


class Numbers(unittest.TestCase):
    def refused(self, option, value, *words, command="run", arguments=("-m", MODEL, "-p", "a"), status=2):
        """Wrong usage: one line that names the option and what was given."""
        with self.subTest(command=command, option=option, value=value):
            output, error = salvo(command, *arguments, f"{option}={value}", status=status)
            self.assertEqual((output, error.count("\n")), (b"", 1), error)
            for word in (str(value), *words):
                self.assertIn(word, error)

    def test_whole_numbers(self):
        """Words that are no numbers are refused before anything is loaded: the model does not exist."""
        for option, least in (("--tokens", 1), ("--ahead", 1), ("--threads", 1), ("--batch", 1), ("--context", 0),
                              ("--device", 0), ("--top-k", 0), ("--repeat-last-n", 0)):
            for value in (*NO_NUMBERS, "-2", "4294967296", "42949672950", "18446744073709551616", "9" * 40):
                if value == "-1" and option in MINUS_ONE:
                    continue
                self.refused(option, value, option, f"from {least} to {MOST_32}", arguments=("-m", "/absent", "-p", "a"))
            if least:
                self.refused(option, "0", option, "from 1", arguments=("-m", "/absent", "-p", "a"))
        for value in (*NO_NUMBERS, "0", "4294967296"):
            self.refused("--threads", value, command="quantize", arguments=("/absent", "/absent", "F16"))
            self.refused("--repetitions", value, command="bench", arguments=("-m", "/absent"))
        for value in ("", ",", "1,", ",1", "1,,2", "1,x", "1;2", "-1", "4294967296", "1,4294967296"):
            self.refused("--prompts", value, "separated by commas", command="bench", arguments=("-m", "/absent"))
        self.refused("--prompts", ",".join(["1"] * 33), "too many", command="bench", arguments=("-m", "/absent"))

    def test_limits_of_the_engine(self):
        for option, beyond, most in (("-c", 67108865, 67108864), ("-b", 65537, 65536), ("-t", 257, 256)):
            for value in (beyond, MOST_32):
                error = run("-n", 1, option, value, status=2)[1]
                self.assertIn(str(value), error)
                self.assertIn(str(most), error)
        self.assertIn(f"no device {MOST_32}", run("--device", MOST_32, status=2)[1])
        self.assertEqual(run("-n", 3, "-b", 65536, "--temp", 0)[0], run("-n", 3, "-b", 1, "--temp", 0)[0])
        self.assertIn("257", salvo("quantize", MODEL, os.path.join(folder.name, "out"), "F16", "-t", 257, status=2)[1])
        self.assertIn(f"{MOST_32 + 3}", salvo("bench", "-m", MODEL, "-p", 1, "-n", 1, "-d", MOST_32, status=2)[1])

    def test_the_most_tokens(self):
        """An endless text ends with the context, whatever is asked for."""
        forced = ("--logit-bias", "120=1000", "--temp", 0, "-c", 30)
        for option, value in (("-n", MOST_32), ("-n", -1), ("--ahead", MOST_32)):
            self.assertEqual(run(*forced, option, value)[0], b"x" * 29)
        self.assertEqual(run(*forced, "-n", 1)[0], b"x")

    def test_the_largest_number_is_not_the_default(self):
        wide = ("-n", 40, "--temp", 50, "--top-p", 1, "--min-p", 0, "-s", 3)
        self.assertEqual(run(*wide, "--top-k", MOST_32)[0], run(*wide, "--top-k", 0)[0])
        for value in (266, -1):
            self.assertEqual(run(*wide, "--top-k", value)[0], run(*wide, "--top-k", 0)[0])
        self.assertNotEqual(run(*wide)[0], run(*wide, "--top-k", 0)[0])
        # A greedy text whose tokens are forbidden once they came uses every token before one comes again.
        once = ("-n", 150, "--temp", 0, "--presence-penalty", 1000000, "--ignore-eos", "--json")
        for last, repeats in ((MOST_32, False), (-1, False), (150, False), (64, True), (0, True)):
            ids = json.loads(run(*once, "--repeat-last-n", last)[0])["ids"]
            self.assertEqual(len(set(ids)) < len(ids), repeats, last)

    def test_every_sampler_option_counts(self):
        def ids(*more):
            return json.loads(run("-n", 40, "-s", 3, "--ignore-eos", "--json", *more)[0])["ids"]

        wide = {"--temp": 50, "--top-k": 0, "--top-p": 1, "--min-p": 0}
        greedy = ids("--temp", 0)
        self.assertNotEqual(ids(*sum(wide.items(), ())), greedy)
        for option, value in (("--temp", 0), ("--top-k", 1), ("--top-p", 1e-9), ("--min-p", 1)):
            self.assertEqual(ids(*sum({**wide, option: value}.items(), ())), greedy, option)
        self.assertLess(len(set(greedy)), 40)
        for option in ("--repeat-penalty", "--presence-penalty", "--frequency-penalty"):
            self.assertEqual(len(set(ids("--temp", 0, option, 1000000))), 40, option)

    def test_defaults(self):
        recurrent = os.path.join(folder.name, "recurrent.gguf")
        subprocess.run([MAKE_WORDS, "rwkv7-tiny", recurrent], check=True)
        keys = ("temperature", "top_k", "top_p", "min_p", "repeat_penalty", "presence_penalty", "frequency_penalty",
                "repeat_last_n")
        for model, values in ((MODEL, (0.8, 40, 0.95, 0.05, 1, 0, 0, 64)), (recurrent, (1, 0, 0.3, 0, 1, 0.5, 0.5, 64))):
            self.assertEqual(json.loads(salvo("info", "-m", model, "--json")[0])["sampling"], dict(zip(keys, values)))

    def test_numbers_of_a_file(self):
        """64 bits of which the upper ones count: 2^32 experts are not 0."""
        with open(MODEL, "rb") as file:
            whole = file.read()
        for kind, value in ((10, struct.pack("<Q", 2**32)), (11, struct.pack("<q", 2**32)), (5, struct.pack("<i", -1)),
                            (9, struct.pack("<IQQ", 10, 1, 2**32)), (9, struct.pack("<IQq", 11, 1, 2**32)),
                            (9, struct.pack("<IQi", 5, 1, -1))):  # the last three for each layer
            model = os.path.join(folder.name, "experts.gguf")
            with open(model, "wb") as file:
                file.write(with_entries(whole, [(b"llama.expert_count", kind, value)]))
            error = salvo("run", "-m", model, "-p", "a", "-n", 1, status=1)[1]
            self.assertIn("llama.expert_count", error)

    def test_seeds(self):
        for value in (*NO_NUMBERS, "-2", str(MOST_SEED + 1), "9" * 40):
            if value == "-1":
                continue  # a random one
            self.refused("--seed", value, str(MOST_SEED), arguments=("-m", "/absent", "-p", "a"))
        texts = set()
        for seed in (0, MOST_32, 2**32, MOST_SEED):
            result = json.loads(run("-n", 20, "--temp", 2, "-s", seed, "--json")[0])
            self.assertEqual(result["seed"], seed)
            texts.add(tuple(result["ids"]))
        self.assertEqual(len(texts), 4)
        first, second = (json.loads(run("-n", 1, "-s", -1, "--json")[0])["seed"] for _ in range(2))
        self.assertNotEqual(first, second)

    def test_floats(self):
        absent = ("-m", "/absent", "-p", "a")
        for option in ("--temp", "--top-p", "--min-p", "--repeat-penalty", "--presence-penalty", "--frequency-penalty"):
            for value in NO_FLOATS:
                self.refused(option, value, option, "expected a number", arguments=absent)
        self.refused("--temp", "-1e-9", "at least 0", arguments=absent)
        for option in ("--top-p", "--min-p"):
            for value in ("-1e-9", "1.000001", "3e38"):
                self.refused(option, value, "from 0 to 1", arguments=absent)
            for value in ("0", "-0", "1", "1e-30"):
                run("-n", 1, f"{option}={value}")
        for value in ("-1e-9", "0", "1e-07", "1.1e+06"):
            self.refused("--repeat-penalty", value, "from 1e-06 to 1e+06", arguments=absent)
        for value in ("1e-6", "1e6"):
            run("-n", 1, f"--repeat-penalty={value}")
        for option in ("--presence-penalty", "--frequency-penalty"):
            for value in ("-1.1e+06", "1.1e+06"):
                self.refused(option, value, "-1e+06 and 1e+06")
            for value in ("-1e6", "1e6"):
                run("-n", 1, f"{option}={value}")
        greedy = run("-n", 8, "--temp", 0)[0]
        self.assertEqual(run("-n", 8, "--temp=-0")[0], greedy)
        self.assertEqual(run("-n", 8, "--temp=1e-30")[0], greedy)
        run("-n", 8, "--temp=3.4e38")

    def test_biases(self):
        for value in ("", "=", "5", "5=", "=1", "x=1", "5=x", "5=1x", "5=nan", "-1=1", "2147483648=1", "9" * 30 + "=1"):
            self.refused("--logit-bias", value, "ID=X")
        self.refused("--logit-bias", "5=inf")
        self.refused("--logit-bias", "266=1")
        self.refused("--logit-bias", "2147483647=1")
        self.assertEqual(run("-n", 2, "--temp", 0, "--logit-bias", "120+1000")[0], b"xx")
        greedy = json.loads(run("-n", 1, "--temp", 0, "--json")[0])["ids"][0]
        for bias in (f"{greedy}=-inf", f"{greedy}-1000"):
            self.assertNotEqual(json.loads(run("-n", 1, "--temp", 0, "--logit-bias", bias, "--json")[0])["ids"][0], greedy)

    def test_token_ids(self):
        for value in ("2147483648", "9" * 30, "1x", "1.5", "-1", "0x1"):
            error = salvo("eval", "-m", MODEL, f"--tokens=1,{value}", status=2)[1]
            self.assertIn("is not a token id", error)
        for value in ("266", "2147483647"):
            self.assertIn("vocabulary of 266", salvo("eval", "-m", MODEL, f"--tokens=1,{value}", status=2)[1])
        salvo("eval", "-m", MODEL, "--tokens=0,265")

    def test_sizes_of_files(self):
        out = os.path.join(folder.name, "out.gguf")
        for kind in ("Q4_0", "F32"):
            result = json.loads(salvo("quantize", MODEL, out, kind, "--force", "--json")[0])
            self.assertEqual(result["path"], out)
            self.assertEqual(result["type"], kind)
            self.assertEqual(result["size_before"], os.path.getsize(MODEL))
            self.assertEqual(result["size"], os.path.getsize(out))
            self.assertGreaterEqual(result["seconds"], 0)
            info = json.loads(salvo("info", "-m", out, "--json")[0])
            self.assertEqual(info["size"], os.path.getsize(out))


if __name__ == "__main__":
    subprocess.run([MAKE_WORDS, "llama-tiny", MODEL], check=True)
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
