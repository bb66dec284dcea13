"""Embeddings over HTTP: forms of the request and the answer, mistakes, many texts, clients that go away."""

import base64
import os
import struct
import subprocess
import sys
import threading
import unittest

from serve_process import SALVO, STORIES, Server, ServerTest

WIDTH = 64
CONTEXT = 512


def length(values):
    return sum(value * value for value in values) ** 0.5


def decode(text):
    data = base64.b64decode(text, validate=True)
    return list(struct.unpack(f"<{len(data) // 4}f", data))


def near(got, expected, limit=1e-6):
    return len(got) == len(expected) and all(abs(a - b) <= limit for a, b in zip(got, expected))


class Embeddings(ServerTest):
    flags = ("--parallel", 3, "--metrics", "-t", 1)

    def embed(self, value, path="/v1/embeddings", **more):
        answer = self.server.post(path, {"input": value, **more})
        self.assertEqual(answer.status, 200, answer.body)
        return answer.json

    def vectors(self, value, **more):
        return [item["embedding"] for item in self.embed(value, **more)["data"]]

    def ids_of(self, text):
        return self.server.post("/tokenize", {"content": text, "add_special": True}).json["tokens"]

    def test_answer_of_openai(self):
        answer = self.embed("Once upon a time", model="any", user="somebody", encoding_format="float")
        self.assertEqual((answer["object"], answer["model"]), ("list", "stories260K-f32"))
        item = answer["data"][0]
        self.assertEqual((item["object"], item["index"], len(item["embedding"])), ("embedding", 0, WIDTH))
        self.assertAlmostEqual(length(item["embedding"]), 1, 5)
        count = len(self.ids_of("Once upon a time"))
        self.assertEqual(answer["usage"], {"prompt_tokens": count, "total_tokens": count})
        self.assertEqual(self.embed("Once upon a time", path="/embeddings"), answer)

    def test_the_command_gives_the_same(self):
        texts = ["Once upon a time", "Lily", "ü€😀 <s>"]
        out = subprocess.run([SALVO, "embed", "-q", "-m", STORIES, "--backend", "cpu", *texts], check=True, capture_output=True)
        expected = [[float(word) for word in line.split()] for line in out.stdout.decode().splitlines()]
        for got, wanted in zip(self.vectors(texts), expected, strict=True):
            self.assertTrue(near(got, wanted))

    def test_forms_of_a_text(self):
        text, other = "Tom had a dog", "It was big"
        first, second = self.vectors(text)[0], self.vectors(other)[0]
        ids, other_ids = self.ids_of(text), self.ids_of(other)
        self.assertEqual(self.vectors([text]), [first])
        self.assertEqual(self.vectors(ids), [first])
        self.assertEqual(self.vectors([ids]), [first])
        self.assertEqual(self.vectors([ids, other_ids]), [first, second])
        self.assertEqual(self.vectors([text, other_ids, text]), [first, second, first])
        self.assertTrue(near(decode(self.vectors(text, encoding_format="base64")[0]), first, 1e-7))

    def test_dimensions(self):
        whole = self.vectors("Tom")[0]
        for count in (1, 2, 3, 63, 64):
            cut = whole[:count]
            self.assertTrue(near(self.vectors("Tom", dimensions=count)[0], [value / length(cut) for value in cut]))
            self.assertTrue(near(decode(self.vectors("Tom", dimensions=count, encoding_format="base64")[0]),
                                 [value / length(cut) for value in cut]))
        raw = self.vectors("Tom", embd_normalize=-1)[0]
        self.assertTrue(near([value / length(raw) for value in raw], whole))
        self.assertAlmostEqual(sum(map(abs, self.vectors("Tom", embd_normalize=1)[0])), 1, 5)

    def test_answer_of_llama_cpp(self):
        whole = self.vectors(["Tom", "Lily"])
        for path in ("/embedding", "/embeddings"):
            answer = self.server.post(path, {"content": ["Tom", "Lily"]})
            self.assertEqual(answer.json, [{"index": i, "embedding": [whole[i]]} for i in range(2)])
        self.assertEqual(self.server.post("/embedding", {"input": "Tom"}).json, [{"index": 0, "embedding": [whole[0]]}])

    def test_mistakes(self):
        too_long = [5] * (CONTEXT + 1)
        for body, param, words in [
                ({}, "input", "expected a string"), ({"input": None}, "input", "expected a string"),
                ({"input": ""}, "input", "text 1 is empty"), ({"input": []}, "input", "expected a string"),
                ({"input": ["a", ""]}, "input", "text 2 is empty"), ({"input": [[]]}, "input", "text 1 is empty"),
                ({"input": [[1], []]}, "input", "text 2 is empty"), ({"input": {}}, "input", "expected"),
                ({"input": 5}, "input", "expected"), ({"input": [1.5]}, "input", "expected"),
                ({"input": [1, "a"]}, "input", "expected"), ({"input": [True]}, "input", "expected"),
                ({"input": [[1, [2]]]}, "input", "expected"), ({"input": [{"image": ""}]}, "input", "expected"),
                ({"input": [512]}, "input", "512"), ({"input": [[0, -1]]}, "input", "-1"),
                ({"input": [2 ** 40]}, "input", "vocabulary of 512"),
                ({"input": ["a"] * 2049}, "input", "2049 texts; expected at most 2048"),
                ({"input": "a", "encoding_format": "int8"}, "encoding_format", "base64"),
                ({"input": "a", "encoding_format": 3}, "encoding_format", "string"),
                ({"input": "a", "dimensions": 0}, "dimensions", ""), ({"input": "a", "dimensions": 65}, "dimensions", "64"),
                ({"input": "a", "dimensions": "8"}, "dimensions", ""), ({"input": "a", "embd_normalize": 0}, "embd_normalize", ""),
                ({"input": "a", "embd_normalize": -1, "dimensions": 8}, "dimensions", "embd_normalize"),
                ({"input": "a", "model": 4}, "model", "string"), (["a"], None, "JSON object"),
                ({"input": too_long}, "input", f"text 1 of {CONTEXT + 1} tokens exceeds the available context size of {CONTEXT}"),
                ({"input": ["a", too_long]}, "input", "text 2 of")]:
            answer = self.server.post("/v1/embeddings", body)
            error = answer.json["error"]
            self.assertEqual((answer.status, error["param"]), (400, param), (body, error))
            self.assertIn(words, error["message"])
        error = self.server.post("/v1/embeddings", {"input": too_long}).json["error"]
        self.assertEqual((error["type"], error["n_prompt_tokens"], error["n_ctx"]), ("exceed_context_size_error", 513, 512))
        self.assertEqual(self.server.post("/v1/embeddings", b"{").status, 400)
        self.assertEqual(self.server.get("/v1/embeddings").status, 405)

    def test_longest(self):
        self.assertEqual(len(self.vectors([7] * CONTEXT)[0]), WIDTH)

    def test_many_texts_beside_answers(self):
        """More texts than the queue has places, and the answer that a request gets alone."""
        body = {"prompt": "Once", "max_tokens": 40, "temperature": 0}
        alone = self.server.post("/v1/completions", body).json["choices"][0]["text"]
        texts = [f"{i} dogs" for i in range(600)]
        few = self.vectors(texts[::100])
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(self.server.post("/v1/completions", body).json)) for _ in range(3)]
        for thread in threads:
            thread.start()
        self.assertEqual(self.vectors(texts)[::100], few)
        for thread in threads:
            thread.join()
        self.assertEqual([answer["choices"][0]["text"] for answer in answers], [alone] * 3)

    def test_clients_that_go_away(self):
        for _ in range(5):
            connection = self.server.connect()
            connection.request("POST", "/v1/embeddings", '{"input": [' + ",".join(['"a dog and a cat"'] * 2000) + "]}",
                               {"Content-Type": "application/json"})
            connection.close()
        self.server.wait_for(lambda: self.server.metric("llamacpp:requests_processing") == 0 and
                             self.server.metric("llamacpp:requests_deferred") == 0)
        self.assertEqual(len(self.vectors("a")), 1)


class LlamaCpp(unittest.TestCase):
    def test_values(self):
        """Embeddings of llama.cpp, in the library of the package xllamacpp."""
        sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "models"))
        try:
            import llama_cpp
        except ImportError as missing:
            self.skipTest(f"no comparison with llama.cpp: {missing}")
        server = Server("-t", 1)
        ids = server.post("/tokenize", {"content": "Once upon a time there was a big dog.", "add_special": True}).json["tokens"]
        got = server.post("/v1/embeddings", {"input": ids}).json["data"][0]["embedding"]
        server.stop()
        with llama_cpp.Model(STORIES) as model:
            expected = model.embedding(ids, CONTEXT, llama_cpp.POOLING_MEAN)
        expected = [value / length(expected) for value in expected]
        self.assertLess(length([a - b for a, b in zip(got, expected)]), 1e-4)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
