"""`salvo perplexity` against its definition, with logits of llama.cpp. The argument is the program salvo.

With --second-half the definition is the one of llama.cpp's own tool: the text, after the token that begins texts, is cut into
windows, and an incomplete one is left out; each window's first token gives way to the one that begins texts, where the
model wants one; tokens of the second half are scored, but not the first of them.
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

try:
    import gguf
    import numpy as np
    import arch_cases
    import llama_cpp
except ImportError as missing:
    print("skipped:", missing)
    sys.exit(77)

SALVO = sys.argv[1]
FOLDER = tempfile.TemporaryDirectory()
TEXT = " ".join(f"{i} salvos tell the tale of {i * i} tall ships" for i in range(12)).encode()

LETTERS = [chr(code) for code in range(ord("a"), ord("z") + 1)]
WORDS = ["\u2581", "ta", "al", "tal", "\u2581t", "he", "\u2581the", "\u2581tal", "tall", "\u2581s", "of"]
PIECES = [("<unk>", gguf.TokenType.UNKNOWN), ("<s>", gguf.TokenType.CONTROL), ("</s>", gguf.TokenType.CONTROL)] + \
         [(f"<0x{byte:02X}>", gguf.TokenType.BYTE) for byte in range(256)] + \
         [(piece, gguf.TokenType.NORMAL) for piece in LETTERS + WORDS]


def make_model(name, wants_beginning):
    def add_tokenizer(writer):
        writer.add_tokenizer_model("llama")
        writer.add_token_list([piece for piece, _ in PIECES])
        writer.add_token_scores([float(i) for i in range(len(PIECES))])
        writer.add_token_types([kind for _, kind in PIECES])
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        writer.add_add_bos_token(wants_beginning)

    path = os.path.join(FOLDER.name, name + ".gguf")
    arch_cases.Model("llama", {"vocabulary": len(PIECES)}).write(path, add_tokenizer)
    return path


MODELS = [make_model("with_beginning", True), make_model("without", False)]


def salvo(path, text, *arguments, status=0):
    done = subprocess.run([SALVO, "perplexity", "-q", "-m", path, "--backend", "cpu", "--json", *map(str, arguments)],
                          input=text, capture_output=True)
    assert done.returncode == status, f"{arguments}: exit status {done.returncode}: {done.stderr.decode()}"
    return done.stderr.decode() if status else json.loads(done.stdout)


def losses(model, window, first):
    """-log of the probability of each token of a window after position `first`."""
    rows = model.logits(window, len(window))[first:-1]
    sums = np.log(np.sum(np.exp(rows - rows.max(-1, keepdims=True)), -1)) + rows.max(-1)
    return sums - rows[np.arange(len(rows)), window[first + 1:]]


class Perplexity(unittest.TestCase):
    def compare(self, result, windows):
        """`windows` has the losses of each."""
        every = np.concatenate(windows)
        error = every.std(ddof=1) / np.sqrt(len(every))
        self.assertEqual((result["windows"], result["tokens"]), (len(windows), len(every)))
        expected = {"nll": every.mean(), "nll_error": error, "perplexity": np.exp(every.mean()),
                    "perplexity_error": np.exp(every.mean()) * error}
        for key, value in expected.items():
            self.assertLess(abs(result[key] / value - 1), 2e-5, key)

    def test_second_halves_are_those_of_llama_cpp(self):
        for path in MODELS:
            with llama_cpp.Model(path) as model:
                ids, beginning = model.tokenize(TEXT), model.beginning()
                for size in (5, 33, 64):
                    windows = [ids[i:i + size] for i in range(0, len(ids) // size * size, size)]
                    self.assertGreater(len(ids) % size, 0)
                    if beginning is not None:
                        windows = [[beginning] + window[1:] for window in windows]
                    self.compare(salvo(path, TEXT, "-c", size, "--second-half"),
                                 [losses(model, window, size // 2) for window in windows])

    def test_every_token_but_the_first_of_a_window(self):
        for path in MODELS:
            with llama_cpp.Model(path) as model:
                ids = model.tokenize(TEXT)
                windows = [ids[i:i + 64] for i in range(0, len(ids), 64)]
                self.assertGreater(len(windows[-1]), 1)
                self.compare(salvo(path, TEXT, "-c", 64), [losses(model, window, 0) for window in windows])

    def test_a_text_shorter_than_a_window(self):
        for path in MODELS:
            with llama_cpp.Model(path) as model:
                ids = model.tokenize(TEXT)
                self.compare(salvo(path, TEXT, "-c", len(ids) + 100), [losses(model, ids, 0)])
                self.compare(salvo(path, TEXT, "-c", len(ids), "--second-half"),
                             [losses(model, ids, len(ids) // 2)])
                self.assertIn("less than one window", salvo(path, TEXT, "-c", len(ids) + 1, "--second-half", status=1))

    def test_one_scored_token_has_no_error(self):
        self.assertEqual(salvo(MODELS[0], b"ta", "-c", 3, "--second-half")["nll_error"], 0)
        self.assertIn("three tokens", salvo(MODELS[0], TEXT, "-c", 2, "--second-half", status=2))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
