"""Ctrl-C at every line of the Python package: a trace function raises KeyboardInterrupt at the nth line, or return, of a call. Afterwards the model, its requests
and its chats must be as usable as before."""

import gc
import linecache
import os
import subprocess
import sys
import tempfile
import threading
import unittest

LIBRARY, MAKE_WORDS = sys.argv[1:3]
os.environ["SALVO_LIBRARY"] = LIBRARY
sys.path.insert(0, os.path.join(os.environ.get("SALVO_SOURCE", "."), "python"))
import numpy  # an import that is interrupted would not be the package's mistake
import salvo_llm

PACKAGE = os.path.dirname(salvo_llm.__file__)
folder = tempfile.TemporaryDirectory()
MODEL = os.path.join(folder.name, "words.gguf")
subprocess.run([MAKE_WORDS, "llama-tiny", MODEL], check=True)
OPTIONS = {"max_tokens": 2, "temperature": 0}
# From Python 3.12 on, lines of a comprehension are traced where no `with` around them would notice an error, and where no signal handler is called either.
EVENTS = ("line", "return") if sys.version_info < (3, 12) else ("return",)


def callers(frame):
    while frame:
        yield frame.f_code
        frame = frame.f_back


class Interrupt:
    """Raises KeyboardInterrupt at the nth line or return in the package, once."""

    def __init__(self, count):
        self.left, self.raised_at = count, None

    def _trace(self, frame, event, _argument):
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        # Python prints exceptions of finalizers and does not raise them. At `try:`, and between the end of a `with` and
        # its exit, which is traced as its first line, Python calls no signal handler.
        if any(caller.co_name == "__del__" for caller in callers(frame)):
            return None
        if linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip().startswith(("with ", "try:")):
            return self._trace
        if event in EVENTS:
            self.left -= 1
            if self.left == 0:
                self.raised_at = f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno} {frame.f_code.co_name}"
                raise KeyboardInterrupt
        return self._trace

    def __enter__(self):
        sys.settrace(self._trace)
        return self

    def __exit__(self, kind, *_):
        sys.settrace(None)
        return kind is KeyboardInterrupt


class Interrupts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = salvo_llm.load(MODEL, backend="cpu", threads=1, context=128)
        cls.addClassCleanup(cls.model.close)
        cls.expected = cls.model.generate("hello", **OPTIONS)
        threading.excepthook = lambda arguments: cls.failures.append(repr(arguments.exc_value))
        cls.failures = []

    def settled(self):
        """Waits until the scheduler has no request; then nothing of the interrupted call may be left."""
        gc.collect()
        self.assertFalse(self.model._engine._lock._is_owned())
        engine = self.model._engine
        while any(self.model.counters()[name] for name in ("running", "waiting")):
            engine.with_session(lambda _: None)  # comes after a step of the scheduler
        self.assertEqual(self.model.generate("hello", **OPTIONS), self.expected)
        engine.with_session(lambda _: None)  # behind all earlier calls
        self.assertEqual((self.failures, len(engine._works)), ([], 0))

    def interrupted_everywhere(self, call, check=lambda: None):
        count = 0
        while True:
            count += 1
            with Interrupt(count) as interrupt:
                call()
            if interrupt.raised_at is None:
                break
            with self.subTest(interrupt.raised_at):
                check()
                self.settled()
        self.assertGreater(count, 10)

    def test_texts(self):
        self.interrupted_everywhere(lambda: self.model.generate("hello", stop=["xyz"], **OPTIONS))

    def test_grammars(self):
        self.interrupted_everywhere(lambda: self.model.generate("hello", regex="[a-z ]{1,4}", **OPTIONS))

    def test_streams_that_are_closed(self):
        def call():
            with self.model.stream("hello", temperature=0) as stream:
                next(stream)
        self.interrupted_everywhere(call)

    def test_numbers(self):
        def call():
            self.assertEqual(self.model.logits([1, 2]).shape[0], 2)
            self.assertEqual(len(self.model.embed(["hello", "world"])), 2)
        self.interrupted_everywhere(call)

    def test_chats(self):
        chats = []

        def call():
            chats.append(self.model.conversation(system="be kind"))
            chats[0].ask("hello", **OPTIONS)

        def check():
            for chat in chats:
                roles = [message["role"] for message in chat.messages]
                self.assertIn(roles, (["system"], ["system", "user", "assistant"]))
                chat.ask("more", **OPTIONS)  # no answer is under way
                self.assertEqual([message["role"] for message in chat.messages], roles + ["user", "assistant"])
                chat.close()
            chats.clear()
            gc.collect()
            self.assertEqual(len(self.model._engine.chats), 0)
        self.interrupted_everywhere(call, check)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
