"""`salvo grammar check|sample|match` and `salvo run` with --grammar, --regex and --json-schema: results, exit codes, errors."""
import json
import os
import re
import subprocess
import sys
import unittest

SALVO, MAKE_WORDS_MODEL, MODEL = sys.argv[1], sys.argv[2], "grammar-test.gguf"
LIST = 'root ::= "- " item ("\\n- " item)*\nitem ::= [a-z]+ | "\\u00e9"\n'
SCHEMA = json.dumps({"type": "object", "properties": {"a": {"type": "integer", "minimum": 3, "maximum": 12}, "b": {"enum": ["x", None]}},
                     "required": ["a"], "additionalProperties": False})


def salvo(*arguments, text=""):
    return subprocess.run([SALVO, *arguments], input=text, capture_output=True, text=True, check=False, timeout=60)


def write(name, text):
    with open(name, "w", encoding="utf-8", newline="") as file:
        file.write(text)
    return name


class Check(unittest.TestCase):
    def test_a_good_grammar(self):
        for option, value in (("--grammar", LIST), ("--grammar", write("list.gbnf", LIST)), ("--regex", "a{2,3}"),
                              ("--json-schema", SCHEMA), ("--json-schema", write("schema.json", SCHEMA)), ("--json-schema", "true")):
            result = salvo("grammar", "check", option, value)
            self.assertEqual((result.returncode, json.loads(result.stdout), result.stderr), (0, {"valid": True}, ""), value)

    def test_errors_name_their_place(self):
        for option, value, message in (
                ("--grammar", write("bad.gbnf", 'root ::= "a"\nb ::= [x\n'), "bad.gbnf: grammar: line 2, column "),
                ("--grammar", 'root ::= "a', "line 1, column 10"), ("--grammar", "root ::= other", "other"),
                ("--regex", "a(b", "column 2"), ("--regex", "a**", "column "),
                ("--json-schema", '{"properties":{"a":{"not":{"uniqueItems":true}}}}', "/properties/a/not/uniqueItems"),
                ("--json-schema", '{"type":"thing"}', "/type"), ("--json-schema", "{", "schema"),
                ("--json-schema", "missing.json", "missing.json: No such file"), ("--json-schema", ".", ".: "),
                ("--json-schema", write("empty.json", ""), "empty.json: ")):
            result = salvo("grammar", "check", option, value)
            self.assertEqual((result.returncode, result.stdout), (1, ""), value)
            self.assertIn(message, result.stderr)
            self.assertEqual(result.stderr.count("\n"), 1, result.stderr)

    def test_wrong_use(self):
        for arguments in (["check"], ["check", "--regex", "a", "--grammar", LIST], ["prove", "--regex", "a"], ["--regex", "a"],
                          ["check", "--regex", "a", "more"], ["match", "--regex", "a", "b", "c"], ["sample", "--regex", "a", "-n", "x"]):
            result = salvo("grammar", *arguments)
            self.assertEqual((result.returncode, result.stdout), (2, ""), arguments)


class SampleAndMatch(unittest.TestCase):
    def test_samples_match_and_repeat(self):
        for option, value in (("--grammar", LIST), ("--regex", "(ab|c)*d{2}"), ("--json-schema", SCHEMA)):
            first = salvo("grammar", "sample", option, value, "-n", "20", "--seed", "5")
            self.assertEqual(first.stdout, salvo("grammar", "sample", option, value, "-n", "20", "--seed", "5").stdout)
            texts = json.loads(first.stdout)["texts"]
            self.assertEqual(len(texts), 20)
            self.assertGreater(len(set(texts)), 3)
            for text in texts:
                self.assertEqual(salvo("grammar", "match", option, value, text=text).returncode, 0, text)
                if option == "--regex":
                    self.assertTrue(re.fullmatch(value, text), text)
                elif option == "--json-schema":
                    self.assertTrue(3 <= json.loads(text)["a"] <= 12, text)

    def match(self, value, text, *more):
        result = salvo("grammar", "match", "--json-schema", value, *more, text=text)
        return result.returncode, json.loads(result.stdout)

    def test_match_says_how_far_a_text_fits(self):
        self.assertEqual(self.match(SCHEMA, ' { "b" : null,\n"a":12 } '), (0, {"matches": True, "bytes": 24, "bytes_that_fit": 24}))
        self.assertEqual(self.match(SCHEMA, '{"a":13}'), (1, {"matches": False, "bytes": 8, "bytes_that_fit": 6}))
        self.assertEqual(self.match(SCHEMA, '{"a":12'), (1, {"matches": False, "bytes": 7, "bytes_that_fit": 7}))
        self.assertEqual(self.match(SCHEMA, ""), (1, {"matches": False, "bytes": 0, "bytes_that_fit": 0}))
        self.assertEqual(self.match(SCHEMA, "", "-f", write("fits.json", '{"a": 3}'))[0], 0)
        self.assertEqual(self.match(SCHEMA, "", '{"a":3}')[0], 0)


class Run(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        subprocess.run([MAKE_WORDS_MODEL, "llama-tiny", MODEL], check=True, capture_output=True)

    def run_model(self, *arguments):
        return salvo("run", "-m", MODEL, "-p", "one two", "-n", "200", "--seed", "3", "--temp", "1", *arguments)

    def test_answers_fit(self):
        for value in ("[a-c]{3,5}x", "The same words, always\\.", "(one|two|three)( and (four|five)){2}"):
            result = self.run_model("--regex", value)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertTrue(re.fullmatch(value, result.stdout.rstrip("\n")), result.stdout)
        answer = json.loads(self.run_model("--json-schema", SCHEMA).stdout)
        self.assertTrue(3 <= answer["a"] <= 12 and set(answer) <= {"a", "b"})
        result = self.run_model("--grammar", write("list.gbnf", 'root ::= "- " [a-z]{4}'))
        self.assertTrue(re.fullmatch("- [a-z]{4}", result.stdout.rstrip("\n")), result.stdout)

    def test_errors(self):
        result = self.run_model("--json-schema", '{"divisibleBy":2}')
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertIn("/divisibleBy", result.stderr)
        self.assertEqual(self.run_model("--regex", "a", "--json-schema", "true").returncode, 2)

    def test_an_answer_that_is_cut_is_a_beginning(self):
        text = salvo("run", "-m", MODEL, "-p", "one", "-n", "3", "--regex", "abcdefghijklmnopqrstuvwxyz{5}").stdout.rstrip("\n")
        self.assertTrue(text and "abcdefghijklmnopqrstuvwxyz".startswith(text), text)

    def test_forced_tokens_fit_into_a_batch(self):
        for batch in ("2", "4", "512"):
            result = salvo("run", "-m", MODEL, "-p", "one", "-b", batch, "--regex", "abcdefghijklmnopqrstuvwxyz{5}")
            self.assertEqual((result.returncode, result.stdout.strip()), (0, "abcdefghijklmnopqrstuvwxyzzzzz"), result.stderr)


if __name__ == "__main__":
    os.makedirs("grammar-command", exist_ok=True)
    SALVO, MAKE_WORDS_MODEL = os.path.abspath(SALVO), os.path.abspath(MAKE_WORDS_MODEL)
    os.chdir("grammar-command")
    unittest.main(argv=sys.argv[:1])
