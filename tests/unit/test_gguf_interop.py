"""The Python package `gguf` and our reader and writer agree about files. Usage: test_gguf_interop.py PROGRAM"""

import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import numpy as np
    from gguf import GGMLQuantizationType as T
    from gguf import GGUFReader, GGUFValueType, GGUFWriter, quants
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

PROGRAM = sys.argv[1]
QUANTIZED = [T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0, T.BF16]
BLOCKS = [T.Q2_K, T.Q3_K, T.Q4_K, T.Q5_K, T.Q6_K, T.IQ4_NL, T.IQ4_XS, T.MXFP4]


def ours(*arguments):
    subprocess.run([PROGRAM, *map(str, arguments)], check=True)


def write_with_python(path, **options):
    rng = np.random.default_rng(1)
    writer = GGUFWriter(path, "sample", **options)
    writer.add_uint8("p.u8", 255)
    writer.add_int8("p.i8", -128)
    writer.add_uint16("p.u16", 65535)
    writer.add_int16("p.i16", -32768)
    writer.add_uint32("p.u32", 2**32 - 1)
    writer.add_int32("p.i32", -(2**31))
    writer.add_uint64("p.u64", 2**64 - 1)
    writer.add_int64("p.i64", -(2**63))
    writer.add_float32("p.f32", -0.1)
    writer.add_float64("p.f64", 1e300)
    writer.add_bool("p.no", False)
    writer.add_bool("p.yes", True)
    writer.add_string("p.text", "größe \U0001f600")
    writer.add_array("p.numbers", [1, -2, 3])
    writer.add_array("p.reals", [0.5, -1.25])
    writer.add_array("p.flags", [True, False, True])
    writer.add_array("p.texts", ["", "a", "ü" * 100])
    writer.add_key_value("p.bytes", list(range(256)), GGUFValueType.ARRAY, GGUFValueType.UINT8)
    writer.add_array("p.nested", [[1, 2], [3], [4, 5, 6]])
    writer.add_array("p.deep", [[["a"], ["b", "c"]], [["d"]]])
    writer.add_tensor("f32", rng.standard_normal((3, 5), dtype=np.float32))
    writer.add_tensor("f16", rng.standard_normal((2, 3, 4, 5)).astype(np.float16))
    writer.add_tensor("i8", np.arange(-3, 4, dtype=np.int8))
    writer.add_tensor("i64", np.arange(3, dtype=np.int64))
    for kind in QUANTIZED:
        data = quants.quantize(rng.standard_normal((3, 64), dtype=np.float32), kind)
        writer.add_tensor(kind.name.lower(), data, raw_dtype=kind)
    for kind in BLOCKS:
        elements, size = quants.GGML_QUANT_SIZES[kind]
        data = rng.integers(0, 256, (2, 512 // elements * size), dtype=np.uint8)
        writer.add_tensor(kind.name.lower(), data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def fields(reader):
    return {
        name: (field.types, [bytes(part) for part in field.parts])
        for name, field in reader.fields.items()
        if not name.startswith(("GGUF.", "split."))
    }


def same_tensors(left, right):
    assert [t.name for t in left] == [t.name for t in right]
    for a, b in zip(left, right):
        assert a.tensor_type == b.tensor_type and a.shape.tolist() == b.shape.tolist(), a.name
        assert np.array_equal(a.data.view(np.uint8), b.data.view(np.uint8)), a.name


def python_to_us(folder):
    source, copy = folder / "python.gguf", folder / "copy.gguf"
    write_with_python(source)
    ours("copy", source, copy)
    left, right = GGUFReader(source), GGUFReader(copy)
    assert fields(left) == fields(right)
    same_tensors(left.tensors, right.tensors)
    assert source.read_bytes() == copy.read_bytes(), "not the same bytes"


def python_split_to_us(folder):
    write_with_python(folder / "split.gguf", split_max_tensors=7)
    parts = sorted(folder.glob("split-*.gguf"))
    assert len(parts) == 3, parts
    ours("copy", parts[0], folder / "merged.gguf")
    readers, merged = [GGUFReader(part) for part in parts], GGUFReader(folder / "merged.gguf")
    assert fields(readers[0]) == fields(merged)
    same_tensors([tensor for reader in readers for tensor in reader.tensors], merged.tensors)


def us_to_python(folder):
    ours("sample", folder / "ours.gguf")
    reader = GGUFReader(folder / "ours.gguf")
    expected = {
        "GGUF.version": ("UINT32", 3),
        "general.architecture": ("STRING", "sample"),
        "general.alignment": ("UINT32", 64),
        "s.u8": ("UINT8", 200),
        "s.i8": ("INT8", -5),
        "s.u16": ("UINT16", 60000),
        "s.i16": ("INT16", -30000),
        "s.u32": ("UINT32", 4000000000),
        "s.i32": ("INT32", -2000000000),
        "s.f32": ("FLOAT32", 1.5),
        "s.bool": ("BOOL", True),
        "s.u64": ("UINT64", 2**64 - 1),
        "s.i64": ("INT64", -(2**63)),
        "s.f64": ("FLOAT64", 0.1),
        "s.texts": ("ARRAY", ["one", "", "grüß"]),
    }
    for key, (kind, value) in expected.items():
        field = reader.fields[key]
        assert (field.types[0].name, field.contents()) == (kind, value), key
    matrix, numbers = reader.tensors
    assert matrix.name == "matrix" and matrix.data.tolist() == [[0, 1, 2], [10, 11, 12]]
    assert numbers.name == "bytes" and numbers.data.tolist() == [1, 2, 3, 4, -1]
    assert matrix.data_offset % 64 == 0 and numbers.data_offset % 64 == 0


with tempfile.TemporaryDirectory() as name:
    for check in (python_to_us, python_split_to_us, us_to_python):
        check(Path(name))
        print(f"{check.__name__}: the same")
