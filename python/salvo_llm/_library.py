"""The functions of libsalvo that the package calls, with the structs of include/salvo/*.h."""

from __future__ import annotations

import array
import ctypes as c
import operator
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

_Struct = TypeVar("_Struct", bound=c.Structure)


class SalvoError(RuntimeError):
    """An error of the library, with its message; `status` is the number of enum salvo_status."""

    def __init__(self, message: str, status: int = 0):
        super().__init__(message)
        self.status = status


_pointer, _size, _ids, _floats = c.c_void_p, c.c_size_t, c.POINTER(c.c_int32), c.POINTER(c.c_float)


class Text(c.Structure):
    """Bytes, which may contain NUL."""
    _fields_ = [("data", c.c_void_p), ("size", c.c_size_t)]

    def bytes(self) -> bytes:
        return c.string_at(self.data, self.size) if self.size else b""


class Message(c.Structure):
    _fields_ = [("role", c.c_char_p), ("content", Text), ("json", c.c_char_p)]


class Messages(c.Structure):
    _fields_ = [("items", c.POINTER(Message)), ("count", c.c_size_t), ("item_size", c.c_size_t)]


class ModelInfo(c.Structure):
    _fields_ = [("size", c.c_size_t), *((name, c.c_char_p) for name in ("path", "architecture", "name", "license", "file_type", "tokenizer", "pre_tokenizer")),
                *((name, c.c_uint32) for name in ("has_chat_template", "gguf_version", "files", "layers", "width", "heads", "kv_heads", "head_size",
                                                  "feed_forward", "vocabulary", "context")),
                ("file_size", c.c_uint64), ("parameters", c.c_uint64)]


class EngineOptions(c.Structure):
    _fields_ = [("size", c.c_size_t), ("backend", c.c_char_p), ("device", c.c_uint32), ("sessions", c.c_uint32), ("context", c.c_uint32),
                ("batch", c.c_uint32), ("kv_type", c.c_uint32), ("threads", c.c_uint32), ("pin", c.c_uint32), ("isa", c.c_char_p),
                ("progress", _pointer), ("user", _pointer), ("kv_memory", c.c_uint64), ("prefix_cache", c.c_uint32), ("prefix_states_mb", c.c_uint32)]


class EngineInfo(c.Structure):
    _fields_ = [("size", c.c_size_t), ("backend", c.c_char_p), ("device", c.c_char_p), ("isa", c.c_char_p), ("threads", c.c_uint32),
                ("sessions", c.c_uint32), ("context", c.c_uint32), ("batch", c.c_uint32), ("vocabulary", c.c_uint32),
                ("weight_bytes", c.c_uint64), ("state_bytes", c.c_uint64), ("scratch_bytes", c.c_uint64), ("memory_free", c.c_uint64),
                ("bytes_per_second", c.c_double)]


class Sampler(c.Structure):
    _fields_ = [("size", c.c_size_t), ("seed", c.c_uint64), ("temperature", c.c_float), ("top_k", c.c_uint32), ("top_p", c.c_float),
                ("min_p", c.c_float), ("repeat_penalty", c.c_float), ("presence_penalty", c.c_float), ("frequency_penalty", c.c_float),
                ("repeat_last_n", c.c_uint32)]


class Stops(c.Structure):
    _fields_ = [("size", c.c_size_t), ("strings", c.POINTER(c.c_char_p)), ("string_count", c.c_size_t), ("ids", _ids), ("id_count", c.c_size_t)]


class EmbedOptions(c.Structure):
    _fields_ = [("size", c.c_size_t), ("pooling", c.c_uint32), ("norm", c.c_int32)]


class SchedulerOptions(c.Structure):
    _fields_ = [("size", c.c_size_t), *((name, c.c_uint32) for name in ("queue", "latency_us", "poll", "unread", "halts"))]


class SchedulerCounters(c.Structure):
    _fields_ = [("size", c.c_size_t),
                *((name, c.c_uint64) for name in ("submitted", "refused", "finished", "failed", "cancelled", "steps", "prompt_tokens", "cached_tokens", "tokens")),
                *((name, c.c_uint32) for name in ("waiting", "running", "paused", "sessions", "step_tokens"))]


class Event(c.Structure):
    _fields_ = [("size", c.c_size_t), ("request", c.c_uint64), ("user", _pointer), ("kind", c.c_uint32), ("id", c.c_int32), ("logprob", c.c_float),
                ("top_count", c.c_uint32), ("top_ids", _ids), ("top_logprobs", _floats), ("finish", c.c_uint32), ("status", c.c_uint32),
                ("message", c.c_char_p), ("prompt_tokens", c.c_uint32), ("cached_tokens", c.c_uint32), ("tokens", c.c_uint32),
                ("queue_seconds", c.c_double), ("first_seconds", c.c_double), ("end_seconds", c.c_double), ("session", c.c_uint32),
                ("embedding", _floats), ("width", c.c_uint32), ("computed_tokens", c.c_uint32)]


EVENT_TOKEN, EVENT_END = 1, 2
ERROR_CANCELLED = 7
FINISH_STOP = 1

LogitsFunction = c.CFUNCTYPE(c.c_bool, _pointer, c.c_uint32, _floats)
MaskFunction = c.CFUNCTYPE(c.c_bool, _pointer, _ids, _size, c.POINTER(c.c_uint32), _size)
SessionFunction = c.CFUNCTYPE(None, _pointer, _pointer)


class Request(c.Structure):
    _fields_ = [("size", c.c_size_t), ("ids", _ids), ("count", c.c_size_t), ("sampler", c.POINTER(Sampler)), ("bias_ids", _ids), ("biases", _floats),
                ("bias_count", c.c_size_t), ("stop_ids", _ids), ("stop_id_count", c.c_size_t), ("ignore_end", c.c_uint32), ("max_tokens", c.c_uint32),
                ("logprobs", c.c_uint32), ("prompt_logprobs", c.c_uint32), ("top_count", c.c_uint32), ("no_cache", c.c_uint32), ("mask", MaskFunction),
                ("event", _pointer), ("user", _pointer), ("session", c.c_uint32), ("embed", c.POINTER(EmbedOptions)), ("forced", _pointer), ("progress", c.c_uint32)]


def sized(struct: type[_Struct], **members: Any) -> _Struct:
    """A struct whose first member is its size."""
    return struct(size=c.sizeof(struct), **members)


# ctypes takes the lowest bits of a number that is too large, and a text up to its first NUL: such arguments are errors here.

def id_array(ids: Sequence[int]) -> c.Array[c.c_int32]:
    try:
        values = array.array("i", list(ids))
    except OverflowError:
        raise ValueError("a token id does not fit into 32 bits") from None
    return (c.c_int32 * len(values)).from_buffer(values) if values else (c.c_int32 * 0)()


def unsigned(name: str, value: int, bits: int = 32) -> int:
    """The value of an option that is a whole number."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be a whole number, not {type(value).__name__}") from None
    if not 0 <= number < 1 << bits:
        raise ValueError(f"{name} is {number}; it must be between 0 and {(1 << bits) - 1}")
    return number


def text_bytes(name: str, text: str) -> bytes:
    """A text that may contain NUL."""
    if not isinstance(text, str):
        raise TypeError(f"{name} must be str, not {type(text).__name__}")
    return text.encode()


def without_nul(name: str, data: bytes) -> bytes:
    """Bytes that the library reads up to a NUL."""
    if b"\0" in data:
        raise ValueError(f"{name} contains a NUL character")
    return data


def path_bytes(path: str | os.PathLike[str]) -> bytes:
    return without_nul("the path", os.fsencode(path))


def _find() -> str:
    """$SALVO_LIBRARY, the library inside the package, or the one that the system has."""
    given = os.environ.get("SALVO_LIBRARY")
    name = "libsalvo.1.dylib" if sys.platform == "darwin" else "libsalvo.so.1"
    inside = Path(__file__).with_name(name)
    return given or (str(inside) if inside.exists() else name)


try:
    library = c.CDLL(_find())
except OSError as error:
    raise ImportError(f"salvo_llm needs libsalvo; SALVO_LIBRARY may name its file: {error}") from None

_out = c.POINTER(_pointer)
_with_status = {  # arguments of the functions that return a status
    "salvo_model_open": [c.c_char_p, _out],
    "salvo_engine_open": [_pointer, c.POINTER(EngineOptions), _out],
    "salvo_scheduler_open": [_pointer, c.POINTER(SchedulerOptions), _out],
    "salvo_scheduler_submit": [_pointer, c.POINTER(Request), c.POINTER(c.c_uint64)],
    "salvo_scheduler_call": [_pointer, SessionFunction, _pointer],
    "salvo_scheduler_counters": [_pointer, c.POINTER(SchedulerCounters)],
    "salvo_sampler_default": [_pointer, c.POINTER(Sampler)],
    "salvo_session_feed": [_pointer, _ids, _size],
    "salvo_session_prefill_cached": [_pointer, _ids, _size, c.POINTER(c.c_uint32)],
    "salvo_session_eval": [_pointer, _ids, _size, LogitsFunction, _pointer],
    "salvo_session_rollback": [_pointer, c.c_uint32],
    "salvo_chat_open": [_pointer, _pointer, _out],
    "salvo_chat_add": [_pointer, c.POINTER(Message), _size, _size],
    "salvo_chat_set_system": [_pointer, c.c_char_p, _size],
    "salvo_chat_prompt": [_pointer, c.c_uint32, c.POINTER(_ids), c.POINTER(_size)],
    "salvo_chat_take": [_pointer, _ids, _size, c.c_char_p, _size],
    "salvo_chat_save_file": [_pointer, _pointer, c.c_char_p, c.c_bool],
    "salvo_chat_load_file": [_pointer, _pointer, c.c_char_p],
    "salvo_grammar_compile": [_pointer, c.c_int, c.c_char_p, _size, _pointer, _out],
    "salvo_grammar_matcher_new": [_pointer, _out],
    "salvo_grammar_matcher_accept": [_pointer, c.c_int32],
    "salvo_grammar_matcher_rollback": [_pointer, _size],
    "salvo_grammar_matcher_bytes": [_pointer, c.POINTER(c.c_uint32)],
    "salvo_grammar_matcher_mask": [_pointer, c.POINTER(c.c_uint32), _size],
    "salvo_text_filter_open": [c.POINTER(c.c_char_p), _size, _out],
    "salvo_text_filter_push": [_pointer, c.c_char_p, _size, c.POINTER(Text), c.POINTER(c.c_bool)],
    "salvo_text_filter_finish": [_pointer, c.POINTER(Text)],
    "salvo_tokenize": [_pointer, c.c_char_p, _size, c.c_uint, c.POINTER(_ids), c.POINTER(_size)],
    "salvo_tokenize_default_flags": [_pointer, c.POINTER(c.c_uint)],
    "salvo_detokenize": [_pointer, _ids, _size, c.c_bool, c.POINTER(_pointer), c.POINTER(_size)],
    "salvo_token_text": [_pointer, c.c_int32, c.POINTER(_pointer), c.POINTER(_size)],
}
_others = {  # result and arguments of the others
    "salvo_error": (c.c_char_p, []),
    "salvo_version": (c.c_char_p, []),
    "salvo_finish_name": (c.c_char_p, [c.c_uint32]),
    "salvo_free": (None, [_pointer]),
    "salvo_model_close": (None, [_pointer]),
    "salvo_model_info": (c.POINTER(ModelInfo), [_pointer]),
    "salvo_engine_close": (None, [_pointer]),
    "salvo_engine_info": (c.POINTER(EngineInfo), [_pointer]),
    "salvo_engine_width": (c.c_uint32, [_pointer]),
    "salvo_scheduler_close": (None, [_pointer]),
    "salvo_scheduler_cancel": (None, [_pointer, c.c_uint64]),
    "salvo_scheduler_descriptor": (c.c_int, [_pointer]),
    "salvo_scheduler_poll": (c.c_bool, [_pointer, c.POINTER(Event)]),
    "salvo_session_cancel": (None, [_pointer]),
    "salvo_session_position": (c.c_uint32, [_pointer]),
    "salvo_session_tokens": (_ids, [_pointer]),
    "salvo_chat_close": (None, [_pointer]),
    "salvo_chat_cut": (None, [_pointer, _size]),
    "salvo_chat_messages": (Messages, [_pointer]),
    "salvo_chat_stops": (c.POINTER(Stops), [_pointer]),
    "salvo_grammar_free": (None, [_pointer]),
    "salvo_grammar_matcher_free": (None, [_pointer]),
    "salvo_grammar_matcher_complete": (c.c_bool, [_pointer]),
    "salvo_grammar_matcher_steps": (_size, [_pointer]),
    "salvo_text_filter_close": (None, [_pointer]),
}
for _name, _arguments in _with_status.items():
    getattr(library, _name).argtypes, getattr(library, _name).restype = _arguments, c.c_int
for _name, (_result, _arguments) in _others.items():
    getattr(library, _name).argtypes, getattr(library, _name).restype = _arguments, _result

_used_in: int | None = None  # the process that opened a model first


def check_process(opens: bool = False) -> None:
    """A child made by fork has the memory of its parent's models without their threads."""
    global _used_in
    if _used_in not in (None, os.getpid()):
        raise SalvoError("salvo_llm was used before fork(): load models in the child alone, or use multiprocessing's 'spawn'")
    if opens:
        _used_in = os.getpid()


def call(name: str, *arguments: Any) -> None:
    """Calls a function that returns a status; SalvoError with the library's message if it fails."""
    status = getattr(library, name)(*arguments)
    if status:
        raise SalvoError(library.salvo_error().decode(errors="replace"), status)


def taken_text(memory: c.c_void_p, size: c.c_size_t) -> bytes:
    """The bytes of a result, which is freed."""
    try:
        return c.string_at(memory, size.value)
    finally:
        library.salvo_free(memory)


def taken_ids(memory: Any, count: c.c_size_t) -> list[int]:
    try:
        return list(memory[:count.value])
    finally:
        library.salvo_free(memory)
