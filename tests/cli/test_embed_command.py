"""`salvo embed`: where texts come from, forms of the output, and mistakes."""

import json
import os
import struct
import unittest

from commands import MODEL, PLAIN, RECURRENT, path, salvo
from model_entries import with_entries


def vectors(*arguments, **more):
    return [[float(word) for word in line.split()] for line in salvo("embed", *arguments, **more)[0].decode().splitlines()]


def length(values):
    return sum(value * value for value in values) ** 0.5


class Embed(unittest.TestCase):
    def test_texts(self):
        for model in (MODEL, RECURRENT):
            both = vectors("hello", "a b\nc", model=model)
            self.assertEqual(len(both), 2)
            self.assertNotEqual(*both)
            self.assertEqual(vectors("a b\nc", "hello", "--parallel", "1", model=model), both[::-1])
            with open(path("texts"), "w", encoding="utf8") as file:
                file.write("hello|a b\nc|")
            for source in ({"stdin": b"hello|a b\nc|"}, {"stdin": b"hello|a b\nc"}, ("-f", path("texts")), ("-p", "hello|a b\nc")):
                flags, more = ((), source) if isinstance(source, dict) else (source, {})
                self.assertEqual(vectors("--embd-separator", "|", *flags, model=model, **more), both)
            self.assertEqual(vectors("--embd-separator", "<#>", model=model, stdin=b"hello<#>a b\nc<#>"), both)
            self.assertEqual(vectors(model=model, stdin=b"hello\nhello\n"), [both[0]] * 2)
            self.assertEqual(vectors("--embd-separator", "", model=model, stdin=b"a b\nc"), both[1:])
            self.assertEqual(vectors("hello", *["x"] * 40, model=model)[0], both[0])

    def test_tokens(self):
        ids = json.loads(salvo("tokenize", "-p", "hello", "--json")[0])["ids"]
        self.assertEqual(vectors("--tokens", ",".join(map(str, ids))), vectors("hello"))
        self.assertEqual(len(vectors("--tokens", "1,2,3", model=PLAIN)), 1)

    def test_output(self):
        plain = vectors("hello", "b")
        for flags in (["--json"], ["--embd-output-format", "json"]):
            answer = json.loads(salvo("embed", "hello", "b", *flags)[0])
            self.assertEqual([(item["index"], len(item["embedding"])) for item in answer["data"]], [(0, len(plain[0])), (1, len(plain[0]))])
            for got, expected in zip(answer["data"], plain):
                self.assertLess(max(abs(a - b) for a, b in zip(got["embedding"], expected)), 1e-7)
            self.assertEqual(answer["usage"]["prompt_tokens"], answer["usage"]["total_tokens"])
        rows = json.loads(salvo("embed", "hello", "b", "--embd-output-format", "array")[0])
        self.assertEqual([len(row) for row in rows], [len(plain[0])] * 2)

    def test_poolings_and_norms(self):
        whole = vectors("hello world")[0]
        self.assertAlmostEqual(length(whole), 1, 5)
        self.assertEqual(vectors("hello world", "--pooling", "mean")[0], whole)
        self.assertNotEqual(vectors("hello world", "--pooling", "last")[0], whole)
        raw = vectors("hello world", "--no-normalize")[0]
        self.assertEqual(vectors("hello world", "--embd-normalize", "-1")[0], raw)
        self.assertEqual(vectors("hello world", "--embd-normalize", "2")[0], whole)
        self.assertLess(max(abs(a / length(raw) - b) for a, b in zip(raw, whole)), 1e-6)
        self.assertAlmostEqual(sum(map(abs, vectors("hello world", "--embd-normalize", "1")[0])), 1, 5)

    def test_pooling_of_the_model(self):
        with open(MODEL, "rb") as source:
            data = source.read()
        for number, flags in ((1, ["--pooling", "mean"]), (3, ["--pooling", "last"]), (0, ["--pooling", "mean"])):
            with open(path("pooling.gguf"), "wb") as target:
                target.write(with_entries(data, [(b"llama.pooling_type", 4, struct.pack("<I", number))]))
            self.assertEqual(vectors("hello", model=path("pooling.gguf")), vectors("hello", *flags))
        with open(path("pooling.gguf"), "wb") as target:
            target.write(with_entries(data, [(b"llama.pooling_type", 4, struct.pack("<I", 2))]))
        self.assertIn("llama.pooling_type: 2", salvo("embed", "a", model=path("pooling.gguf"), status=1)[1])
        self.assertEqual(len(vectors("a", "--pooling", "last", model=path("pooling.gguf"))), 1)

    def test_mistakes(self):
        for arguments, words, more in [
                ([""], "text 1 is empty", {}), (["a", ""], "text 2 is empty", {}), ([], "text 1 is empty", {"stdin": b""}),
                ([], "text 2 is empty", {"stdin": b"a\n\nb\n"}), (["--pooling", "cls", "a"], "expected mean or last", {}),
                (["--embd-normalize", "0", "a"], "is not supported", {}), (["--embd-normalize", "-2", "a"], "embd-normalize", {}),
                (["--embd-output-format", "raw", "a"], "expected array or json", {}), (["-p", "a", "b"], "cannot be combined", {}),
                (["--tokens", "1", "b"], "cannot be combined", {}), (["--parallel", "0", "a"], "parallel", {}),
                (["--parallel", "5000", "a"], "at most 1024", {}), (["--no-normalize", "--embd-normalize", "1", "a"], "combined", {})]:
            self.assertIn(words, salvo("embed", *arguments, status=2, **more)[1])
        for arguments in ([MODEL], [MODEL, "hello"]):  # not two texts for the default model
            self.assertIn("give the model with -m", salvo("embed", *arguments, model=None, status=2)[1])
        self.assertEqual(vectors(MODEL), vectors("-p", MODEL))
        for arguments, words in [(["-c", "8", "x" * 100], "tokens, the context 8"), (["-c", "8", "a", "x" * 100], "text 2: the text has"),
                                 (["-f", os.path.join(path("none"), "none")], "No such file")]:
            self.assertIn(words, salvo("embed", *arguments, status=1)[1])
        self.assertIn("outside the vocabulary", salvo("embed", "--tokens", "999999", status=1)[1])
        self.assertIn("no vocabulary", salvo("embed", "a", model=PLAIN, status=1)[1])


if __name__ == "__main__":
    unittest.main(argv=[__file__, *os.sys.argv[4:]])
