"""Block formats against their references.

Dequantising must agree with the Python package gguf bit for bit on random bytes and on awkward scales. Quantising a
million Gaussian values must leave at most 1.01 times the RMS error of llama.cpp's quantiser, which the package
xllamacpp carries. For fewer values of other distributions the ratio is only printed.
"""
import ctypes
import glob
import os
import subprocess
import sys

try:
    import gguf
    import numpy as np
except ImportError as missing:
    print("skipped:", missing)
    sys.exit(77)

FORMATS = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K",
           "IQ4_NL", "IQ4_XS", "MXFP4"]

# Byte offsets of the f16 scales of a block.
SCALES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0]}

# Zero, denormals, one, the largest, infinity and NaN, with both signs.
AWKWARD = [sign | half for sign in (0, 0x8000)
           for half in (0, 1, 2, 0x200, 0x3ff, 0x400, 0x3c00, 0x7bff, 0x7c00, 0x7c01, 0x7e00, 0x7fff)]

LIMIT = 1.01
TOOL = sys.argv[1]
random = np.random.default_rng(20240229)


def run(mode, name, data):
    done = subprocess.run([TOOL, mode, name], input=data.tobytes(), capture_output=True, check=True)
    return done.stdout, done.stderr


def dequantize_here(name, blocks):
    return np.frombuffer(run("dequantize", name, blocks)[0], np.float32)


def dequantize_there(name, blocks):
    with np.errstate(all="ignore"):
        return np.asarray(gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType[name]), np.float32).ravel()


def random_blocks(name):
    """Random bytes, the first of them with every pair of awkward scales."""
    size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]][1]
    blocks = random.integers(0, 256, (4096, size), dtype=np.uint8)
    offsets = SCALES.get(name, [])
    if offsets:
        pairs = [(first, second) for first in AWKWARD for second in AWKWARD]
        for block, pair in zip(blocks, pairs):
            for offset, half in zip(offsets, pair):
                block[offset:offset + 2] = np.frombuffer(np.uint16(half).tobytes(), np.uint8)
    elif name == "MXFP4":
        blocks[:, 0] = np.arange(4096) % 256
    elif name in ("F16", "BF16"):
        blocks = np.arange(65536, dtype=np.uint16).view(np.uint8)
    return blocks.ravel()


def check_dequantize(name):
    blocks = random_blocks(name)
    here, there = dequantize_here(name, blocks), dequantize_there(name, blocks)
    assert here.size == there.size, name
    numbers = ~np.isnan(there)
    assert np.array_equal(np.isnan(here), ~numbers), f"{name}: NaN in other places"
    different = np.flatnonzero(here.view(np.uint32)[numbers] != there.view(np.uint32)[numbers])
    assert different.size == 0, f"{name}: {different.size} values differ, the first at {different[0]}"


def find_llama():
    try:
        import xllamacpp
    except ImportError as missing:
        print("no comparison with llama.cpp:", missing)
        return None
    for path in glob.glob(os.path.join(os.path.dirname(xllamacpp.__file__), "*.so")):
        library = ctypes.CDLL(path)
        if hasattr(library, "ggml_quantize_chunk"):
            chunk = library.ggml_quantize_chunk
            chunk.restype = ctypes.c_size_t
            chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p] + [ctypes.c_int64] * 3 + [ctypes.c_void_p]
            return chunk
    return None


def quantize_there(chunk, name, values):
    kind = gguf.GGMLQuantizationType[name]
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = np.zeros(values.size // elements * size, np.uint8)
    columns = 4096
    written = chunk(int(kind), values.ctypes.data, blocks.ctypes.data, 0, values.size // columns, columns, None)
    assert written == blocks.size, name
    return blocks


def rms_error(name, values, blocks):
    difference = dequantize_there(name, np.frombuffer(blocks, np.uint8)).astype(np.float64) - values
    return np.sqrt(np.mean(difference ** 2))


def check_quantize(chunk, samples):
    print(f"{'RMS error over llama.cpp':24}" + "".join(f"{sample:>12}" for sample in samples) + "   elements/s")
    failed = []
    for name in FORMATS[1:]:
        row = f"{name:24}"
        for sample, values in samples.items():
            blocks, speed = run("quantize", name, values)
            if sample == "gauss":
                gauss_speed = float(speed)
            ratio = rms_error(name, values, blocks) / rms_error(name, values, quantize_there(chunk, name, values))
            row += f"{ratio:12.4f}"
            if sample == "gauss" and ratio > LIMIT:
                failed.append(name)
        print(row + f"{gauss_speed / 1e6:12.1f}M", flush=True)
    assert not failed, f"worse than llama.cpp: {failed}"


def main():
    for name in FORMATS:
        check_dequantize(name)
    print("dequantising: equal bits for", " ".join(FORMATS))
    chunk = find_llama()
    if chunk is None:
        sys.exit(77)
    few = 1 << 17
    check_quantize(chunk, {name: values.astype(np.float32) for name, values in {
        "gauss": random.standard_normal(1 << 20),
        "gauss/50": random.standard_normal(few) / 50,
        "laplace": random.laplace(size=few),
        "student": random.standard_t(4, few) / 50,
        "uniform": random.random(few),
    }.items()})


main()
