"""Conversations."""

from __future__ import annotations

import ctypes as c
import os
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from . import _library as lib
from ._stream import AsyncStream, Reader, Stream, pieces, whole

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._model import Model
    from ._options import Options

_Kind = TypeVar("_Kind", bound=Reader)


class Chat:
    """A conversation. Each answer computes only what is new. Any number may be open, and their answers are computed together; one chat has one
    answer at a time."""

    def __init__(self, model: Model, system: str | None, messages: Sequence[dict[str, str]]):
        self._model, self._engine, self._handle = model, model._engine, c.c_void_p()
        self._lock = threading.Lock()
        self._answer: object | None = None  # stands for the answer that is under way
        self._tokens: list[int] = []  # the last prompt and the answer to it
        with self._engine.lock():
            self._engine.check_open()
            lib.call("salvo_chat_open", self._engine.model, None, c.byref(self._handle))
            self._engine.chats.add(self._handle.value or 0)
            try:
                if system:
                    data = lib.text_bytes("system", system)
                    lib.call("salvo_chat_set_system", self._handle, data, len(data))
                for message in messages:
                    self._add(message["role"], message["content"])
            except BaseException:
                self.close()
                raise

    @property
    def messages(self) -> list[dict[str, str]]:
        """All messages: [{"role": "user", "content": "..."}, ...]."""
        with self._engine.lock():
            self._check_open()
            held = lib.library.salvo_chat_messages(self._handle)
            address = c.cast(held.items, c.c_void_p).value or 0
            items = [lib.Message.from_address(address + i * held.item_size) for i in range(held.count)]
            return [{"role": item.role.decode(), "content": item.content.bytes().decode(errors="replace")} for item in items]

    def stream(self, text: str, **options: Unpack[Options]) -> Stream:
        """Answers a message piece by piece; takes the options of Model.stream. An answer that is ended early is kept as far as it was read."""
        return self._start(Stream, text, options)

    def ask(self, text: str, **options: Unpack[Options]) -> str:
        """The whole answer; takes the options of Model.stream."""
        return "".join(self.stream(text, **options))

    async def astream(self, text: str, **options: Unpack[Options]) -> AsyncIterator[str]:
        """As `stream`, for asyncio."""
        async for piece in pieces(self._start(AsyncStream, text, options)):
            yield piece

    async def aask(self, text: str, **options: Unpack[Options]) -> str:
        """As `ask`, for asyncio."""
        return await whole(self._start(AsyncStream, text, options))

    def save(self, path: str | os.PathLike[str], *, replace: bool = False) -> None:
        """Writes messages and computed state to a file, which appears when it is complete."""
        target = lib.path_bytes(path)
        with self._lock:
            self._check_idle()

            def write(session: c.c_void_p) -> None:
                cached, ids = c.c_uint32(), lib.id_array(self._tokens)
                if self._tokens:
                    lib.call("salvo_session_prefill_cached", session, ids, len(ids), c.byref(cached))
                    rest = self._tokens[cached.value:]
                    lib.call("salvo_session_feed", session, lib.id_array(rest), len(rest))
                lib.call("salvo_chat_save_file", self._handle, session, target, replace)

            self._engine.with_session(write)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Replaces the conversation by the contents of a file."""
        source = lib.path_bytes(path)
        with self._lock:
            self._check_idle()

            def read(session: c.c_void_p) -> None:
                lib.call("salvo_chat_load_file", self._handle, session, source)
                self._tokens = lib.library.salvo_session_tokens(session)[:lib.library.salvo_session_position(session)]

            self._engine.with_session(read)

    def _add(self, role: str, text: str) -> None:
        data = lib.text_bytes("the message", text)
        message = lib.Message(lib.without_nul("role", lib.text_bytes("role", role)), lib.Text(c.cast(c.c_char_p(data), c.c_void_p), len(data)), None)
        lib.call("salvo_chat_add", self._handle, c.byref(message), 1, c.sizeof(message))

    def _start(self, kind: Callable[..., _Kind], text: str, options: Options) -> _Kind:
        with self._engine.lock(), self._lock:
            self._check_idle()
            before = lib.library.salvo_chat_messages(self._handle).count
            try:
                self._add("user", text)
                ids, count = c.POINTER(c.c_int32)(), c.c_size_t()
                lib.call("salvo_chat_prompt", self._handle, self._engine.context, c.byref(ids), c.byref(count))
                prompt = lib.taken_ids(ids, count)
                stops = lib.library.salvo_chat_stops(self._handle).contents
                strings = [stops.strings[i].decode() for i in range(stops.string_count)]
                self._answer = answer = object()

                def done(reader: Reader) -> None:
                    self._keep(reader, before, answer)

                return self._model._start(kind, prompt, options, stop=strings, stop_ids=stops.ids[:stops.id_count], done=done)
            except BaseException:
                self._answer = None
                lib.library.salvo_chat_cut(self._handle, before)
                raise

    def _keep(self, reader: Reader, before: int, answer: object) -> None:
        """Adds an answer that has ended, once. One that was cancelled without text leaves the messages as they were before the question."""
        if self._answer is not answer:
            return
        try:
            with self._engine.lock():
                self._engine.check_open()
                if self._handle:
                    try:
                        self._take(reader, before)
                    except BaseException:  # no question without its answer
                        lib.library.salvo_chat_cut(self._handle, before)
                        raise
                    finally:
                        self._answer = None
        except lib.SalvoError:  # the model was closed, and the chat with it
            self._answer = None

    def _take(self, reader: Reader, before: int) -> None:
        if reader.finish == "cancelled" and not reader.text:
            lib.library.salvo_chat_cut(self._handle, before)
            return
        data = reader.text.encode()
        lib.library.salvo_chat_cut(self._handle, before + 1)  # Ctrl-C may have come after the answer was added
        lib.call("salvo_chat_take", self._handle, lib.id_array(reader.tokens), len(reader.tokens), data, len(data))
        self._tokens = reader.prompt + reader.tokens

    def _check_open(self) -> None:
        self._engine.check_open()
        if not self._handle:
            raise lib.SalvoError("the chat is closed")

    def _check_idle(self) -> None:
        self._check_open()
        if self._answer:
            raise lib.SalvoError("the chat has an unfinished answer: read it to its end, or close it")

    def close(self) -> None:
        """Frees the messages."""
        handle, self._handle = self._handle.value, c.c_void_p()
        if self._engine.process == os.getpid() and handle:
            self._engine.close_chat(handle)

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self.close()

    def __enter__(self) -> Chat:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
