"""A model on a device with the library's scheduler. Requests come from any thread and are computed together; one thread reads their
events and hands each to the reader of its request."""

from __future__ import annotations

import ctypes as c
import itertools
import os
import queue
import select
import threading
from collections.abc import Callable
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
    """A request for the scheduler. `deliver` is called for each event on the engine's thread, `release` before the last one."""

    def __init__(self, engine: Engine, deliver: Callable[[Token | End], None], release: Callable[[], None] | None = None):
        self.engine, self.deliver, self.release = engine, deliver, release
        self.handle = c.c_uint64()  # not 0 once the scheduler has the request, also if Ctrl-C came before Python saw that
        self.last: End | None = None  # the last event, set before it is delivered

    def end(self, event: End) -> None:
        if self.release:
            self.release()
        self.last = event
        self.deliver(event)

    def cancel(self) -> None:
        self.engine.cancel(self)

    def give_up(self) -> None:
        """After an error of `submit`: a request that the scheduler has is cancelled, and ends like others."""
        if self.handle.value:
            self.cancel()
        elif self.release:
            self.release()


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
            lib.library.salvo_scheduler_close(self.scheduler)
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

    def lock(self) -> threading.RLock:
        """Keeps the model open, if `check_open` finds it open within. The thread that reads events never waits for it. This is the lock itself, because
        Ctrl-C may come at the end of a context manager in Python, which would then have locked without an exit."""
        lib.check_process()
        return self._lock

    def submit(self, work: Work, request: lib.Request) -> None:
        """Ctrl-C may come after the scheduler has taken the request and before this returns: `work` knows it, see `give_up`."""
        with self.lock():
            self.check_open()
            key = next(self._keys)
            request.user = key
            try:
                self._works[key] = work
                lib.call("salvo_scheduler_submit", self.scheduler, c.byref(request), c.byref(work.handle))
            except BaseException:
                if not work.handle.value:
                    self._works.pop(key, None)
                raise

    def cancel(self, work: Work) -> None:
        if self.process != os.getpid():
            return
        with self._lock:
            if work.handle.value and not work.last and not self._closed:
                lib.library.salvo_scheduler_cancel(self.scheduler, work.handle.value)

    def close_chat(self, handle: int) -> None:
        with self._lock:
            if not self._closed:
                self.chats.discard(handle)
                lib.library.salvo_chat_close(handle)

    def with_session(self, function: Callable[[c.c_void_p], None]) -> None:
        """Calls the function with an empty session on the scheduler's thread, while requests stand still. Ctrl-C cancels it."""
        results: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        lock = threading.Lock()
        state: dict[str, Any] = {"session": None, "function": function, "sent": False}

        def run(_user: Any, session: Any) -> None:
            error: BaseException | None = None
            try:
                with lock:
                    wanted = state["function"]
                    if not wanted:
                        return
                    state["session"] = session
                if not session:
                    raise lib.SalvoError("the model is closed, or its device has failed")
                wanted(c.c_void_p(session))
            except BaseException as caught:  # raised again in the caller's thread
                error = caught
            finally:
                with lock:
                    state["session"] = None
                    if state["sent"]:
                        _settle(session)
                results.put(error)
                self._calls.pop(key, None)

        wrapped, key = lib.SessionFunction(run), next(self._keys)
        try:
            with self.lock():
                self.check_open()
                self._calls[key] = wrapped
                try:
                    lib.call("salvo_scheduler_call", self.scheduler, wrapped, None)
                except lib.SalvoError:  # after Ctrl-C the scheduler may have it
                    del self._calls[key]
                    raise
            error = results.get()
        except BaseException:
            with lock:
                state["function"] = None
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
        with self._lock:  # the last user has released the model
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
