"""Embeddings of every family against a reference in float64 and against llama.cpp.

Arguments: the program salvo, then names of cases of arch_cases.py (a few when there are none; "all"). Keys and values are
float32 like the weights. A text at once, in chunks of a few tokens and one by one must have equal bits.
"""
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import arch_cases
    import arch_reference
except ImportError as missing:
    print("skipped:", missing)
    sys.exit(77)
try:
    import llama_cpp
except ImportError as missing:
    print("no comparison with llama.cpp:", missing)
    llama_cpp = None

LIMIT, LIMIT_THERE = 5e-5, 2e-4  # relative to the length of the embedding
USUAL = ["llama", "qwen3", "rwkv7", "arwkv7"]
POOLINGS = {"mean": 1, "last": 3}

# As in test_arch_logits.py, for reasons that it names.
UNREAD_THERE = {"phi3-window": ["attention.sliding_window"],
                "qwen2-yarn": ["rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow"]}
REFUSED_THERE = ["llama-partial", "rwkv7-heads"]


def hidden_rows(model, ids, without=()):
    """The rows that the output matrix multiplies: logits with a matrix that changes nothing."""
    keys = {key: value for key, value in model.keys.items() if key not in without and "softcapping" not in key}
    keys |= {key: value for key, value in model.keys.items() if key == "attn_logit_softcapping"}
    tensors = {name: values for name, values in model.tensors.items() if name != "output.bias"}
    tensors["output.weight"] = np.eye(model.width)
    if model.architecture == "gemma2":
        keys["final_logit_softcapping"] = 1e9  # which is on by default
    return arch_reference.logits(model.architecture, keys, tensors, ids, model.context)


def run_salvo(program, path, model, ids, *arguments):
    out = subprocess.run([program, "embed", "-q", "-m", path, "-t", "1", "--backend", "cpu", "-c", str(model.context), "--kv-type",
                          "f32", "--tokens", ",".join(map(str, ids)), *arguments], check=True, capture_output=True)
    return np.array(out.stdout.split(), np.float64)


def difference(values, expected):
    return np.linalg.norm(values - expected) / np.linalg.norm(expected)


def pool(rows, pooling):
    return rows.mean(0) if pooling == "mean" else rows[-1]


def check(program, name, folder):
    model = arch_cases.Model(*arch_cases.CASES[name])
    path, mistakes, line = os.path.join(folder, name + ".gguf"), [], f"{name:<16}"
    model.write(path)
    for pooling in POOLINGS:
        expected = pool(hidden_rows(model, model.ids), pooling)
        plain = run_salvo(program, path, model, model.ids, "--pooling", pooling, "--no-normalize")
        error = difference(plain, expected)
        line += f" {pooling} {error:8.1e} from the reference"
        if not error <= LIMIT:
            mistakes.append(f"the limit is {LIMIT:.1e}")
        for batch in (1, 5):
            again = run_salvo(program, path, model, model.ids, "--pooling", pooling, "--no-normalize", "-b", str(batch))
            if again.tobytes() != plain.tobytes():
                mistakes.append(f"chunks of {batch} give other bits")
        normed = run_salvo(program, path, model, model.ids, "--pooling", pooling)
        if not difference(normed, plain / np.linalg.norm(plain)) <= 1e-6:
            mistakes.append(f"the length of the normalised one is {np.linalg.norm(normed)}")
        if llama_cpp and name not in REFUSED_THERE and not model.architecture.startswith("gemma"):
            expected = pool(hidden_rows(model, model.ids, UNREAD_THERE.get(name, [])), pooling)
            with llama_cpp.Model(path) as there:
                error = difference(there.embedding(model.ids, model.context, POOLINGS[pooling]), expected)
            line += f", llama.cpp {error:8.1e};"
            if not error <= LIMIT_THERE:
                mistakes.append(f"the limit of llama.cpp is {LIMIT_THERE:.1e}")
    one = difference(run_salvo(program, path, model, model.ids[:1], "--no-normalize"), hidden_rows(model, model.ids[:1])[0])
    if not one <= LIMIT:
        mistakes.append(f"a single token is {one:.1e} from the reference")
    print("; ".join([line] + mistakes), flush=True)
    return not mistakes


def main():
    program, names = sys.argv[1], sys.argv[2:] or USUAL
    with tempfile.TemporaryDirectory() as folder:
        failed = [name for name in (arch_cases.CASES if names == ["all"] else names) if not check(program, name, folder)]
    if failed:
        sys.exit("failed: " + ", ".join(failed))
    sys.exit(0 if llama_cpp else 77)


main()
