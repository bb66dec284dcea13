"""Random templates against jinja2. Arguments: the tool, how many (2000), and a seed (1)."""

import random
import sys
import warnings

import reference

TOOL = sys.argv[1]
COUNT = int(sys.argv[2]) if len(sys.argv) > 2 else 2000
RANDOM = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)

# Python's remarks about what is compiled; and jinja2 computes constants beforehand, with other mistakes than later.
warnings.simplefilter("ignore")
reference.ENVIRONMENT.optimized = False

REQUEST = {
    "messages": [{"role": "user", "content": " Hi \n\nthere "}, {"role": "assistant", "content": "é <b>x</b>, y", "n": 2}],
    "n": 3, "x": 2.5, "s": "a b,c ß", "l": [3, 1, 2], "w": ["b", "A", "c", "a"], "d": {"k": 1, "a": [1, {"z": None}], "B": "t"}, "t": True, "o": None,
    "e": "", "p": [{"a": 1, "b": "x"}, {"a": 2}, {"a": 1, "b": "Y"}],
}
NAMES = ["messages", "n", "x", "s", "l", "w", "d", "t", "o", "e", "p", "missing", "messages[0]", "messages[-1].content", "d.a", "l[0]", "p[0]", "v"]
LITERALS = ["0", "1", "-1", "2", "7", "1.5", "0.1", "true", "false", "none", "''", "'a'", "'a b'", "'é\\n'", "[]", "[1, 'a']", "{}", "{'k': 1}", "(1, 2)", "10", "','", "' '"]
BINARY = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", ">", "<=", ">=", "in", "not in", "and", "or"]
FILTERS = [
    "upper", "lower", "title", "capitalize", "trim", "length", "first", "last", "list", "string", "int", "float", "abs", "round", "round(1)", "sort", "sort(reverse=true)",
    "unique|list", "reverse|list", "join", "join(', ')", "tojson", "tojson(indent=2)", "default('D')", "default('D', true)", "map('string')|list", "map(attribute='a')|list",
    "select|list", "reject|list", "select('string')|list", "selectattr('a')|list", "selectattr('a', 'equalto', 1)|list", "items|list", "dictsort", "sum", "min", "max", "replace('a', 'b')",
    "indent(2)", "escape", "safe", "batch(2)|list", "slice(2)|list", "groupby('a')|list", "count", "d", "e", "map('upper')|join", "reject('none')|list",
]
TESTS = ["defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "mapping", "iterable", "sequence", "true", "false", "odd", "even", "lower", "upper",
         "divisibleby 2", "equalto 1", "in [1, 'a']", "sameas none", "not none", "not defined", "gt 1"]
METHODS = [
    ".upper()", ".strip()", ".split()", ".split(',')", ".split(' ', 1)", ".replace('a', 'X')", ".startswith('a')", ".endswith(' ')", ".find('b')", ".title()", ".splitlines()", ".items()",
    ".keys()|list", ".values()|list", ".get('k')", ".get('q', 1)", ".count('a')", ".index(1)", ".lstrip()", ".rstrip(' ')", ".join(['a', 'b'])", ".isdigit()", ".format(1)", ".a", ".k", ".role", "['content']", "['k']",
]
SLICES = ["[0]", "[-1]", "[1:]", "[:2]", "[::-1]", "[1:-1]", "[::2]", "[-2:]", "[5]", "['a']"]


def expression(depth):
    kind = RANDOM.random()
    if depth <= 0 or kind < 0.25:
        return RANDOM.choice(NAMES if RANDOM.random() < 0.6 else LITERALS)
    inner = expression(depth - 1)
    if kind < 0.45:
        return f"{inner} {RANDOM.choice(BINARY)} {expression(depth - 1)}"
    if kind < 0.65:
        return f"{inner}|{RANDOM.choice(FILTERS)}"
    if kind < 0.72:
        return f"{inner} is {RANDOM.choice(TESTS)}"
    if kind < 0.82:
        return f"({inner}){RANDOM.choice(METHODS)}"
    if kind < 0.88:
        return f"({RANDOM.choice(NAMES)}){RANDOM.choice(SLICES)}"
    if kind < 0.92:
        return f"({inner})"
    if kind < 0.95:
        return f"{inner} if {expression(depth - 1)} else {expression(depth - 1)}"
    if kind < 0.97:
        return f"not {inner}"
    return f"[{inner}, {expression(depth - 1)}]" if RANDOM.random() < 0.5 else f"{{'q': {inner}}}"


def blank():
    return RANDOM.choice(["", "", " ", "\n", "  \n ", "\n\n"])


def tag(inside):
    return "{%" + RANDOM.choice(["", "", "-", "+"]) + " " + inside + " " + RANDOM.choice(["", "", "-"]) + "%}"


def body(depth):
    return "".join(blank() + statement(depth) for _ in range(RANDOM.randint(1, 3))) + blank()


def statement(depth):
    kind = RANDOM.random()
    if depth <= 0 or kind < 0.4:
        return "{{" + RANDOM.choice(["", "-"]) + " " + expression(RANDOM.randint(0, 3)) + " " + RANDOM.choice(["", "-"]) + "}}"
    if kind < 0.5:
        return RANDOM.choice(["text", "a\n", " <|x|> ", "{# note #}", "{#- note -#}", "{% raw %}{{ }}{% endraw %}"])
    if kind < 0.62:
        return tag(f"if {expression(2)}") + body(depth - 1) + (tag("else") + body(depth - 1) if RANDOM.random() < 0.5 else "") + tag("endif")
    if kind < 0.76:
        over = RANDOM.choice(["l", "w", "p", "messages", "d", "s", "range(3)", "d.items()", expression(1)])
        inside = body(depth - 1) + RANDOM.choice(["", "{{ loop.index }}", "{{ loop.last }}", "{{ v }}", "{% if loop.index == 2 %}{% break %}{% endif %}", "{{ loop.previtem }}"])
        return tag(f"for v in {over}") + inside + (tag("else") + "none" if RANDOM.random() < 0.2 else "") + tag("endfor")
    if kind < 0.86:
        return tag(f"set v = {expression(2)}")
    if kind < 0.9:
        return tag("set v") + body(depth - 1) + tag("endset")
    if kind < 0.94:
        return tag(f"filter {RANDOM.choice(['upper', 'trim', 'indent(1)', 'title'])}") + body(depth - 1) + tag("endfilter")
    return tag("macro m(a, b=2)") + body(depth - 1) + "{{ a }}{{ b }}" + tag("endmacro") + "{{ m(" + expression(1) + ") }}"


# Outputs that differ by design: object addresses and names of Python types.
SKIPPED = ("Markup(", "object at 0x", "<built-in", "<bound method", "<function", "<generator", "<list_reverseiterator")


def main():
    cases, skipped = [], 0
    while len(cases) < COUNT:
        template = body(2) if RANDOM.random() < 0.6 else "{{ " + expression(4) + " }}"
        text, problem = reference.render_there(template, REQUEST)
        if (text and any(word in text for word in SKIPPED)) or isinstance(problem, (OverflowError, MemoryError, SyntaxError)) or len(text or "") > 100000:
            skipped += 1
            continue
        cases.append((template, REQUEST))
    different, good = reference.compare(TOOL, cases)
    print(f"{len(cases)} templates, {good} of them not refused, {different} differ")
    sys.exit(1 if different or good < COUNT / 5 else 0)


main()
