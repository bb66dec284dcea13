"""Random regular expressions and texts, against Python's re with ASCII classes; also as patterns of JSON Schema,
which match parts of strings, with anchors and lookaround."""
import json
import random
import re
import sys
import unicodedata

from grammar_tool import exchange

TOOL = sys.argv[1]
COUNT = int(sys.argv[2]) if len(sys.argv) > 2 else 2000
ALPHABET = list("abcAB01_ -.\n\t") + ["é", "ß", "中", "🚀", "\u07ff", "\u0800", "\uffff", "\U00010000", "\x7f", "\x80"]
SPECIAL = set(".^$*+?{}[]\\|()")


def literal(rng):
    c = rng.choice(ALPHABET + list("{}[]().*"))
    return "\\" + c if c in SPECIAL else c


def char_class(rng):
    parts = []
    for _ in range(rng.randint(1, 3)):
        kind = rng.random()
        if kind < 0.3:
            low, high = sorted(rng.sample(range(0x20, 0x3000), 2)) if rng.random() < 0.5 else sorted(rng.sample(range(0x61, 0x7b), 2))
            parts.append("".join("\\u%04x" % c for c in [low]) + "-" + "\\u%04x" % high)
        elif kind < 0.5:
            parts.append(rng.choice(["\\d", "\\w", "\\s", "\\D", "\\S", "\\W"]))
        else:
            c = rng.choice(ALPHABET)
            parts.append("\\" + c if c in "-.^]\\" else c)
    return "[" + rng.choice(["", "^"]) + "".join(parts) + "]"


def expression(rng, depth):
    kind = rng.random()
    if depth == 0 or kind < 0.25:
        return rng.choice([literal, literal, lambda r: ".", lambda r: r.choice(["\\d", "\\w", "\\s", "\\n", "\\x41", "\\u4e2d"]), char_class])(rng)
    if kind < 0.5:
        return "".join(expression(rng, depth - 1) for _ in range(rng.randint(1, 3)))
    if kind < 0.7:
        return rng.choice(["(", "(?:"]) + "|".join(expression(rng, depth - 1) if rng.random() < 0.95 else "" for _ in range(rng.randint(1, 3))) + ")"
    low = rng.randint(0, 3)
    repeat = rng.choice(["*", "+", "?", "*?", "{%d}" % low, "{%d,}" % low, "{%d,%d}" % (low, low + rng.randint(0, 3))])
    return "(?:" + expression(rng, depth - 1) + ")" + repeat


def search_expression(rng):
    """An alternative with anchors, also within groups, or with lookaround outside of groups."""
    parts = [expression(rng, rng.randint(0, 2)) for _ in range(rng.randint(1, 3))]
    place = rng.randint(0, len(parts))
    if rng.random() < 0.5:
        kind = rng.choice(["(?=%s)", "(?!%s)", "(?<=%s)", "(?<!%s)"])
        parts.insert(place, kind % (literal(rng) if "<" in kind else expression(rng, 1)))
    else:
        group = rng.choice(["(^|%s)", "(%s|$)", "(?:^%s)?", "(%s$)?", "(^|$|%s)", "(^(^%s|a)$)"])
        parts.insert(place, group % expression(rng, 1))
    return rng.choice(["", "^"]) + "".join(parts) + rng.choice(["", "$"])


def sample(rng, size):
    return "".join(rng.choice(ALPHABET) for _ in range(size))


def mutate(rng, text):
    """A text near one that matches is more telling than a random one."""
    text = list(text)
    for _ in range(rng.randint(0, 2)):
        place = rng.randint(0, len(text))
        if rng.random() < 0.5:
            text.insert(place, rng.choice(ALPHABET))
        elif place < len(text):
            del text[place]
    return "".join(text)


def stable_characters(rng):
    """Characters of each category that had it already in an early version of Unicode: libraries have various versions."""
    found = {}
    for code in range(0x110000):
        category = unicodedata.category(chr(code))
        if category not in ("Cn", "Cs") and unicodedata.ucd_3_2_0.category(chr(code)) == category:
            found.setdefault(category, []).append(chr(code))
    return {name: sorted(rng.sample(chars, min(8, len(chars)))) for name, chars in found.items()}


def add_properties(rng, messages, expected):
    """General categories, alone and in classes, against Python's unicodedata."""
    chars = stable_characters(rng)
    names = {name: (name,) for name in chars} | {name: tuple(c for c in chars if c[0] == name) for name in "LMNPSZC"}
    names |= {"LC": ("Lu", "Ll", "Lt"), "Letter": names["L"], "General_Category=Decimal_Number": ("Nd",), "gc=Sm": ("Sm",), "punct": names["P"],
              "Any": tuple(chars), "Assigned": tuple(chars)}
    for name, categories in sorted(names.items()):
        inside = "\\p{%s}" % name
        for pattern, others, inverted in ((inside, "", False), ("[-%s_]" % inside, "-_", False), ("\\P{%s}" % name, "", True),
                                          ("[^0%s]" % inside, "0", True)):
            if inverted and name in ("Any", "Assigned"):
                continue
            for letter in b"RS":
                text = pattern if letter == ord("R") else json.dumps({"type": "string", "pattern": "^%s$" % pattern})
                messages.append(bytes([letter]) + text.encode())
                expected.append((pattern, None, "ok"))
                for category in sorted(chars):
                    for c in chars[category]:
                        text = c if letter == ord("R") else json.dumps(c, ensure_ascii=rng.random() < 0.5)
                        messages.append(b"T" + text.encode())
                        expected.append((pattern, c, (category in categories or c in others) != inverted))


def add_wide_classes(rng, messages, expected):
    """Ranges anywhere in Unicode, and the characters around their ends, in UTF-8 and in escapes."""
    def place():
        return rng.choice([rng.randrange(0x110000), rng.randrange(0x100) << rng.choice([4, 6, 8, 10, 12])]) + rng.choice([-1, 0, 1])
    for _ in range(200):
        ends = sorted({min(max(0, c if c < 0xd800 or c > 0xdfff else c + 0x800), 0x10ffff) for c in (place() for _ in range(rng.choice([2, 4, 8, 20])))})
        if len(ends) % 2:
            ends.pop()
        ranges = list(zip(ends[::2], ends[1::2]))
        pattern = "[%s]" % "".join("\\U%08x-\\U%08x" % pair for pair in ranges)
        for letter in b"RS":
            text = pattern if letter == ord("R") else json.dumps({"type": "string", "pattern": "^%s$" % pattern})
            messages.append(bytes([letter]) + text.encode())
            expected.append((pattern, None, "ok"))
            near = {c + d for c in ends + [place() for _ in range(6)] for d in (-64, -16, -1, 0, 1, 16, 64)}
            for c in sorted(c for c in near if 0 <= c < 0xd800 or 0xe000 <= c < 0x110000):
                text = chr(c) if letter == ord("R") else json.dumps(chr(c), ensure_ascii=rng.random() < 0.5)
                messages.append(b"T" + text.encode())
                expected.append((pattern, chr(c), any(low <= c <= high for low, high in ranges)))


def add_long_repeats(messages, expected):
    """Counts beyond 4,096, which are divided into blocks of 1,024 and a rest of at most 1,152."""
    for least, most in ((0, 4096), (0, 5247), (0, 5248), (0, 6271), (1, 6273), (1023, 6272), (1024, 7300), (1025, 5200), (4096, 4096), (4000, 6177)):
        pattern = "%s{%d,%d}" % ("[ab]" if least % 2 else "a", least, most)
        compiled = re.compile(pattern)
        messages.append(b"R" + pattern.encode())
        expected.append((pattern, None, "ok"))
        for count in sorted({least, most, most % 1024, 1024, 1152, most - 1024, most - 1152, 3000}):
            for text in ("a" * count, "a" * (count + 1), "a" * (count - 1)):
                messages.append(b"T" + text.encode())
                expected.append((pattern, text, bool(compiled.fullmatch(text))))


def main():
    rng = random.Random(7)
    messages, expected = [], []
    for _ in range(COUNT):
        pattern = expression(rng, 3)
        compiled = re.compile(pattern, re.ASCII)
        texts = {""}
        for size in range(1, 5):
            texts.add(sample(rng, size))
        # Parts of random texts that match are texts that match.
        for _ in range(4):
            found = compiled.search(sample(rng, 12))
            if found and compiled.fullmatch(found.group()):
                texts.update([found.group(), mutate(rng, found.group())])
        messages.append(b"R" + pattern.encode())
        expected.append((pattern, None, "ok"))
        for text in sorted(texts):
            messages.append(b"T" + text.encode())
            expected.append((pattern, text, bool(compiled.fullmatch(text))))
    for _ in range(COUNT // 4):
        pattern = "|".join(search_expression(rng) for _ in range(rng.choice([1, 1, 2])))
        # $ of ECMAScript is \Z of Python.
        compiled = re.compile(re.sub(r"\\.|\$", lambda found: "\\Z" if found[0] == "$" else found[0], pattern, flags=re.S), re.ASCII)
        texts = {""} | {sample(rng, size) for size in range(1, 6)}
        texts |= {mutate(rng, found.group()) for found in map(compiled.search, sorted(texts)) if found}
        messages.append(b"S" + json.dumps({"type": "string", "pattern": pattern}).encode())
        expected.append((pattern, None, "ok"))
        for text in sorted(texts):
            messages.append(b"T" + json.dumps(text, ensure_ascii=rng.random() < 0.5).encode())
            expected.append((pattern, text, bool(compiled.search(text))))
    add_properties(rng, messages, expected)
    add_wide_classes(rng, messages, expected)
    add_long_repeats(messages, expected)
    answers = exchange(TOOL, messages)
    assert len(answers) == len(expected), (len(answers), len(expected))
    matches = wrong = 0
    for (pattern, text, wanted), answer in zip(expected, answers):
        # An expression that matches nothing is no grammar: a class may be empty.
        if text is None and answer == "error: no text can match the grammar":
            continue
        if text is None:
            right = answer == wanted
        else:
            right = (answer == "1") == wanted or answer == "error" and not wanted
            matches += wanted
        if not right:
            wrong += 1
            print("pattern", ascii(pattern), "text", ascii(text), "expected", wanted, "got", answer)
    print(len(answers), "answers,", matches, "texts that match,", wrong, "wrong")
    sys.exit(wrong != 0)


main()
