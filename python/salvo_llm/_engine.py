"""A model on a device with the library's scheduler. Requests come from any thread and are computed together; one thread reads their
events and hands each to the reader of its request."""

from __future__ import annotations

import contextlib
import ctypes as c
import itertools
import os
import queue
import select
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from . import _library as lib

_QUEUE = 1_000_000  # requests that may wait; each needs memory for its prompt alone


class Token(NamedTuple):
    id: int
    data: bytes
    logprob: float
    top_ids: list[int]
    top_logprobs: list[float]


class End(NamedTuple):
    finish: int
    status: int
    message: str
    prompt_tokens: int
    cached_tokens: int
    embedding: bytes | None


class Work:
    """A request that was handed to the scheduler. `deliver` is called for each event on the engine's thread."""

    def __init__(self, engine: Engine, deliver: Callable[[Token | End], None], release: Callable[[], None] | None):
        self.engine, self.deliver, self.release = engine, deliver, release
        self.handle, self.has_ended = 0, False

    def end(self, event: End) -> None:
        self.has_ended = True
        if self.release:
            self.release()
        self.deliver(event)

    def cancel(self) -> None:
        self.engine.cancel(self)


class Engine:
    def __init__(self, path: str, options: lib.EngineOptions):
        lib.check_process(opens=True)
        self.process = os.getpid()
        self.model, self.engine, self.scheduler = c.c_void_p(), c.c_void_p(), c.c_void_p()
        try:
            lib.call("salvo_model_open", lib.path_bytes(path), c.byref(self.model))
            lib.call("salvo_engine_open", self.model, c.byref(options), c.byref(self.engine))
            scheduler = lib.sized(lib.SchedulerOptions, queue=_QUEUE, poll=1)
            lib.call("salvo_scheduler_open", self.engine, c.byref(scheduler), c.byref(self.scheduler))
        except BaseException:
            self._release()
            raise
        self.context: int = lib.library.salvo_engine_info(self.engine).contents.context
        self._lock = threading.RLock()  # a garbage collection within it may cancel a request
        self._keys = itertools.count(1)
        self._works: dict[int, Work] = {}
        self._calls: dict[int, object] = {}  # functions that the scheduler has still to call
        self._bytes: dict[int, bytes] = {}
        self.chats: set[int] = set()  # handles that are closed with the model, at the latest
        self._wanted_end, self._closed = False, False
        self._wake_out, self._wake_in = os.pipe()
        self._thread = threading.Thread(target=self._read_events, name="salvo-events", daemon=True)
        self._thread.start()

    def check_open(self) -> None:
        lib.check_process()
        if self._wanted_end:
            raise lib.SalvoError("the model is closed")

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """Keeps the model open meanwhile; an error if it is closed. The thread that reads events never waits for this."""
        lib.check_process()
        with self._lock:
            self.check_open()
            yield

    def submit(self, request: lib.Request, deliver: Callable[[Token | End], None], release: Callable[[], None] | None = None) -> Work:
        work, handle = Work(self, deliver, release), c.c_uint64()
        with self.opened():
            key = next(self._keys)
            request.user, self._works[key] = key, work
            try:
                lib.call("salvo_scheduler_submit", self.scheduler, c.byref(request), c.byref(handle))
            except BaseException:
                del self._works[key]
                raise
            work.handle = handle.value
        return work

    def cancel(self, work: Work) -> None:
        if self.process != os.getpid():
            return
        with self._lock:
            if not work.has_ended and not self._closed:
                lib.library.salvo_scheduler_cancel(self.scheduler, work.handle)

    def close_chat(self, handle: int) -> None:
        with self._lock:
            if not self._closed and handle in self.chats:
                self.chats.remove(handle)
                lib.library.salvo_chat_close(handle)

    def with_session(self, function: Callable[[c.c_void_p], None]) -> None:
        """Calls the function with an empty session on the scheduler's thread, while requests stand still. Ctrl-C cancels it."""
        results: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        lock = threading.Lock()
        state: dict[str, Any] = {"session": None, "wanted": True, "sent": False}

        def run(_user: Any, session: Any) -> None:
            error: BaseException | None = None
            try:
                with lock:
                    if not state["wanted"]:
                        return
                    state["session"] = session
                if not session:
                    raise lib.SalvoError("the model is closed, or its device has failed")
                function(c.c_void_p(session))
            except BaseException as caught:  # raised again in the caller's thread
                error = caught
            finally:
                with lock:
                    state["session"] = None
                    if state["sent"]:
                        _settle(session)
                results.put(error)
                self._calls.pop(key, None)

        wrapped = lib.SessionFunction(run)
        with self.opened():
            key = next(self._keys)
            self._calls[key] = wrapped
            try:
                lib.call("salvo_scheduler_call", self.scheduler, wrapped, None)
            except BaseException:
                del self._calls[key]
                raise
        try:
            error = results.get()
        except BaseException:
            with lock:
                state["wanted"] = False
                if runs := bool(state["session"]):
                    lib.library.salvo_session_cancel(state["session"])
                    state["sent"] = True
            if runs:
                results.get()
            raise
        if error:
            raise error

    def _token_bytes(self, token: int) -> bytes:
        """The bytes of a token in an answer; control tokens have none."""
        found = self._bytes.get(token)
        if found is None:
            text, size = c.c_void_p(), c.c_size_t()
            # Detokenizing omits control tokens; it may also omit a blank at the beginning, hence the second copy.
            lib.call("salvo_detokenize", self.model, lib.id_array([token, token]), 2, False, c.byref(text), c.byref(size))
            found = lib.taken_text(text, size)
            if found:
                lib.call("salvo_token_text", self.model, token, c.byref(text), c.byref(size))
                found = lib.taken_text(text, size)
            self._bytes[token] = found
        return found

    def close(self) -> None:
        """Ends all requests and frees the model. In a child made by fork the model belongs to the parent."""
        if self.process != os.getpid():
            return
        with self._lock:
            if not self._wanted_end:
                self._wanted_end = True
                os.write(self._wake_in, b"x")
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _read_events(self) -> None:
        poll = select.poll()
        poll.register(lib.library.salvo_scheduler_descriptor(self.scheduler), select.POLLIN)
        poll.register(self._wake_out, select.POLLIN)
        event = lib.sized(lib.Event)
        while not self._wanted_end:
            poll.poll()
            while not self._wanted_end and lib.library.salvo_scheduler_poll(self.scheduler, c.byref(event)):
                self._hand_over(event)
        with self._lock:  # nobody uses the model any more
            self._closed = True
        lib.library.salvo_scheduler_close(self.scheduler)
        self.scheduler = c.c_void_p()
        for work in self._works.values():
            work.end(End(0, lib.ERROR_CANCELLED, "the model was closed", 0, 0, None))
        self._works.clear()
        for chat in self.chats:
            lib.library.salvo_chat_close(chat)
        self._release()
        os.close(self._wake_in)
        os.close(self._wake_out)

    def _hand_over(self, event: lib.Event) -> None:
        if event.kind == lib.EVENT_TOKEN:
            count = event.top_count
            self._works[event.user].deliver(Token(event.id, self._token_bytes(event.id), event.logprob, event.top_ids[:count], event.top_logprobs[:count]))
        elif event.kind == lib.EVENT_END:
            embedding = c.string_at(event.embedding, event.width * 4) if event.embedding else None
            message = (event.message or b"").decode(errors="replace")
            self._works.pop(event.user).end(End(event.finish, event.status, message, event.prompt_tokens, event.cached_tokens, embedding))

    def _release(self) -> None:
        lib.library.salvo_engine_close(self.engine)
        lib.library.salvo_model_close(self.model)
        self.engine, self.model = c.c_void_p(), c.c_void_p()


def _settle(session: int) -> None:
    """A cancellation that came too late would stop the next call: this is that call, of one token that is removed again."""
    lib.library.salvo_session_rollback(session, 0)
    lib.library.salvo_session_feed(session, lib.id_array([0]), 1)
    lib.library.salvo_session_rollback(session, 0)
