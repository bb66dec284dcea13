"""Ids against llama.cpp's own, which the package xllamacpp carries, on random text.

Every vocabulary of the shared test data and the default model, with and without special tokens, and the tokens that end
generation; then the vocabulary of GPT-2 under the name of every pre-tokenizer.
"""
import os
import random
import struct
import subprocess
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(__file__), "..", "models"))
try:
    import llama_cpp
except ImportError as missing:
    print("skipped:", missing)
    sys.exit(77)

TOOL = sys.argv[1]
CHARACTERS = int(sys.argv[2]) if len(sys.argv) > 2 else 20000
DATA = os.environ.get("SALVO_TEST_DATA") or os.path.join(os.environ.get("SALVO_SOURCE", "."), "..", "shared", "data")
CACHE = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
SPECIAL = 1  # TOKENIZE_SPECIAL


def tokenize_there(path, flags, texts):
    """A list of ids for each text, and the tokens that end generation."""
    with llama_cpp.Model(path, vocab_only=True) as model:
        return [model.tokenize(text, begins=False, special=bool(flags & SPECIAL)) for text in texts], model.ends()


def tokenize_here(path, flags, texts):
    data = b"".join(struct.pack("<I", len(text)) + text for text in texts)
    done = subprocess.run([TOOL, path, str(flags)], input=data, capture_output=True, check=True)
    lines = [[int(number) for number in line.split()] for line in done.stdout.decode().splitlines()]
    return lines[:-1], lines[-1]


# Unicode 15.1 gave these a meaning that the tables here (15.0) do not know yet.
TOO_NEW = [range(0x2FFC, 0x3000), range(0x31EF, 0x31F0), range(0x2EBF0, 0x2EE5E)]
SURROGATES = range(0xD800, 0xE000)
INTERESTING = ["  ", "\n", "\r\n", "\t", "\u3000", "\u00a0", "\u2028", "\x0b", "'s", "'S", "'ll", "'Ve", "'", "I'm", "1",
               "12", "1234", "٣", "½", "Ⅷ", "a", "Z", "Word", "ABC", "camelCase", "é", "e\u0301", "ß", "Ж", "жЖ", "中文", "日本", "カナ",
               "한국", "ก็", "हिन्दी", "🚀", "👩‍👩‍👧", "!", "...", "-", "_", "/", "//", "~", "`", "$", "+=", "<|", "|>", "(", ")", "。", "，", "…", "«", "\x00",
               "\x7f", "\u200b", "\ufeff", "\ufffd", "ſ", "ǅ", "\u0378", "\U000e0100", "ﬁ", "Ａ", "！", "‘", "’s"]


def random_text(rng, size, extra):
    parts = []
    while size > 0:
        kind = rng.random()
        if kind < 0.35:
            part = rng.choice(INTERESTING)
        elif kind < 0.6:
            part = " " * rng.choice([1, 1, 1, 2, 3])
        elif kind < 0.8:
            part = "".join(rng.choice("etaoinshrdlucmfwypvbgkjqxz") for _ in range(rng.randint(1, 8)))
        elif kind < 0.85 and extra:
            part = rng.choice(extra)
        else:
            code = rng.randrange(rng.choice([0x80, 0x300, 0x3000, 0x10000, 0x20000, 0x110000]))
            if code in SURROGATES or any(code in new for new in TOO_NEW):
                continue
            part = chr(code)
        parts.append(part)
        size -= len(part)
    return "".join(parts)


def random_texts(seed, extra=()):
    rng = random.Random(seed)
    texts = []
    left = CHARACTERS
    while left > 0:
        size = rng.choice([1, 2, 3, 5, 10, 50, 300])
        texts.append(random_text(rng, size, extra).encode())
        left -= size
    return texts


def compare(name, path, flags, texts, ends_too=True):
    there, there_ends = tokenize_there(path, flags, texts)
    here, here_ends = tokenize_here(path, flags, texts)
    different = [i for i in range(len(texts)) if here[i] != there[i]]
    if different:
        worst = min(different, key=lambda i: len(texts[i]))
        print(f"{name}: {len(different)} of {len(texts)} texts differ; the shortest is {texts[worst].decode()!r}")
        print("  here ", here[worst])
        print("  there", there[worst])
    if ends_too and here_ends != there_ends:
        print(f"{name}: generation ends at {here_ends} here, at {there_ends} there")
        return False
    return not different


def with_pre_tokenizer(source, name, folder):
    """A copy of a file without tensors in which tokenizer.ggml.pre is `name`."""
    key = b"tokenizer.ggml.pre" + struct.pack("<I", 8)
    with open(source, "rb") as file:
        data = file.read()
    at = data.index(key) + len(key)
    size = struct.unpack_from("<Q", data, at)[0]
    path = os.path.join(folder, "variant.gguf")
    with open(path, "wb") as file:
        file.write(data[:at] + struct.pack("<Q", len(name)) + name.encode() + data[at + 8 + size:])
    return path


def main():
    if not os.path.isdir(os.path.join(DATA, "tokenizers")):
        print("skipped: no test data at", DATA)
        sys.exit(77)
    good = True
    paths = {name: os.path.join(DATA, "tokenizers", name + ".gguf")
             for name in ("gpt-2", "starcoder", "llama-spm", "rwkv-world")}
    default_model = os.path.join(CACHE, "salvo", "models", "SmolLM2-135M-Instruct.Q4_1.gguf")
    if os.path.exists(default_model):
        paths["default model"] = default_model
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<fim_prefix>", "<|im_end", "</s>", "<unk>"]
    for seed, (name, path) in enumerate(paths.items()):
        good &= compare(name, path, 0, random_texts(seed))
        good &= compare(name + ", special", path, SPECIAL, random_texts(seed + 100, specials))

    names = subprocess.run([TOOL], capture_output=True, check=True).stdout.decode().split()
    with tempfile.TemporaryDirectory() as folder:
        for seed, name in enumerate(names):
            variant = with_pre_tokenizer(paths["gpt-2"], name, folder)
            good &= compare(name, variant, 0, random_texts(seed + 1000))
    print(f"{len(paths)} vocabularies and {len(names)} pre-tokenizers", "agree" if good else "do NOT all agree")
    sys.exit(0 if good else 1)


main()
