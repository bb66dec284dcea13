"""Models, chats, embeddings and logits."""

from __future__ import annotations

import asyncio
import ctypes as c
import os
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from . import _library as lib
from ._worker import Call
from ._worker import stream as _stream

if TYPE_CHECKING:
    import numpy

_SAMPLING = {name for name, _ in lib.Sampler._fields_} - {"size"}


def _model_path(name: str | os.PathLike) -> str:
    """A path, or a name in the models folder: as `salvo -m` finds it, with or without .gguf."""
    text = os.fspath(name)
    if os.path.exists(text) or "/" in text:
        return text
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "salvo" / "models"
    files = sorted(folder.glob("*.gguf"))
    for fits in (lambda file: file.name.lower() in (text.lower(), text.lower() + ".gguf"), lambda file: file.name.lower().startswith(text.lower())):
        found = [file for file in files if fits(file)]
        if len(found) == 1:
            return str(found[0])
        if found:
            raise lib.SalvoError(f"{text}: several models match: {', '.join(file.name for file in found)}")
    raise lib.SalvoError(f"{text}: no such file and no model of this name in {folder}; `salvo pull` downloads models")


def _strings(texts: Sequence[str]):
    return (c.c_char_p * len(texts))(*(text.encode() for text in texts)) if texts else None


class Chat:
    """A conversation. Each answer computes only what is new."""

    def __init__(self, model: Model, system: str | None):
        self._model, self._handle = model, c.c_void_p()
        self._session = c.c_void_p()
        with model._lock:
            lib.call("salvo_chat_open", model._model, None, c.byref(self._handle))
            try:
                lib.call("salvo_session_open", model._engine, c.byref(self._session))
                if system:
                    data = system.encode()
                    lib.call("salvo_chat_set_system", self._handle, data, len(data))
            except BaseException:
                self.close()
                raise

    def stream(self, text: str, *, max_tokens: int = 0, stop: Sequence[str] = (), **sampling: float) -> Iterator[str]:
        """Yields the answer piece by piece. Closing the iterator, or Ctrl-C, ends the answer; what was generated is kept."""
        data, stops = text.encode(), _strings(stop)
        message = lib.Message(b"user", lib.Text(data, len(data)), None)
        sampler = self._model._sampler(sampling)
        self._check_open()
        call = Call(self._session)

        def start(on_text):
            with self._model._lock:
                self._check_open()
                lib.call("salvo_session_set_sampler", self._session, c.byref(sampler))
                lib.call("salvo_chat_add", self._handle, c.byref(message), 1, c.sizeof(message))
                options = lib.AnswerOptions(c.sizeof(lib.AnswerOptions), stops, len(stop), max_tokens, 0, 0, on_text, None, None)
                with call:
                    lib.call("salvo_chat_answer", self._handle, self._session, c.byref(options), None)

        return _stream(start, call)

    def ask(self, text: str, **options) -> str:
        """The whole answer; the options are those of `stream`."""
        return "".join(self.stream(text, **options))

    async def astream(self, text: str, **options) -> AsyncIterator[str]:
        """As `stream`, for asyncio: other tasks run while the model computes."""
        pieces = self.stream(text, **options)
        try:
            while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
                yield piece
        finally:
            await asyncio.to_thread(pieces.close)

    def save(self, path: str | os.PathLike, *, replace: bool = False) -> None:
        """Writes messages and computed state to a file, which appears when it is complete."""
        with self._model._lock:
            self._check_open()
            lib.call("salvo_chat_save_file", self._handle, self._session, os.fsencode(path), replace)

    def load(self, path: str | os.PathLike) -> None:
        """Replaces the conversation by that of a file."""
        with self._model._lock:
            self._check_open()
            lib.call("salvo_chat_load_file", self._handle, self._session, os.fsencode(path))

    def _check_open(self) -> None:
        lib.check_process()
        if not self._session or not self._model._engine:
            raise lib.SalvoError("the chat is closed")

    def close(self) -> None:
        if self._model._is_alive():
            lib.library.salvo_session_close(self._session)
            lib.library.salvo_chat_close(self._handle)
        self._session, self._handle = c.c_void_p(), c.c_void_p()

    def __enter__(self) -> Chat:
        return self

    def __exit__(self, *_) -> None:
        with self._model._lock:
            self.close()


class Model:
    """A model on a device. Any number of threads may use it; they take turns."""

    def __init__(self, path: str | os.PathLike, *, backend: str | None = None, context: int = 0, threads: int = 0, chats: int = 4):
        self._lock = threading.RLock()
        self._model, self._engine, self._session = c.c_void_p(), c.c_void_p(), c.c_void_p()
        self._process = os.getpid()
        lib.call("salvo_model_open", os.fsencode(_model_path(path)), c.byref(self._model))
        try:
            options = lib.EngineOptions(c.sizeof(lib.EngineOptions), backend.encode() if backend else None)
            options.context, options.threads, options.sessions = context, threads, chats + 1
            lib.call("salvo_engine_open", self._model, c.byref(options), c.byref(self._engine))
            lib.call("salvo_session_open", self._engine, c.byref(self._session))
        except BaseException:
            self.close()
            raise
        info = lib.library.salvo_model_info(self._model).contents
        self.vocabulary: int = info.vocabulary
        self.architecture: str = info.architecture.decode()
        self.width: int = lib.library.salvo_engine_width(self._engine)

    def chat(self, text: str, *, system: str | None = None, **options) -> str:
        """Answers one message."""
        with self.conversation(system=system) as conversation:
            return conversation.ask(text, **options)

    def conversation(self, *, system: str | None = None) -> Chat:
        """Begins a conversation; as many as `chats` may be open."""
        self._check_open()
        return Chat(self, system)

    def stream(self, prompt: str, *, max_tokens: int = 0, stop: Sequence[str] = (), **sampling: float) -> Iterator[str]:
        """Continues a text, piece by piece."""
        ids, stops, sampler = self.tokenize(prompt), _strings(stop), self._sampler(sampling)
        call = Call(self._session)

        def start(on_text):
            with self._lock:
                self._check_open()
                lib.call("salvo_session_rollback", self._session, 0)
                lib.call("salvo_session_set_sampler", self._session, c.byref(sampler))
                options = lib.GenerateOptions(c.sizeof(lib.GenerateOptions), stops, len(stop), None, 0, max_tokens, 0, 0, 0, on_text, None, None)
                with call:
                    lib.call("salvo_session_feed", self._session, self._ids(ids), len(ids))
                    lib.call("salvo_session_generate", self._session, c.byref(options), None)

        return _stream(start, call)

    def generate(self, prompt: str, **options) -> str:
        """The whole continuation of a text; the options are those of `stream`."""
        return "".join(self.stream(prompt, **options))

    def tokenize(self, text: str) -> list[int]:
        """Token ids, with the beginning-of-text token if the model wants one."""
        self._check_open()
        data, flags, ids, count = text.encode(), c.c_uint(), c.POINTER(c.c_int32)(), c.c_size_t()
        lib.call("salvo_tokenize_default_flags", self._model, c.byref(flags))
        lib.call("salvo_tokenize", self._model, data, len(data), flags, c.byref(ids), c.byref(count))
        result = ids[:count.value]
        lib.library.salvo_free(ids)
        return result

    def detokenize(self, ids: Sequence[int]) -> str:
        self._check_open()
        text, size = c.c_void_p(), c.c_size_t()
        lib.call("salvo_detokenize", self._model, self._ids(ids), len(ids), False, c.byref(text), c.byref(size))
        result = c.string_at(text, size.value)
        lib.library.salvo_free(text)
        return result.decode(errors="replace")

    def logits(self, ids: Sequence[int]) -> numpy.ndarray:
        """The logits after each token, as float32 [tokens, vocabulary]."""
        import numpy
        out = numpy.empty((len(ids), self.vocabulary), numpy.float32)

        @lib.LogitsFunction
        def row(_user, position, logits):
            c.memmove(out[position].ctypes.data, logits, out.itemsize * self.vocabulary)
            return True

        with self._lock:
            self._check_open()
            lib.call("salvo_session_rollback", self._session, 0)
            lib.call("salvo_session_eval", self._session, self._ids(ids), len(ids), row, None)
        return out

    def log_probabilities(self, ids: Sequence[int]) -> numpy.ndarray:
        """The logarithms of the probabilities after each token, as float64 [tokens, vocabulary]."""
        import numpy
        logits = self.logits(ids).astype(numpy.float64)
        logits -= logits.max(axis=1, keepdims=True)
        return logits - numpy.log(numpy.exp(logits).sum(axis=1, keepdims=True))

    def embed(self, text: str) -> numpy.ndarray:
        """The embedding of a text, of length 1, as float32 [width]."""
        import numpy
        ids, out = self.tokenize(text), numpy.empty(self.width, numpy.float32)
        options = lib.EmbedOptions(c.sizeof(lib.EmbedOptions), 0, 0)
        with self._lock:
            self._check_open()
            lib.call("salvo_session_embed", self._session, self._ids(ids), len(ids), c.byref(options), out.ctypes.data_as(c.POINTER(c.c_float)))
        return out

    def _ids(self, ids: Sequence[int]):
        return (c.c_int32 * len(ids))(*ids)

    def _sampler(self, sampling: dict[str, float]) -> lib.Sampler:
        sampler = lib.Sampler(c.sizeof(lib.Sampler))
        self._check_open()
        lib.call("salvo_sampler_default", self._model, c.byref(sampler))
        for name, value in sampling.items():
            if name not in _SAMPLING:
                raise TypeError(f"unknown option '{name}'; the sampler has {', '.join(sorted(_SAMPLING))}")
            setattr(sampler, name, value)
        return sampler

    def _is_alive(self) -> bool:
        """Whether handles may be closed: in a child made by fork they belong to the parent."""
        return bool(self._model) and self._process == os.getpid()

    def _check_open(self) -> None:
        lib.check_process()
        if not self._engine:
            raise lib.SalvoError("the model is closed")

    def close(self) -> None:
        """Frees the memory of the model. Conversations must be closed before."""
        with self._lock:
            if self._is_alive():
                lib.library.salvo_session_close(self._session)
                lib.library.salvo_engine_close(self._engine)
                lib.library.salvo_model_close(self._model)
            self._model, self._engine, self._session = c.c_void_p(), c.c_void_p(), c.c_void_p()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_) -> None:
        self.close()


def load(path: str | os.PathLike, **options) -> Model:
    """Loads a model from a file, or by its name in the models folder; the options are those of `Model`."""
    return Model(path, **options)
