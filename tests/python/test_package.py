"""The Python package over the shared library, compared with the command line."""

import asyncio
import contextlib
import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
from typing import Literal

import numpy
import pydantic

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
        names = {"Message": "message", "Messages": "messages", "ModelInfo": "model_info", "Sampler": "sampler", "Stops": "stops", "EmbedOptions": "embed_options",
                 "EngineOptions": "engine_options", "EngineInfo": "engine_info", "Event": "event", "Request": "request", "Text": "text",
                 "SchedulerOptions": "scheduler_options", "SchedulerCounters": "scheduler_counters"}
        members = [(own, f"salvo_{name}", member) for own, name in names.items() for member, _ in getattr(_library, own)._fields_]
        lines = [f'printf("%zu ", sizeof(struct salvo_{name}));' for name in names.values()]
        lines += [f'printf("%zu ", offsetof(struct {name}, {member}));' for _, name, member in members]
        source = "".join(f"#include <{header}>\n" for header in ("salvo/chat.h", "salvo/embed.h", "salvo/scheduler.h", "stdio.h"))
        program = os.path.join(folder.name, "sizes")
        include = os.path.join(os.environ.get("SALVO_SOURCE", "."), "include")
        subprocess.run(["cc", "-x", "c", "-I", include, "-o", program, "-"], input=f"{source}int main(void) {{ {' '.join(lines)} }}".encode(), check=True)
        numbers = list(map(int, subprocess.run([program], capture_output=True, check=True).stdout.split()))
        own = [ctypes.sizeof(getattr(_library, name)) for name in names] + [getattr(getattr(_library, own), member).offset for own, _, member in members]
        self.assertEqual(own, numbers)

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
        both = self.model.embed(["world", "hello world"], normalize=False)
        numpy.testing.assert_allclose(both[1] / numpy.linalg.norm(both[1]), embedding, atol=1e-6)
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
        threads = [threading.Thread(target=lambda: got.append(self.model.chat("hello", max_tokens=8, temperature=0))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(got, [expected] * 8)

        async def ask():
            with self.model.conversation() as chat:
                return "".join([piece async for piece in chat.astream("hello", max_tokens=8, temperature=0)])

        async def ask_many():
            return await asyncio.gather(ask(), ask(), *(self.model.achat("hello", max_tokens=8, temperature=0) for _ in range(20)))
        self.assertEqual(asyncio.run(ask_many()), [expected] * 22)

        async def leave():
            async for _ in self.model.astream("hello", temperature=0):
                break
            task = asyncio.create_task(self.model.agenerate("hello", temperature=0, max_tokens=400))
            await asyncio.sleep(0)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            return await self.model.agenerate("hello", max_tokens=4, temperature=0)
        self.assertEqual(asyncio.run(leave()), self.model.generate("hello", max_tokens=4, temperature=0))

    def test_requests_share_steps(self):
        prompts = ["hello", "hello world", "world"]
        alone = [self.model.generate(prompt, max_tokens=40, temperature=0) for prompt in prompts]
        before = self.model.counters()
        streams = []  # they are submitted while the scheduler stands still
        self.model._engine.with_session(lambda _: streams.extend(self.model.stream(prompt, max_tokens=40, temperature=0) for prompt in prompts))
        self.assertEqual(["".join(stream) for stream in streams], alone)
        after = self.model.counters()
        steps, tokens = (after[name] - before[name] for name in ("steps", "tokens"))
        self.assertEqual(tokens, sum(len(stream.tokens) for stream in streams))
        self.assertLess(steps, tokens * 2 // 3)

    def test_a_chat_has_one_answer_at_a_time(self):
        with self.model.conversation() as chat:
            stream = chat.stream("hello", max_tokens=4, temperature=0)
            with self.assertRaisesRegex(salvo_llm.SalvoError, "unfinished answer"):
                chat.ask("and?")
            text = "".join(stream)
            self.assertEqual([message["content"] for message in chat.messages], ["hello", text])
            again = chat.stream("more", max_tokens=4, temperature=0)
            del again  # dropped: the question is gone, and the chat goes on
            self.assertEqual(len(chat.messages), 2)
            chat.ask("more", max_tokens=4)

    def test_answers_fit_schemas(self):
        class Point(pydantic.BaseModel):
            x: int = pydantic.Field(ge=0, le=9)
            name: Literal["up", "down"]
        for seed in range(5):
            point = self.model.parse("hello", Point, seed=seed, temperature=1.5, max_tokens=200)
            self.assertIsInstance(point, Point)
        text = self.model.generate("hello", schema={"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 2}, max_tokens=200, seed=1)
        self.assertEqual([type(item) for item in json.loads(text)], [bool, bool])
        self.assertIn(self.model.chat("hello", regex="red|green", max_tokens=50), ("red", "green"))
        with self.assertRaisesRegex(salvo_llm.SalvoError, "cut .length."):
            self.model.parse("hello", Point, max_tokens=2)
        with self.assertRaisesRegex(salvo_llm.SalvoError, "uniqueItems"):
            self.model.generate("hello", schema={"not": {"uniqueItems": True}})
        for wrong in (lambda: self.model.parse("hello", dict), lambda: self.model.parse("hello", {"type": "object"}), lambda: self.model.generate("hello", schema=int)):
            with self.assertRaisesRegex(TypeError, "schema must be a Pydantic model"):
                wrong()
        with self.assertRaisesRegex(TypeError, "only one of"):
            self.model.generate("hello", regex="a", grammar="root ::= [a]")

    def test_log_probabilities_of_answers(self):
        stream = self.model.stream("hello", max_tokens=6, temperature=0, logprobs=3)
        list(stream)
        ids = self.model.tokenize("hello") + stream.tokens
        rows = self.model.log_probabilities(ids)[-len(stream.tokens) - 1:-1]
        numpy.testing.assert_allclose(stream.log_probabilities, [row[i] for row, i in zip(rows, stream.tokens)], atol=1e-4)
        top_ids, top = stream.top_log_probabilities
        self.assertEqual(top_ids.shape, (len(stream.tokens), 3))
        numpy.testing.assert_allclose(top, -numpy.sort(-rows, axis=1)[:, :3], atol=1e-4)
        self.assertEqual(list(top_ids[:, 0]), stream.tokens)

    def test_stop_strings(self):
        text = self.model.generate("hello", max_tokens=30, temperature=0)
        stop = re.search("[!-~]{2}", text[3:])[0]
        stream = self.model.stream("hello", max_tokens=30, temperature=0, stop=stop)
        self.assertEqual("".join(stream), text[:text.index(stop)])
        self.assertEqual(stream.finish, "stop")

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
                      lambda: self.model.logits([10**6]), lambda: self.model.embed(["hello", ""]), lambda: self.model.embed("hello " * 2000), lambda: salvo_llm.load(MODEL, backend="abacus")):
            with self.assertRaises(salvo_llm.SalvoError) as caught:
                wrong()
            self.assertTrue(str(caught.exception))
        self.assertEqual(len(self.model.embed(["hello"] * 3)), 3)
        with self.assertRaisesRegex(TypeError, "temprature"):
            self.model.generate("hello", temprature=0)

    def test_arguments_that_ctypes_would_cut(self):
        path = os.path.join(folder.name, "cut")
        with self.model.conversation() as chat:
            for kind, words, wrong in (
                    (ValueError, "max_tokens is -1", lambda: self.model.generate("a", max_tokens=-1)), (ValueError, "max_tokens is", lambda: self.model.generate("a", max_tokens=1 << 32)),
                    (ValueError, "seed is -1", lambda: self.model.generate("a", seed=-1)), (ValueError, "seed is", lambda: self.model.generate("a", seed=1 << 64)),
                    (ValueError, "top_k is", lambda: self.model.generate("a", top_k=-1)), (ValueError, "logprobs is", lambda: self.model.generate("a", logprobs=1 << 32)),
                    (TypeError, "top_k must be", lambda: self.model.generate("a", top_k=1.5)), (ValueError, "32 bits", lambda: self.model.logits([1 << 40])),
                    (ValueError, "32 bits", lambda: self.model.detokenize([-1 << 40])), (ValueError, "NUL", lambda: self.model.generate("a", stop="b\0c")),
                    (TypeError, "stop must be str", lambda: self.model.generate("a", stop=[b"x"])), (TypeError, "must be str, not bytes", lambda: self.model.generate(b"a")),
                    (ValueError, "NUL", lambda: chat.save(path + "\0x")), (ValueError, "NUL", lambda: chat.load(path + "\0x")),
                    (ValueError, "NUL", lambda: self.model.conversation(messages=[{"role": "user\0x", "content": "a"}])),
                    (TypeError, "message must be str", lambda: chat.ask(5)), (TypeError, "system must be str", lambda: self.model.chat("a", system=5)),
                    (ValueError, "parallel is", lambda: salvo_llm.load(MODEL, parallel=(1 << 32) + 1)), (ValueError, "context is", lambda: salvo_llm.load(MODEL, context=-1)),
                    (ValueError, "NUL", lambda: salvo_llm.load(MODEL, backend="cpu\0x")), (ValueError, "empty", lambda: salvo_llm.load("")),
                    (ValueError, "NUL", lambda: salvo_llm.load(MODEL + "\0/x"))):
                with self.subTest(words), self.assertRaisesRegex(kind, words):
                    wrong()
            self.assertEqual((chat.messages, os.path.exists(path)), ([], False))
        self.assertEqual(self.model.generate("hello", max_tokens=4, temperature=0, schema=None, regex=None, grammar=None),
                         self.model.generate("hello", max_tokens=numpy.int64(4), temperature=0, seed=numpy.uint64(2**64 - 1)))

    def test_a_stream_that_is_closed_while_another_thread_reads_it(self):
        streams, threads = [], []

        def read(stream):
            with contextlib.suppress(salvo_llm.SalvoError):  # "cancelled"
                list(stream)

        def read_and_close(_):  # while the scheduler stands still: no event comes
            stream = self.model.stream("hello", temperature=0)
            streams.append(stream)
            threads.append(threading.Thread(target=read, args=(stream,)))
            threads[0].start()
            while stream._reading.acquire(blocking=False):
                stream._reading.release()
            with self.assertRaisesRegex(ValueError, "another thread"):
                next(stream)
            threads.append(threading.Thread(target=stream.close))
            threads[1].start()
        self.model._engine.with_session(read_and_close)
        for thread in threads:
            thread.join(60)
            self.assertFalse(thread.is_alive())
        self.assertIn(streams[0].finish, ("cancelled", "context", "end"))

    def test_close_while_others_read(self):
        model = salvo_llm.load(MODEL, backend="cpu", threads=1, context=512)
        chat, left_open, closing = model.conversation(), [], threading.Thread(target=model.close)

        def submit_and_close(_):  # while the scheduler stands still
            left_open.extend([model.stream("hello", temperature=0), chat.stream("hello", temperature=0)])
            closing.start()
            while not model._engine._wanted_end:
                pass
        model._engine.with_session(submit_and_close)
        closing.join()
        for left in left_open:
            with self.assertRaisesRegex(salvo_llm.SalvoError, "closed"):
                list(left)
        for wrong in (lambda: chat.ask("x"), lambda: model.tokenize("x"), lambda: chat.messages, lambda: model.embed("x"), lambda: model.logits([1])):
            with self.assertRaisesRegex(salvo_llm.SalvoError, "closed"):
                wrong()
        chat.close()

    def test_the_interpreter_ends_with_requests_under_way(self):
        script = (f"import salvo_llm\nmodel = salvo_llm.load({MODEL!r}, backend='cpu', threads=1, context=512)\n"
                  "stream = model.stream('hello', temperature=0, regex='.*')\nprint(next(stream))")
        subprocess.run([sys.executable, "-c", script], check=True, stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": sys.path[0]}, timeout=60)

    def test_fork_is_an_error(self):
        with self.model.stream("hello", temperature=0) as stream:
            for use in (lambda: self.model.generate("hello"), lambda: list(stream), lambda: self.model.conversation()):
                reader, writer = os.pipe()
                child = os.fork()
                if child == 0:
                    try:
                        use()
                        os.write(writer, b"no error")
                    except salvo_llm.SalvoError as error:
                        os.write(writer, str(error).encode())
                    os._exit(0)
                os.waitpid(child, 0)
                self.assertIn(b"before fork()", os.read(reader, 1000))
                os.close(reader)
                os.close(writer)

    def test_a_loop_that_ends_with_an_unread_answer(self):
        script = (f"import asyncio, salvo_llm\nmodel = salvo_llm.load({MODEL!r}, backend='cpu', threads=1, context=512)\n"
                  "async def leave():\n    await model.astream('hello', temperature=0).__anext__()\n"
                  "for _ in range(20): asyncio.run(leave())")
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, env={**os.environ, "PYTHONPATH": sys.path[0]}, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, b""))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
