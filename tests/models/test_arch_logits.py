"""The logits of every architecture against a reference in float64 and against llama.cpp.

Arguments: the program salvo, then names of cases (all of arch_cases.py when there are none). Keys and values are
float32 like the weights, so that what is left between two implementations is the order of additions. A prompt at once
and token by token must have equal bits.
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

# Differences relative to the largest logit.
LIMIT, LIMIT_THERE = 5e-5, 2e-4

# Keys that llama.cpp does not read: sliding windows of phi3, and where the ramp of YaRN begins and ends.
UNREAD_THERE = {"phi3-window": ["attention.sliding_window"],
                "qwen2-yarn": ["rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow"]}
# llama.cpp refuses a Llama whose heads are rotated in part. With AVX-512 its wkv7 reads 64 values at a time, past the end of
# smaller heads.
REFUSED_THERE = ["llama-partial", "rwkv7-heads"]


def run_salvo(program, path, model, batch):
    out = path + ".f32"
    subprocess.run([program, "eval", "-q", "-m", path, "-t", "1", "--backend", "cpu", "-c", str(model.context), "-b", str(batch),
                    "--kv-type", "f32", "--all", "--force", "--logits", out, "--tokens", ",".join(map(str, model.ids))], check=True)
    return np.fromfile(out, np.float32).reshape(len(model.ids), model.vocabulary)


def difference(logits, expected):
    return np.abs(logits - expected).max() / np.abs(expected).max()


def difference_there(name, model, path, expected):
    """How far llama.cpp is from the reference, which then does without the keys that llama.cpp does not read.

    On CPUs llama.cpp takes GELU of inputs from -10 to 10 from a table of half floats, which is 1e-4 to 1e-2 of the
    logits; with gates beyond that range it is as close as without GELU.
    """
    unread = UNREAD_THERE.get(name, [])
    is_gemma = model.architecture.startswith("gemma")
    if is_gemma:
        model.sharpen_gates()
        model.write(path)
    if unread or is_gemma:
        keys = {key: value for key, value in model.keys.items() if key not in unread}
        expected = arch_reference.logits(model.architecture, keys, model.tensors, model.ids, model.context)
    with llama_cpp.Model(path) as there:
        return difference(there.logits(model.ids, model.context), expected)


def check(program, name, folder):
    model = arch_cases.Model(*arch_cases.CASES[name])
    path = os.path.join(folder, name + ".gguf")
    model.write(path)
    expected = arch_reference.logits(model.architecture, model.keys, model.tensors, model.ids, model.context)
    at_once, one_by_one = run_salvo(program, path, model, 512), run_salvo(program, path, model, 1)
    error, mistakes = difference(at_once, expected), []
    line = f"{name:<16} {error:8.1e} from the reference"
    if not error <= LIMIT:  # a NaN is a mistake, too
        first = np.flatnonzero(~(np.abs(at_once - expected).max(-1) <= LIMIT * np.abs(expected).max()))[0]
        mistakes.append(f"the limit is {LIMIT:.1e}, beyond it from position {first} on")
    if at_once.tobytes() != one_by_one.tobytes():
        first = np.flatnonzero((at_once != one_by_one).any(-1))
        mistakes.append(f"token by token gives other bits at positions {first[:5]}")
    if llama_cpp and name not in REFUSED_THERE:
        error = difference_there(name, model, path, expected)
        line += f"; llama.cpp {error:8.1e}"
        if not error <= LIMIT_THERE:
            mistakes.append(f"the limit of llama.cpp is {LIMIT_THERE:.1e}")
    print("; ".join([line] + mistakes), flush=True)
    return not mistakes


def main():
    program, names = sys.argv[1], sys.argv[2:] or arch_cases.CASES
    with tempfile.TemporaryDirectory() as folder:
        failed = [name for name in names if not check(program, name, folder)]
    if failed:
        sys.exit("failed: " + ", ".join(failed))
    sys.exit(0 if llama_cpp else 77)


main()
