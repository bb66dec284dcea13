"""llama.cpp's C interface, as far as tests need it, in the library that the package xllamacpp carries.

The layout of its structs belongs to the version in tests/requirements.txt; defaults in the wrong places are an error.
"""
import ctypes
import glob
import os

import numpy as np
import xllamacpp

TYPE_F32, TYPE_F16 = 0, 1
POOLING_MEAN, POOLING_LAST = 1, 3


class ModelParams(ctypes.Structure):
    _fields_ = [("before", ctypes.c_ubyte * 72), ("vocab_only", ctypes.c_bool), ("rest", ctypes.c_ubyte * 183)]


class ContextParams(ctypes.Structure):
    _fields_ = [("n_ctx", ctypes.c_uint32), ("n_batch", ctypes.c_uint32), ("n_ubatch", ctypes.c_uint32),
                ("n_seq_max", ctypes.c_uint32), ("recurrent", ctypes.c_uint32 * 3), ("n_threads", ctypes.c_int32),
                ("n_threads_batch", ctypes.c_int32), ("kinds", ctypes.c_int32 * 2), ("pooling", ctypes.c_int32), ("attention", ctypes.c_int32), ("flash_attention", ctypes.c_int32),
                ("rope", ctypes.c_float * 8), ("callback", ctypes.c_void_p * 2), ("type_k", ctypes.c_int32),
                ("type_v", ctypes.c_int32), ("rest", ctypes.c_ubyte * 144)]


class Batch(ctypes.Structure):
    _fields_ = [("n_tokens", ctypes.c_int32), ("token", ctypes.POINTER(ctypes.c_int32)), ("embd", ctypes.c_void_p),
                ("pos", ctypes.POINTER(ctypes.c_int32)), ("n_seq_id", ctypes.POINTER(ctypes.c_int32)),
                ("seq_id", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))), ("logits", ctypes.POINTER(ctypes.c_int8))]


def load_library():
    library = ctypes.CDLL(glob.glob(os.path.join(os.path.dirname(xllamacpp.__file__), "*.so"))[0])
    pointer, integer, boolean = ctypes.c_void_p, ctypes.c_int32, ctypes.c_bool
    for name, result, arguments in [
            ("llama_log_set", None, [pointer, pointer]),
            ("llama_model_default_params", ModelParams, []),
            ("llama_context_default_params", ContextParams, []),
            ("llama_model_load_from_file", pointer, [ctypes.c_char_p, ModelParams]),
            ("llama_model_free", None, [pointer]),
            ("llama_model_get_vocab", pointer, [pointer]),
            ("llama_vocab_n_tokens", integer, [pointer]),
            ("llama_vocab_get_add_bos", boolean, [pointer]),
            ("llama_vocab_bos", integer, [pointer]),
            ("llama_vocab_is_eog", boolean, [pointer, integer]),
            ("llama_tokenize", integer, [pointer, ctypes.c_char_p, integer, pointer, integer, boolean, boolean]),
            ("llama_init_from_model", pointer, [pointer, ContextParams]),
            ("llama_free", None, [pointer]),
            ("llama_batch_init", Batch, [integer, integer, integer]),
            ("llama_batch_free", None, [Batch]),
            ("llama_decode", integer, [pointer, Batch]),
            ("llama_get_logits", ctypes.POINTER(ctypes.c_float), [pointer]),
            ("llama_set_embeddings", None, [pointer, boolean]),
            ("llama_model_n_embd", integer, [pointer]),
            ("llama_get_embeddings_seq", ctypes.POINTER(ctypes.c_float), [pointer, integer])]:
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    defaults = library.llama_context_default_params()
    found = (defaults.n_ctx, defaults.n_ubatch, defaults.pooling, defaults.flash_attention, defaults.type_k, defaults.type_v)
    assert found == (512, 512, -1, -1, TYPE_F16, TYPE_F16), f"another layout of llama_context_params: {found}"
    return library


LIBRARY = load_library()
QUIET = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)
LIBRARY.llama_log_set(QUIET, None)


class Model:
    def __init__(self, path, vocab_only=False):
        params = LIBRARY.llama_model_default_params()
        params.vocab_only = vocab_only
        self.model = LIBRARY.llama_model_load_from_file(path.encode(), params)
        assert self.model, f"llama.cpp does not open {path}"
        self.vocab = LIBRARY.llama_model_get_vocab(self.model)
        self.vocabulary = LIBRARY.llama_vocab_n_tokens(self.vocab)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        LIBRARY.llama_model_free(self.model)

    def tokenize(self, text, begins=True, special=False):
        """Ids of a text; with `begins` after the token that begins texts where the model wants one, with `special`
        control tokens are recognised in it."""
        room = (ctypes.c_int32 * (len(text) + 8))()
        count = LIBRARY.llama_tokenize(self.vocab, text, len(text), room, len(room), begins, special)
        assert count >= 0
        return list(room[:count])

    def beginning(self):
        """The token that begins texts; None where the model wants none."""
        return LIBRARY.llama_vocab_bos(self.vocab) if LIBRARY.llama_vocab_get_add_bos(self.vocab) else None

    def ends(self):
        """The tokens that end generation."""
        return [i for i in range(self.vocabulary) if LIBRARY.llama_vocab_is_eog(self.vocab, i)]

    def compute(self, ids, context, read, pooling=-1):
        """The result of `read` for a session that has computed the ids at once. Keys and values are float32."""
        params = LIBRARY.llama_context_default_params()
        params.n_ctx = params.n_batch = params.n_ubatch = context
        params.n_threads = params.n_threads_batch = 1
        params.flash_attention = 0
        params.type_k = params.type_v = TYPE_F32
        params.pooling = pooling
        session = LIBRARY.llama_init_from_model(self.model, params)
        assert session, "llama.cpp gives no context"
        LIBRARY.llama_set_embeddings(session, pooling >= 0)
        batch = LIBRARY.llama_batch_init(len(ids), 0, 1)
        batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = token, i, 1, 0, 1
        status = LIBRARY.llama_decode(session, batch)
        assert status == 0, f"llama_decode gives {status}"
        values = read(session).astype(np.float64)
        LIBRARY.llama_batch_free(batch)
        LIBRARY.llama_free(session)
        return values

    def logits(self, ids, context):
        """Logits [ids][vocabulary]."""
        return self.compute(ids, context, lambda session: np.ctypeslib.as_array(
            LIBRARY.llama_get_logits(session), (len(ids), self.vocabulary)))

    def embedding(self, ids, context, pooling):
        """The embedding, not normalised; pooling: POOLING_MEAN or POOLING_LAST."""
        return self.compute(ids, context, lambda session: np.ctypeslib.as_array(
            LIBRARY.llama_get_embeddings_seq(session, 0), (LIBRARY.llama_model_n_embd(self.model),)), pooling)
