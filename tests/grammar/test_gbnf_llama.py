"""test_gbnf_llama.py TOOL: GBNF against llama.cpp's own grammars, which the package xllamacpp carries: the same texts match, the same
beginnings can go on, and the same grammars are refused."""
import ctypes
import os
import random
import sys

from grammar_tool import exchange

sys.path.append(os.path.join(os.path.dirname(__file__), "..", "models"))
try:
    import llama_cpp
except ImportError as missing:
    print("skipped:", missing)
    sys.exit(77)

TOOL = sys.argv[1]
DATA = os.environ.get("SALVO_TEST_DATA") or os.path.join(os.environ.get("SALVO_SOURCE", "."), "..", "shared", "data")
VOCABULARY = os.path.join(DATA, "tokenizers", "gpt-2.gguf")
MUTATIONS = 8

JSON = r'''
# a document
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
'''
CASES = [
    (JSON, ['{"a": [1, -2.5e+3, "x\\u00e9"], "b": {}}', '{"é": null}', "{}", '{"a":true}', "[1]"]),
    ('root ::= item+\nitem ::= "- " [^\\r\\n\\x0b\\x0c\\x85\\u2028\\u2029]+ "\\n"', ["- one\n- zwei ä\n", "- a", "-a\n"]),
    ('root ::= (expr "=" ws term "\\n")+\nexpr ::= term ([-+*/] term)*\nterm ::= ident | num | "(" ws expr ")" ws\n'
     "ident ::= [a-z] [a-z0-9_]* ws\nnum ::= [0-9]+ ws\nws ::= [ \\t\\n]*", ["a+b=3\n", "(1 + x2)*3 = 9\n", "a=\n", "1=1\n2=2\n"]),
    ('root ::= "1. " move " " move "\\n" ([1-9] [0-9]? ". " move " " move "\\n")+\n'
     'move ::= (pawn | piece | castle) [+#]?\npiece ::= [NBKQR] [a-h]? [1-8]? "x"? [a-h] [1-8]\n'
     'pawn ::= ([a-h] "x")? [a-h] [1-8] ("=" [NBKQR])?\ncastle ::= "O-O" "-O"?', ["1. e4 e5\n2. Nf3 Nc6\n", "1. O-O-O Qxd4+\n9. exd8=Q# O-O\n"]),
    ('root ::= (declaration)*\ndeclaration ::= type " " name "(" param? ")" " {" (stmt)* "}"\ntype ::= "int" | "float" | "char"\n'
     'name ::= [a-zA-Z_] [a-zA-Z_0-9]*\nparam ::= type " " name (", " type " " name)*\n'
     'stmt ::= ( name " = " [0-9]+ ";" | "return " name ";" )', ["int f(int a, char b) {a = 1;return a;}", "float g() {}"]),
    ('root ::= jp+ ([ \\t\\n] jp+)*\njp ::= hiragana | katakana | punctuation | cjk\nhiragana ::= [ぁ-ゟ]\nkatakana ::= [ァ-ヿ]\n'
     "punctuation ::= [、-〾]\ncjk ::= [一-鿿]", ["こんにちは", "日本 カタカナ", "日a", "、。"]),
    ('root ::= "a"{2,3} ("b" | [^b-d]){0,2} .? "\\x41\\u00e9\\U0001F600"', ["aaAé😀", "aaaxyzAé😀", "aAé😀", "aab"]),
    ('root ::= (("x" | "") ("y"?)){3} | # comment\n  "long" \n', ["xyxyxy", "", "long", "lon"]),
]
BAD = ["root ::= *", 'root ::= "a', "root ::= [a", "root ::= (a", "root = a", "root ::= b",
       'root ::= "\\q"', 'root ::= "a" )', 'root ::= "a"{', "root ::= [a-"]


class Data(ctypes.Structure):
    _fields_ = [("id", ctypes.c_int32), ("logit", ctypes.c_float), ("p", ctypes.c_float)]


class Array(ctypes.Structure):
    _fields_ = [("data", ctypes.POINTER(Data)), ("size", ctypes.c_size_t), ("selected", ctypes.c_int64), ("sorted", ctypes.c_bool)]


def functions():
    library, pointer = llama_cpp.LIBRARY, ctypes.c_void_p
    for name, result, arguments in [("llama_sampler_init_grammar", pointer, [pointer, ctypes.c_char_p, ctypes.c_char_p]),
                                    ("llama_sampler_apply", None, [pointer, ctypes.POINTER(Array)]),
                                    ("llama_sampler_accept", None, [pointer, ctypes.c_int32]),
                                    ("llama_sampler_reset", None, [pointer]), ("llama_sampler_free", None, [pointer])]:
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def allows(library, sampler, token):
    data = (Data * 1)(Data(token, 1.0, 0.0))
    array = Array(data, 1, -1, False)
    library.llama_sampler_apply(sampler, ctypes.byref(array))
    return data[0].logit == 1.0


def match_there(library, model, sampler, text):
    """As the answers of the tool: 1, 0 or -."""
    library.llama_sampler_reset(sampler)
    for character in text:
        for token in model.tokenize(character.encode(), begins=False):
            if not allows(library, sampler, token):
                return "-"
            library.llama_sampler_accept(sampler, token)
    return "1" if allows(library, sampler, model.ends()[0]) else "0"


def mutated(rng, text, letters):
    at = rng.randrange(len(text) + 1)
    kind = rng.randrange(4)
    if kind == 0:
        return text[:at]
    if kind == 1:
        return text[:at] + text[at + 1:]
    return text[:at] + rng.choice(letters) + text[at + (kind == 2):]


def main():
    if not os.path.exists(VOCABULARY):
        print("skipped: no", VOCABULARY)
        sys.exit(77)
    rng, library, compared, wrong = random.Random(4), functions(), 0, 0
    with llama_cpp.Model(VOCABULARY, vocab_only=True) as model:
        for grammar, examples in CASES:
            letters = sorted(set("".join(examples))) + ["q", "é", '"']
            texts = examples + [mutated(rng, rng.choice(examples), letters) for _ in range(MUTATIONS)]
            answers = exchange(TOOL, [b"G" + grammar.encode()] + [b"T" + text.encode() for text in texts])
            sampler = library.llama_sampler_init_grammar(model.vocab, grammar.encode(), b"root")
            assert sampler and answers[0] == "ok", (grammar, answers[0])
            for text, answer in zip(texts, answers[1:]):
                expected = match_there(library, model, sampler, text)
                compared += 1
                if answer != expected:
                    wrong += 1
                    print("WRONG:", repr(grammar), repr(text), "here", answer, "there", expected)
            library.llama_sampler_free(sampler)
        for grammar in BAD:
            here = exchange(TOOL, [b"G" + grammar.encode()])[0]
            if here == "ok" or library.llama_sampler_init_grammar(model.vocab, grammar.encode(), b"root"):
                wrong += 1
                print("WRONG:", repr(grammar), "is accepted;", here)
    print(f"{compared} texts and {len(BAD)} bad grammars compared, {wrong} differ")
    sys.exit(wrong > 0)


main()
