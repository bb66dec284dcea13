"""Answers piece by piece, as iterators for threads and for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes as c
import os
import queue
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from . import _library as lib
from ._constraint import Constraint
from ._engine import End, Engine, Token, Work

if TYPE_CHECKING:
    import numpy


class Reader:
    """The base of both kinds of iterators: tokens become text, up to a stop string. `deliver` has no reference to the iterator, so that one that is
    dropped is noticed."""

    def __init__(self, deliver: Callable[[Token | End], None], engine: Engine, prompt: Sequence[int], sampler: lib.Sampler, *, max_tokens: int, stop: Sequence[str], stop_ids: Sequence[int],
                 logprobs: int | None, constraint: Constraint | None, done: Callable[[Reader], None] | None):
        self._engine, self._constraint, self._done = engine, constraint, done
        self._filter = c.c_void_p()
        self._has_stopped = False
        self.prompt, self.text = list(prompt), ""
        #: Token ids of the answer, and why it ended: "end", "stop", "length", "context", "callback" (the grammar is complete), "cancelled"; "" before.
        self.tokens: list[int] = []
        self.finish = ""
        #: Tokens of the prompt, and how many of them an earlier request had computed.
        self.prompt_tokens, self.cached_tokens = len(self.prompt), 0
        self._logprobs: list[float] = []
        self._tops: list[tuple[list[int], list[float]]] = []
        self._work = Work(engine, deliver, constraint.close if constraint else None)
        try:
            self._submit(sampler, max_tokens, stop, stop_ids, logprobs)
        except BaseException:
            self._work.give_up()
            self._close_filter()
            raise

    def _submit(self, sampler: lib.Sampler, max_tokens: int, stop: Sequence[str], stop_ids: Sequence[int], logprobs: int | None) -> None:
        strings = (c.c_char_p * len(stop))(*(lib.without_nul("stop", lib.text_bytes("stop", text)) for text in stop))
        lib.call("salvo_text_filter_open", strings, len(stop), c.byref(self._filter))
        prompt = self.prompt
        request = lib.sized(lib.Request, ids=lib.id_array(prompt), count=len(prompt), sampler=c.pointer(sampler), stop_ids=lib.id_array(stop_ids),
                            stop_id_count=len(stop_ids), max_tokens=lib.unsigned("max_tokens", max_tokens), logprobs=int(logprobs is not None),
                            top_count=lib.unsigned("logprobs", logprobs or 0))
        if self._constraint:
            request.mask = self._constraint.function
        self._engine.submit(self._work, request)

    @property
    def log_probabilities(self) -> numpy.ndarray:
        """Log-probabilities of the tokens so far, float32 [tokens]; with `logprobs`. They are the model's, before filters, penalties and grammars."""
        import numpy
        return numpy.array(self._logprobs, numpy.float32)

    @property
    def top_log_probabilities(self) -> tuple[numpy.ndarray, numpy.ndarray]:
        """The most likely ids, int32 [tokens, logprobs], and their log-probabilities."""
        import numpy
        width = len(self._tops[0][0]) if self._tops else 0
        shape = (len(self._tops), width)
        return (numpy.array([ids for ids, _ in self._tops], numpy.int32).reshape(shape),
                numpy.array([values for _, values in self._tops], numpy.float32).reshape(shape))

    def _take(self, event: Token | End) -> str:
        """The text that an event completes; an error of the request is raised."""
        ready = lib.Text()
        if isinstance(event, Token):
            if self._has_stopped:
                return ""  # computed before the scheduler saw the cancel
            self.tokens.append(event.id)
            self._logprobs.append(event.logprob)
            self._tops.append((event.top_ids, event.top_logprobs))
            stopped = c.c_bool()
            lib.call("salvo_text_filter_push", self._filter, event.data, len(event.data), c.byref(ready), c.byref(stopped))
            if stopped.value:
                self._has_stopped = True
                self._work.cancel()
            return self._add(ready)
        finish = lib.FINISH_STOP if self._has_stopped else event.finish
        is_cancelled = event.status == lib.ERROR_CANCELLED and not self._has_stopped
        self.finish = "cancelled" if is_cancelled else lib.library.salvo_finish_name(finish).decode()
        self.cached_tokens = event.cached_tokens
        text = ""
        if not self._has_stopped:
            lib.call("salvo_text_filter_finish", self._filter, c.byref(ready))
            text = self._add(ready)
        failed = event.status and not self._has_stopped
        message = event.message or (self._constraint.message if self._constraint else "")
        self._finish()
        if failed or (self._constraint and self._constraint.message):
            raise lib.SalvoError(message or "cancelled", event.status)
        return text

    def _add(self, ready: lib.Text) -> str:
        text = ready.bytes().decode(errors="replace")
        self.text += text
        return text

    def _finish(self) -> None:
        self._close_filter()
        if self._done:
            self._done(self)
            self._done = None

    def _close_filter(self) -> None:
        closed, self._filter = self._filter, c.c_void_p()  # in this order: Ctrl-C may come between, and nothing is freed twice
        lib.library.salvo_text_filter_close(closed)

    def __del__(self) -> None:
        # No waiting here: a garbage collection may run in the thread that reads the events.
        if getattr(self, "_work", None) and self._engine.process == os.getpid():
            if not self.finish:
                self._work.cancel()
                self.finish = "cancelled"
            self._finish()


class Stream(Reader, Iterator[str]):
    """An answer as an iterator over pieces of text. It is computed from the call on that made it, together with others. Closing it, leaving its
    `with`, dropping it, or Ctrl-C while it waits ends the answer."""

    def __init__(self, *arguments: Any, **options: Any):
        self._events: queue.SimpleQueue[Token | End] = queue.SimpleQueue()
        self._reading = threading.RLock()
        super().__init__(self._events.put, *arguments, **options)

    def __next__(self) -> str:
        lib.check_process()
        if not self._reading.acquire(blocking=False):
            raise ValueError("another thread is reading the stream")
        try:
            while not self.finish:
                if text := self._take(self._events.get()):
                    return text
        except BaseException:
            self.close()
            raise
        finally:
            self._reading.release()
        raise StopIteration

    def close(self) -> None:
        """Ends the answer, if it has not ended; also while another thread reads it."""
        if self.finish and not self._done:
            return
        self._engine.check_open()
        self._work.cancel()
        with self._reading:
            while not self.finish:
                # Ctrl-C may have come between the queue and `_take`.
                if isinstance(event := self._work.last or self._events.get(), End):
                    with contextlib.suppress(lib.SalvoError):
                        self._take(event)
            self._finish()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncStream(Reader, AsyncIterator[str]):
    """The same for asyncio; made and read in one event loop."""

    def __init__(self, *arguments: Any, **options: Any):
        self._events: asyncio.Queue[Token | End] = asyncio.Queue()
        events = self._events  # no reference to the iterator
        loop = asyncio.get_running_loop()

        def deliver(event: Token | End) -> None:
            with contextlib.suppress(RuntimeError):  # the loop was closed: nobody reads any more
                loop.call_soon_threadsafe(events.put_nowait, event)

        super().__init__(deliver, *arguments, **options)

    async def __anext__(self) -> str:
        lib.check_process()
        try:
            while not self.finish:
                if text := self._take(await self._events.get()):
                    return text
        except BaseException:
            await self.aclose()
            raise
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Ends the answer, without waiting: the event loop may be about to close."""
        if self.finish and not self._done:
            return
        self._engine.check_open()
        self._work.cancel()
        self.finish = self.finish or "cancelled"
        self._finish()


async def pieces(stream: AsyncStream) -> AsyncIterator[str]:
    """The pieces of a stream that ends when the iteration is left."""
    try:
        async for piece in stream:
            yield piece
    finally:
        await stream.aclose()


async def whole(stream: AsyncStream) -> str:
    """The whole text of a stream."""
    return "".join([piece async for piece in pieces(stream)])
