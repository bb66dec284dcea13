"""The Python package over the shared library, compared with the command line."""

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

import numpy

SALVO, LIBRARY, MAKE_WORDS = sys.argv[1:4]
os.environ["SALVO_LIBRARY"] = LIBRARY
sys.path.insert(0, os.path.join(os.environ.get("SALVO_SOURCE", "."), "python"))
import salvo_llm
from salvo_llm import _library

folder = tempfile.TemporaryDirectory()
MODEL = os.path.join(folder.name, "words.gguf")
subprocess.run([MAKE_WORDS, "llama-tiny", MODEL], check=True)


def salvo(*arguments):
    return subprocess.run([SALVO, *map(str, arguments)], capture_output=True, check=True, stdin=subprocess.DEVNULL).stdout


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = salvo_llm.load(MODEL, backend="cpu", threads=1, context=512)
        cls.addClassCleanup(cls.model.close)

    def test_structs_are_those_of_the_headers(self):
        names = {"Message": "salvo_message", "ModelInfo": "salvo_model_info", "Sampler": "salvo_sampler", "AnswerOptions": "salvo_answer_options",
                 "GenerateOptions": "salvo_generate_options", "EmbedOptions": "salvo_embed_options", "EngineOptions": "salvo_engine_options"}
        lines = [f'printf("%zu ", sizeof(struct {own}));' for own in names.values()]
        source = "#include <salvo/chat.h>\n#include <salvo/embed.h>\n#include <stdio.h>\nint main(void) { " + " ".join(lines)
        source += ' printf("%zu", offsetof(struct salvo_engine_options, isa)); }'
        program = os.path.join(folder.name, "sizes")
        include = os.path.join(os.environ.get("SALVO_SOURCE", "."), "include")
        subprocess.run(["cc", "-x", "c", "-I", include, "-o", program, "-"], input=source.encode(), check=True)
        *sizes, isa = map(int, subprocess.run([program], capture_output=True, check=True).stdout.split())
        own = [ctypes.sizeof(getattr(_library, name)) for name in names]
        self.assertEqual(own[:-1], sizes[:-1])
        self.assertEqual(_library.EngineOptions.isa.offset, isa)  # the package has only the first members

    def test_texts_are_those_of_the_command_line(self):
        ids = self.model.tokenize("hello world")
        self.assertEqual(salvo("tokenize", "-m", MODEL, "-p", "hello world", "--ids").split(), [str(i).encode() for i in ids])
        self.assertEqual(self.model.detokenize(ids), "hello world")
        text = self.model.generate("hello", max_tokens=12, temperature=0)
        self.assertEqual(text, salvo("run", "-m", MODEL, "-p", "hello", "-n", 12, "--temp", 0, "--backend", "cpu").decode(errors="replace").removesuffix("\n"))
        self.assertEqual("".join(self.model.stream("hello", max_tokens=12, temperature=0)), text)

    def test_logits_and_embeddings(self):
        ids = self.model.tokenize("hello world")
        logits = self.model.logits(ids)
        self.assertEqual((logits.shape, logits.dtype), ((len(ids), self.model.vocabulary), numpy.float32))
        name = os.path.join(folder.name, "logits.bin")
        salvo("eval", "-m", MODEL, "--tokens", ",".join(map(str, ids)), "--logits", name, "--backend", "cpu")
        numpy.testing.assert_array_equal(logits[-1], numpy.fromfile(name, numpy.float32)[-self.model.vocabulary:])
        numpy.testing.assert_allclose(numpy.exp(self.model.log_probabilities(ids)).sum(axis=1), 1, rtol=1e-9)
        embedding = self.model.embed("hello world")
        self.assertAlmostEqual(float(numpy.linalg.norm(embedding)), 1, places=5)
        self.assertEqual(embedding.shape, (self.model.width,))

    def test_chats(self):
        with self.model.conversation(system="be kind") as first, self.model.conversation(system="be kind") as second:
            answers = [first.ask(text, max_tokens=8, temperature=0) for text in ("hello", "and then?")]
            name = os.path.join(folder.name, "chat.state")
            first.save(name)
            with self.assertRaises(salvo_llm.SalvoError):
                first.save(name)
            self.assertEqual(second.ask("hello", max_tokens=8, temperature=0), answers[0])
            second.load(name)
            self.assertEqual(second.ask("more", max_tokens=8, temperature=0), first.ask("more", max_tokens=8, temperature=0))
        with self.assertRaisesRegex(salvo_llm.SalvoError, "closed"):
            first.ask("x")

    def test_threads_and_tasks(self):
        expected, got = self.model.chat("hello", max_tokens=8, temperature=0), []
        threads = [threading.Thread(target=lambda: got.append(self.model.chat("hello", max_tokens=8, temperature=0))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(got, [expected] * 4)

        async def ask():
            with self.model.conversation() as chat:
                return "".join([piece async for piece in chat.astream("hello", max_tokens=8, temperature=0)])

        async def ask_twice():
            return await asyncio.gather(ask(), ask())
        self.assertEqual(asyncio.run(ask_twice()), [expected] * 2)

    def test_an_iterator_may_be_left(self):
        expected = self.model.generate("hello", max_tokens=4, temperature=0)
        for _ in range(20):
            pieces = self.model.stream("hello", max_tokens=4, temperature=0)
            next(pieces)
            pieces.close()
            self.assertEqual(self.model.generate("hello", max_tokens=4, temperature=0), expected)
        with self.model.conversation() as chat:
            first = chat.ask("hello", max_tokens=4, temperature=0)
            pieces = chat.stream("more", temperature=0)
            next(pieces)
            pieces.close()
            chat.ask("again", max_tokens=4)
        self.assertEqual(self.model.chat("hello", max_tokens=4, temperature=0), first)
        with self.assertRaises(KeyboardInterrupt):
            for _ in self.model.stream("hello", temperature=0):
                signal.raise_signal(signal.SIGINT)
        self.assertEqual(self.model.generate("hello", max_tokens=4, temperature=0), expected)

    def test_errors(self):
        for wrong in (lambda: salvo_llm.load("no-such-model"), lambda: salvo_llm.load(__file__), lambda: self.model.generate("hello " * 2000),
                      lambda: self.model.logits([10**6]), lambda: salvo_llm.load(MODEL, backend="abacus")):
            with self.assertRaises(salvo_llm.SalvoError) as caught:
                wrong()
            self.assertTrue(str(caught.exception))
        with self.assertRaisesRegex(TypeError, "temprature"):
            self.model.generate("hello", temprature=0)

    def test_fork_is_an_error(self):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                self.model.generate("hello")
                os.write(writer, b"no error")
            except salvo_llm.SalvoError as error:
                os.write(writer, str(error).encode())
            os._exit(0)
        os.waitpid(child, 0)
        self.assertIn(b"before fork()", os.read(reader, 1000))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
