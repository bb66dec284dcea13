"""The functions of libsalvo that the package calls, with the structs of include/salvo/*.h."""

from __future__ import annotations

import ctypes as c
import os
import sys
from pathlib import Path


class SalvoError(RuntimeError):
    """An error of the library, with its message; `status` is the number of enum salvo_status."""

    def __init__(self, message: str, status: int = 0):
        super().__init__(message)
        self.status = status


class Text(c.Structure):
    _fields_ = [("data", c.c_char_p), ("size", c.c_size_t)]


class Message(c.Structure):
    _fields_ = [("role", c.c_char_p), ("content", Text), ("json", c.c_char_p)]


class ModelInfo(c.Structure):
    _fields_ = [("size", c.c_size_t), *((name, c.c_char_p) for name in ("path", "architecture", "name", "license", "file_type", "tokenizer", "pre_tokenizer")),
                *((name, c.c_uint32) for name in ("has_chat_template", "gguf_version", "files", "layers", "width", "heads", "kv_heads", "head_size",
                                                  "feed_forward", "vocabulary", "context")),
                ("file_size", c.c_uint64), ("parameters", c.c_uint64)]


class EngineOptions(c.Structure):
    _fields_ = [("size", c.c_size_t), ("backend", c.c_char_p), ("device", c.c_uint32), ("sessions", c.c_uint32), ("context", c.c_uint32),
                ("batch", c.c_uint32), ("kv_type", c.c_uint32), ("threads", c.c_uint32), ("pin", c.c_uint32), ("isa", c.c_char_p)]


class Sampler(c.Structure):
    _fields_ = [("size", c.c_size_t), ("seed", c.c_uint64), ("temperature", c.c_float), ("top_k", c.c_uint32), ("top_p", c.c_float),
                ("min_p", c.c_float), ("repeat_penalty", c.c_float), ("presence_penalty", c.c_float), ("frequency_penalty", c.c_float),
                ("repeat_last_n", c.c_uint32)]


TextFunction = c.CFUNCTYPE(c.c_bool, c.c_void_p, c.POINTER(c.c_char), c.c_size_t)
LogitsFunction = c.CFUNCTYPE(c.c_bool, c.c_void_p, c.c_uint32, c.POINTER(c.c_float))


class AnswerOptions(c.Structure):
    _fields_ = [("size", c.c_size_t), ("stop_strings", c.POINTER(c.c_char_p)), ("stop_count", c.c_size_t), ("max_tokens", c.c_uint32),
                ("ahead", c.c_uint32), ("again", c.c_uint32), ("text", TextFunction), ("token", c.c_void_p), ("user", c.c_void_p)]


class GenerateOptions(c.Structure):
    _fields_ = [("size", c.c_size_t), ("stop_strings", c.POINTER(c.c_char_p)), ("stop_count", c.c_size_t), ("stop_ids", c.POINTER(c.c_int32)),
                ("stop_id_count", c.c_size_t), ("max_tokens", c.c_uint32), ("ahead", c.c_uint32), ("ignore_end", c.c_uint32),
                ("special", c.c_uint32), ("text", TextFunction), ("token", c.c_void_p), ("user", c.c_void_p)]


class EmbedOptions(c.Structure):
    _fields_ = [("size", c.c_size_t), ("pooling", c.c_uint32), ("norm", c.c_int32)]


def _find() -> str:
    """$SALVO_LIBRARY, the library inside the package, or the one that the system has."""
    given = os.environ.get("SALVO_LIBRARY")
    name = "libsalvo.0.dylib" if sys.platform == "darwin" else "libsalvo.so.0"
    inside = Path(__file__).with_name(name)
    return given or (str(inside) if inside.exists() else name)


try:
    library = c.CDLL(_find())
except OSError as error:
    raise ImportError(f"salvo_llm needs libsalvo; SALVO_LIBRARY may name its file: {error}") from None

_pointer, _size, _ids = c.c_void_p, c.c_size_t, c.POINTER(c.c_int32)
_functions = {  # arguments of the functions that return a status
    "salvo_model_open": [c.c_char_p, c.POINTER(_pointer)],
    "salvo_engine_open": [_pointer, c.POINTER(EngineOptions), c.POINTER(_pointer)],
    "salvo_session_open": [_pointer, c.POINTER(_pointer)],
    "salvo_chat_open": [_pointer, _pointer, c.POINTER(_pointer)],
    "salvo_sampler_default": [_pointer, c.POINTER(Sampler)],
    "salvo_session_set_sampler": [_pointer, c.POINTER(Sampler)],
    "salvo_session_feed": [_pointer, _ids, _size],
    "salvo_session_generate": [_pointer, c.POINTER(GenerateOptions), _pointer],
    "salvo_session_rollback": [_pointer, c.c_uint32],
    "salvo_session_eval": [_pointer, _ids, _size, LogitsFunction, _pointer],
    "salvo_session_embed": [_pointer, _ids, _size, c.POINTER(EmbedOptions), c.POINTER(c.c_float)],
    "salvo_chat_add": [_pointer, c.POINTER(Message), _size, _size],
    "salvo_chat_set_system": [_pointer, c.c_char_p, _size],
    "salvo_chat_answer": [_pointer, _pointer, c.POINTER(AnswerOptions), _pointer],
    "salvo_chat_save_file": [_pointer, _pointer, c.c_char_p, c.c_bool],
    "salvo_chat_load_file": [_pointer, _pointer, c.c_char_p],
    "salvo_tokenize": [_pointer, c.c_char_p, _size, c.c_uint, c.POINTER(_ids), c.POINTER(_size)],
    "salvo_tokenize_default_flags": [_pointer, c.POINTER(c.c_uint)],
    "salvo_detokenize": [_pointer, _ids, _size, c.c_bool, c.POINTER(_pointer), c.POINTER(_size)],
}
_owner = os.getpid()


def check_process() -> None:
    """A child made by fork has the memory of the library without its threads."""
    if os.getpid() != _owner:
        raise SalvoError("salvo_llm was loaded before fork(): import it and load the model in the child, or use multiprocessing's 'spawn'")


def call(name: str, *arguments) -> None:
    """Calls a function that returns a status; SalvoError with the library's message if it fails."""
    check_process()
    status = getattr(library, name)(*arguments)
    if status:
        raise SalvoError(library.salvo_error().decode(errors="replace"), status)


for _name, _arguments in _functions.items():
    getattr(library, _name).argtypes = _arguments
    getattr(library, _name).restype = c.c_int
for _name in ("salvo_model_close", "salvo_engine_close", "salvo_session_close", "salvo_chat_close", "salvo_session_cancel", "salvo_free"):
    getattr(library, _name).argtypes = [_pointer]
    getattr(library, _name).restype = None
library.salvo_error.restype = c.c_char_p
library.salvo_version.restype = c.c_char_p
library.salvo_engine_width.argtypes, library.salvo_engine_width.restype = [_pointer], c.c_uint32
library.salvo_session_position.argtypes, library.salvo_session_position.restype = [_pointer], c.c_uint32
library.salvo_model_info.argtypes, library.salvo_model_info.restype = [_pointer], c.POINTER(ModelInfo)
