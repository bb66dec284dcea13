"""The JSON reader and writer against Python's: random documents, and the same with a few bytes changed. Usage: test_json_python.py json_tool [count]"""
import json
import math
import random
import struct
import subprocess
import sys

TOOL, COUNT = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 3000
CHARACTERS = 'abc 012"\\/\b\f\n\r\t\0\x1f\x7f\x80é€߿ࠀ\ud7ff\ue000�\uffff\U00010000😀\U0010ffff'
SPLICES = [b'"', b"\\", b"\\u", b"\\ud800", b"\\udc00", b"[", b"]", b"{", b"}", b",", b":", b"0", b"-", b"+", b".", b"e", b"1e999",
           b"null", b"NaN", b"\xc3", b"\x80", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\n", b"\0", b" "]


def number(r):
    kind = r.randrange(4)
    if kind == 0:
        return r.randrange(-2**63, 2**63)
    if kind == 1:
        return r.choice([0, 1, -1, 2**63 - 1, -2**63, 2**53 + 1, 0.1, -0.0, 1e22, 5e-324, 1.7976931348623157e308, 1e16, 123456.75])
    value = struct.unpack("<d", r.randbytes(8))[0] if kind == 2 else r.uniform(-1000, 1000)
    return value if math.isfinite(value) else 0.5


def document(r, depth=0):
    kind = r.randrange(9 if depth < 5 else 6)
    if kind < 3:
        return r.choice([None, True, False]) if kind == 0 else number(r)
    if kind < 6:
        return "".join(r.choice(CHARACTERS) for _ in range(r.randrange(12)))
    if kind < 8:
        return [document(r, depth + 1) for _ in range(r.randrange(5))]
    return {"".join(r.choice(CHARACTERS) for _ in range(r.randrange(3))): document(r, depth + 1) for _ in range(r.randrange(5))}


def change(r, text):
    for _ in range(r.randrange(1, 4)):
        begin = r.randrange(len(text) + 1)
        text = text[:begin] + r.choice([b"", r.choice(SPLICES), r.randbytes(1)]) + text[min(len(text), begin + r.randrange(3)):]
    return text


def refuse(name):
    raise ValueError(name)


def finite(text):
    value = float(text)
    return value if math.isfinite(value) else refuse(text)


def read(text):
    """The value with objects as lists of pairs; integers beyond 64 bits are doubles, as in salvo."""
    def integer(digits):
        value = int(digits)
        return value if -2**63 <= value < 2**63 else finite(digits)

    def pairs(items):
        return ("object", items)
    value = json.loads(text.decode(), parse_constant=refuse, parse_float=finite, parse_int=integer, object_pairs_hook=pairs)
    json.dumps(value, ensure_ascii=False).encode()  # raises on an unpaired surrogate
    return value


def same(left, right):
    if isinstance(left, (list, tuple)):
        return type(left) is type(right) and len(left) == len(right) and all(same(a, b) for a, b in zip(left, right))
    if isinstance(left, float) or isinstance(right, float):  # the writer writes 1.0 as 1
        return not isinstance(left, bool) and left == right and math.copysign(1, left) == math.copysign(1, right)
    return type(left) is type(right) and left == right


def main():
    r = random.Random(7)
    cases = []
    for _ in range(COUNT):
        text = json.dumps(document(r), ensure_ascii=r.random() < 0.5, indent=r.choice([None, None, 1])).encode()
        cases += [text, change(r, text), change(r, text)]
    cases = [text for text in cases if len(text) < 2**16]
    data = b"".join(struct.pack("<I", len(text)) + text for text in cases)
    good = bad = failures = 0
    for piece in ("0", "3"):
        out = subprocess.run([TOOL, piece], input=data, capture_output=True, check=True).stdout
        at = 0
        for text in cases:
            failed, size = out[at], struct.unpack_from("<I", out, at + 1)[0]
            answer, at = out[at + 5:at + 5 + size], at + 5 + size
            try:
                expected = read(text)
            except (ValueError, RecursionError):
                bad += 1
                wrong = not failed
            else:
                good += 1
                wrong = failed or not same(expected, read(answer))
            if wrong:
                failures += 1
                print(f"piece {piece}: {text!r}\n  {answer!r}")
        assert at == len(out), "too much output"
    print(f"{good} accepted, {bad} refused, {failures} differ")
    assert good > COUNT and bad > COUNT / 2
    return 1 if failures else 0


sys.exit(main())
