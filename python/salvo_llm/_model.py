"""Models: texts, embeddings and logits."""

from __future__ import annotations

import ctypes as c
import functools
import os
import queue
import weakref
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from . import _library as lib
from ._chat import Chat
from ._constraint import Constraint
from ._engine import End, Engine, Token, Work
from ._stream import AsyncStream, Reader, Stream, pieces, whole

if TYPE_CHECKING:
    import numpy
    from typing_extensions import Unpack

    from ._options import Options, ParseOptions

_Kind = TypeVar("_Kind", bound=Reader)
_Object = TypeVar("_Object")

_SAMPLING = {field[0] for field in lib.Sampler._fields_} - {"size"}
_BITS = {"seed": 64, "top_k": 32, "repeat_last_n": 32}  # options of the sampler that are whole numbers
_POOLING = {"model": 0, "mean": 1, "last": 3}


def models_folder() -> Path:
    """Where `salvo pull` puts models."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "salvo" / "models"


def _model_path(name: str | os.PathLike[str]) -> str:
    """A path, or a name in the models folder: as `salvo -m` finds it, with or without .gguf."""
    text = os.fsdecode(name)
    if not text:
        raise ValueError("the name of the model is empty")
    if os.path.exists(text) or "/" in text:
        return text
    files = sorted(models_folder().glob("*.gguf"))
    for fits in (lambda file: file.name.lower() in (text.lower(), text.lower() + ".gguf"), lambda file: file.name.lower().startswith(text.lower())):
        found = [file for file in files if fits(file)]
        if len(found) == 1:
            return str(found[0])
        if found:
            raise lib.SalvoError(f"{text}: several models match: {', '.join(file.name for file in found)}")
    raise lib.SalvoError(f"{text}: no such file and no model of this name in {models_folder()}; `salvo pull` downloads models")


def _put(ends: queue.SimpleQueue[tuple[int, Token | End]], index: int, end: Token | End) -> None:
    ends.put((index, end))


class Model:
    """A model on a device. Any number of threads and tasks may use it: their requests are computed together, `parallel` at once, and the others
    wait for a place. `context` limits a prompt and its answer; 0 is the model's own, and at most 8192."""

    def __init__(self, path: str | os.PathLike[str], *, backend: str | None = None, context: int = 0, threads: int = 0, parallel: int = 4):
        name = lib.without_nul("backend", lib.text_bytes("backend", backend)) if backend else None
        options = lib.sized(lib.EngineOptions, backend=name, context=lib.unsigned("context", context), threads=lib.unsigned("threads", threads),
                            sessions=lib.unsigned("parallel", parallel), prefix_cache=1)
        self._engine = Engine(_model_path(path), options)
        self._finalizer = weakref.finalize(self, self._engine.close)  # also at the end of the interpreter
        info = lib.library.salvo_model_info(self._engine.model).contents
        self.vocabulary: int = info.vocabulary
        self.architecture: str = info.architecture.decode()
        self.width: int = lib.library.salvo_engine_width(self._engine.engine)
        self.context: int = self._engine.context

    # ---- Chats ----

    def conversation(self, *, system: str | None = None, messages: Sequence[dict[str, str]] = ()) -> Chat:
        """Begins a conversation, or continues one: messages are [{"role": "user", "content": "..."}, ...]."""
        return Chat(self, system, messages)

    def chat(self, text: str, *, system: str | None = None, **options: Unpack[Options]) -> str:
        """Answers one message; takes the options of `stream`."""
        with self.conversation(system=system) as conversation:
            return conversation.ask(text, **options)

    async def achat(self, text: str, *, system: str | None = None, **options: Unpack[Options]) -> str:
        """As `chat`, for asyncio."""
        with self.conversation(system=system) as conversation:
            return await conversation.aask(text, **options)

    def parse(self, text: str, schema: type[_Object], *, system: str | None = None, **options: Unpack[ParseOptions]) -> _Object:
        """Answers a message with an object of a Pydantic model. An answer that `max_tokens` or the context cut is an error."""
        if not hasattr(schema, "model_validate_json"):
            raise TypeError(f"schema must be a Pydantic model, not {schema!r}")
        with self.conversation(system=system) as conversation:
            stream = conversation.stream(text, schema=schema, **options)
            answer = "".join(stream)
        if stream.finish in ("length", "context"):
            raise lib.SalvoError(f"the answer is cut ({stream.finish}): {answer!r}")
        found: _Object = schema.model_validate_json(answer)  # type: ignore[attr-defined]
        return found

    # ---- Texts ----

    def stream(self, prompt: str, **options: Unpack[Options]) -> Stream:
        """Continues a text, piece by piece. Options:

        max_tokens: tokens of the answer; 0: until its end or the context's.
        stop: strings that end the text and are not a part of it.
        temperature, top_k, top_p, min_p, seed, repeat_penalty, presence_penalty, frequency_penalty, repeat_last_n: the sampler.
        schema: a Pydantic model, or a JSON schema as a dictionary or text, that the answer fits.
        regex, grammar: a regular expression, or a grammar in GBNF, that it fits.
        logprobs: keep log-probabilities, and those of so many of the most likely tokens, at most 20; 0: of the chosen ones alone.
        """
        return self._start(Stream, self.tokenize(prompt), options)

    def generate(self, prompt: str, **options: Unpack[Options]) -> str:
        """The whole continuation of a text; takes the options of `stream`."""
        return "".join(self.stream(prompt, **options))

    async def astream(self, prompt: str, **options: Unpack[Options]) -> AsyncIterator[str]:
        """As `stream`, for asyncio."""
        async for piece in pieces(self._start(AsyncStream, self.tokenize(prompt), options)):
            yield piece

    async def agenerate(self, prompt: str, **options: Unpack[Options]) -> str:
        """As `generate`, for asyncio."""
        return await whole(self._start(AsyncStream, self.tokenize(prompt), options))

    def _start(self, kind: Callable[..., _Kind], prompt: Sequence[int], options: Options, *, stop: Sequence[str] = (), stop_ids: Sequence[int] = (),
               done: Callable[[Reader], None] | None = None) -> _Kind:
        given: dict[str, Any] = {**options}
        limits = {name: value for name in ("schema", "regex", "grammar") if (value := given.pop(name, None)) is not None}
        max_tokens, logprobs = given.pop("max_tokens", 0), given.pop("logprobs", None)
        own_stop = given.pop("stop", ())
        if isinstance(own_stop, str):
            own_stop = (own_stop,)
        with self._engine.lock():
            self._engine.check_open()
            sampler = self._sampler(given)
            constraint = Constraint(self._engine.model, self.vocabulary, **limits) if limits else None
        return kind(self._engine, prompt, sampler, max_tokens=max_tokens, stop=[*stop, *own_stop], stop_ids=stop_ids, logprobs=logprobs,
                    constraint=constraint, done=done)

    def _sampler(self, sampling: dict[str, Any]) -> lib.Sampler:
        sampler = lib.sized(lib.Sampler)
        lib.call("salvo_sampler_default", self._engine.model, c.byref(sampler))
        for name, value in sampling.items():
            if name not in _SAMPLING:
                raise TypeError(f"unknown option '{name}'; the sampler has {', '.join(sorted(_SAMPLING))}")
            setattr(sampler, name, lib.unsigned(name, value, _BITS[name]) if name in _BITS else value)
        return sampler

    # ---- Tokens ----

    def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        """Token ids, with the beginning-of-text token if the model wants one. With `special`, names of control tokens become these."""
        data, flags, ids, count = lib.text_bytes("the text", text), c.c_uint(), c.POINTER(c.c_int32)(), c.c_size_t()
        with self._engine.lock():
            self._engine.check_open()
            lib.call("salvo_tokenize_default_flags", self._engine.model, c.byref(flags))
            lib.call("salvo_tokenize", self._engine.model, data, len(data), flags.value | special, c.byref(ids), c.byref(count))
        return lib.taken_ids(ids, count)

    def detokenize(self, ids: Sequence[int]) -> str:
        """The text of tokens, without control tokens."""
        text, size = c.c_void_p(), c.c_size_t()
        with self._engine.lock():
            self._engine.check_open()
            lib.call("salvo_detokenize", self._engine.model, lib.id_array(ids), len(ids), False, c.byref(text), c.byref(size))
        return lib.taken_text(text, size).decode(errors="replace")

    # ---- Numbers ----

    def logits(self, ids: Sequence[int]) -> numpy.ndarray:
        """The logits after each token, as float32 [tokens, vocabulary]. Other requests stand still meanwhile."""
        import numpy
        out = numpy.empty((len(ids), self.vocabulary), numpy.float32)

        def row(_user: Any, position: int, logits: Any) -> bool:
            c.memmove(out[position].ctypes.data, logits, out.itemsize * self.vocabulary)
            return True

        function = lib.LogitsFunction(row)
        self._engine.with_session(lambda session: lib.call("salvo_session_eval", session, lib.id_array(ids), len(ids), function, None))
        return out

    def log_probabilities(self, ids: Sequence[int]) -> numpy.ndarray:
        """The logarithms of the probabilities after each token, as float64 [tokens, vocabulary]."""
        import numpy
        logits = self.logits(ids).astype(numpy.float64)
        logits -= logits.max(axis=1, keepdims=True)
        result: numpy.ndarray = logits - numpy.log(numpy.exp(logits).sum(axis=1, keepdims=True))
        return result

    def embed(self, text: str | Sequence[str], *, pooling: str = "model", normalize: bool = True) -> numpy.ndarray:
        """The embedding of a text, of length 1, as float32 [width]; of several texts, computed together, as [texts, width]."""
        import numpy
        if pooling not in _POOLING:
            raise ValueError(f"unknown pooling '{pooling}'; there are {', '.join(_POOLING)}")
        texts = [text] if isinstance(text, str) else list(text)
        out = numpy.empty((len(texts), self.width), numpy.float32)
        options = lib.sized(lib.EmbedOptions, pooling=_POOLING[pooling], norm=0 if normalize else -1)
        ends: queue.SimpleQueue[tuple[int, Token | End]] = queue.SimpleQueue()
        works = []
        try:
            for index, ids in enumerate(map(self.tokenize, texts)):
                request = lib.sized(lib.Request, ids=lib.id_array(ids), count=len(ids), embed=c.pointer(options))
                works.append(Work(self._engine, functools.partial(_put, ends, index)))
                self._engine.submit(works[-1], request)
            for _ in texts:
                index, end = ends.get()
                assert isinstance(end, End)
                if end.status:
                    raise lib.SalvoError(end.message or "cancelled", end.status)
                out[index] = numpy.frombuffer(end.embedding or b"", numpy.float32)
        except BaseException:
            for work in works:
                work.cancel()
            raise
        return out[0] if isinstance(text, str) else out

    def counters(self) -> dict[str, int]:
        """Requests and tokens so far, and requests that run and wait now."""
        counters = lib.sized(lib.SchedulerCounters)
        with self._engine.lock():
            self._engine.check_open()
            lib.call("salvo_scheduler_counters", self._engine.scheduler, c.byref(counters))
        return {field[0]: getattr(counters, field[0]) for field in counters._fields_ if field[0] != "size"}

    def close(self) -> None:
        """Ends all requests and frees the memory of the model."""
        self._finalizer()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def load(path: str | os.PathLike[str], *, backend: str | None = None, context: int = 0, threads: int = 0, parallel: int = 4) -> Model:
    """Loads a model from a file, or by its name in the models folder; takes the options of `Model`."""
    return Model(path, backend=backend, context=context, threads=threads, parallel=parallel)
