#!/usr/bin/env python3
"""The logits of every architecture of the Llama family beside llama.cpp's, on small random models.

The peer is PyPI's llama-cpp-python; the package gguf writes the models:
    python3 -m venv VENV && VENV/bin/pip install llama-cpp-python gguf
    VENV/bin/python bench/arch-against-llama.cpp [--salvo PROGRAM] [CASE...]

Weights and KV cache are float32, so that what is left is the order of additions; llama.cpp takes GELU from a table of
half floats, hence the wider bound of those cases. The exit status is 1 when a case is out of bounds.
"""
import argparse
import os
import subprocess
import sys
import tempfile

import gguf
import llama_cpp
import numpy as np

WIDTH, HEADS, KV_HEADS, FEED_FORWARD, VOCABULARY, TOKENS, CONTEXT = 64, 4, 2, 96, 64, 48, 128


def yarn(factor, original, attention=1.0):
    return {"rope.scaling.type": "yarn", "rope.scaling.factor": factor,
            "rope.scaling.original_context_length": original, "rope.scaling.attn_factor": attention}


LONG = {"rope_factors_long.weight": [4, 5, 6, 7], "rope_factors_short.weight": [1, 1.1, 1.2, 1.3]}
GEMMA = {"head_dim": 24, "post_norms": True, "gelu": True}
PHI3 = {"fused": True, "rotated": 8, "own_output": True}

# What differs from a plain Llama with 7 layers and heads of 16.
CASES = {
    "llama": ("llama", {"own_output": True, "biases": ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_down"]}),
    "llama-linear": ("llama", {"keys": {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}}),
    "llama-factors": ("llama", {"base": 5e5, "vectors": {"rope_freqs.weight": [1, 1, 1.5, 2, 4, 8, 8, 8]}}),
    "llama-yarn": ("llama", {"keys": yarn(4.0, 128)}),
    "qwen2": ("qwen2", {"biases": ["attn_q", "attn_k", "attn_v"]}),
    "qwen2-yarn": ("qwen2", {"biases": ["attn_q", "attn_k", "attn_v"], "base": 1e6, "keys": yarn(8.0, 64, 1.3)}),
    "qwen3": ("qwen3", {"head_dim": 24, "qk_norms": True, "own_output": True}),
    "smollm3": ("smollm3", {}),
    "phi3": ("phi3", PHI3),
    "phi3-long": ("phi3", PHI3 | {"vectors": LONG, "keys": {"rope.scaling.original_context_length": 64,
                                                            "rope.scaling.attn_factor": 1.2}}),
    "phi3-short": ("phi3", PHI3 | {"vectors": LONG, "keys": {"rope.scaling.original_context_length": 256,
                                                             "rope.scaling.attn_factor": 1.2}}),
    "gemma": ("gemma", {"head_dim": 24, "gelu": True}),
    "gemma2": ("gemma2", GEMMA | {"keys": {"attention.sliding_window": 8, "attn_logit_softcapping": 5.0,
                                           "final_logit_softcapping": 3.0}}),
    "gemma2-defaults": ("gemma2", GEMMA),
    "gemma2-largest": ("gemma2", GEMMA | {"layers": 46}),
    "gemma3": ("gemma3", GEMMA | {"qk_norms": True, "base": 1e6,
                                  "keys": {"attention.sliding_window": 8, "rope.scaling.type": "linear",
                                           "rope.scaling.factor": 8.0}}),
    "gemma3-global": ("gemma3", GEMMA | {"qk_norms": True, "base": 1e6}),
    "gemma3-largest": ("gemma3", GEMMA | {"qk_norms": True, "base": 1e6, "layers": 62,
                                          "keys": {"attention.sliding_window": 8}}),
}


def add_key(writer, key, value):
    if isinstance(value, str):
        writer.add_string(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    else:
        writer.add_float32(key, value)


def write_model(path, architecture, options, random):
    layers, head_dim = options.get("layers", 7), options.get("head_dim", 16)
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_tokenizer_model("no_vocab")
    keys = {"vocab_size": VOCABULARY, "context_length": 512, "embedding_length": WIDTH, "block_count": layers,
            "feed_forward_length": FEED_FORWARD, "attention.head_count": HEADS, "attention.head_count_kv": KV_HEADS,
            "attention.key_length": head_dim, "attention.value_length": head_dim,
            "attention.layer_norm_rms_epsilon": 1e-6, "rope.dimension_count": options.get("rotated", head_dim),
            "rope.freq_base": options.get("base", 1e4)} | options.get("keys", {})
    for key, value in keys.items():
        add_key(writer, f"{architecture}.{key}", value)

    def add(name, values):
        writer.add_tensor(name, values.astype(np.float32))

    def matrix(name, rows, columns):
        add(name + ".weight", random.standard_normal((rows, columns)) * 1.5 / np.sqrt(columns))

    def norm(name, columns):
        add(name + ".weight", 1 + 0.2 * random.standard_normal(columns))

    matrix("token_embd", VOCABULARY, WIDTH)
    norm("output_norm", WIDTH)
    if options.get("own_output"):
        matrix("output", VOCABULARY, WIDTH)
    for name, values in options.get("vectors", {}).items():
        add(name, np.array(values))
    queries, kv = HEADS * head_dim, KV_HEADS * head_dim
    outputs = {"attn_q": queries, "attn_k": kv, "attn_v": kv, "ffn_gate": FEED_FORWARD, "ffn_up": FEED_FORWARD}
    if options.get("fused"):
        outputs = {"attn_qkv": queries + 2 * kv, "ffn_up": 2 * FEED_FORWARD}
    for i in range(layers):
        layer = f"blk.{i}."
        for name, rows in outputs.items():
            matrix(layer + name, rows, WIDTH)
        matrix(layer + "attn_output", WIDTH, queries)
        matrix(layer + "ffn_down", WIDTH, FEED_FORWARD)
        for name in options.get("biases", []):
            add(layer + name + ".bias", 0.3 * random.standard_normal(outputs.get(name, WIDTH)))
        norm(layer + "attn_norm", WIDTH)
        norm(layer + "ffn_norm", WIDTH)
        if options.get("qk_norms"):
            norm(layer + "attn_q_norm", head_dim)
            norm(layer + "attn_k_norm", head_dim)
        if options.get("post_norms"):
            norm(layer + "post_attention_norm", WIDTH)
            norm(layer + "post_ffw_norm", WIDTH)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def run_peer(path, ids):
    model = llama_cpp.Llama(path, n_ctx=CONTEXT, n_batch=CONTEXT, n_ubatch=CONTEXT, n_threads=1, logits_all=True,
                            verbose=False, type_k=0, type_v=0, flash_attn=False)
    model.eval(ids)
    logits = np.array(model.scores[:len(ids)], dtype=np.float64)
    model.close()
    return logits


def run_salvo(program, path, ids):
    out = path + ".f32"
    subprocess.run([program, "eval", "-q", "-m", path, "-c", str(CONTEXT), "--kv-type", "f32", "--all", "--logits", out,
                    "--tokens", ",".join(map(str, ids))], check=True)
    return np.fromfile(out, np.float32).reshape(len(ids), VOCABULARY)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--salvo", default=os.path.join(os.path.dirname(__file__), "..", "build", "salvo"))
    parser.add_argument("cases", nargs="*", metavar="CASE", help="of " + ", ".join(CASES))
    arguments = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.cases or CASES:
            architecture, options = CASES[name]
            random = np.random.default_rng(7)
            path = os.path.join(folder, name + ".gguf")
            write_model(path, architecture, options, random)
            ids = random.integers(0, VOCABULARY, TOKENS).tolist()
            theirs, ours = run_peer(path, ids), run_salvo(arguments.salvo, path, ids)
            error, largest = np.abs(ours - theirs).max(), np.abs(theirs).max()
            # A NaN is not within bounds either.
            within = bool(error <= largest * (1e-2 if options.get("gelu") else 5e-5))
            failed |= not within
            print(f"{name:<16} largest difference {error:.2g}, largest logit {largest:.2g}"
                  f"{'' if within else '  OUT OF BOUNDS'}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
