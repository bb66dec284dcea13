"""The Python package with packages of others: the plug-in for llm, and Hugging Face's tokenizers on the default model."""

import glob
import importlib.metadata
import json
import os
import random
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.path.abspath(os.environ.get("SALVO_SOURCE", "."))
os.environ["SALVO_LIBRARY"] = os.path.abspath(sys.argv[1])
sys.path.insert(0, os.path.join(SOURCE, "python"))
CACHE = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
models = glob.glob(f"{CACHE}/salvo/models/SmolLM2-135M*.gguf")
missing = [name for name in ("llm", "tokenizers") if name not in {found.metadata["Name"] for found in importlib.metadata.distributions()}]
if missing or not models:
    print("skipped:", "the default model is not there" if not models else f"no {', '.join(missing)}")
    sys.exit(77)
MODEL = models[0]
import gguf
import salvo_llm
import tokenizers


class Llm(unittest.TestCase):
    """The plug-in is found by its entry point, as after `pip install`."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        info = os.path.join(cls.folder, "salvo_llm-1.dist-info")
        os.mkdir(info)
        for name, text in (("METADATA", "Metadata-Version: 2.1\nName: salvo-llm\nVersion: 1\n"), ("entry_points.txt", "[llm]\nsalvo = salvo_llm.llm_plugin\n")):
            with open(os.path.join(info, name), "w") as file:
                file.write(text)

    def llm(self, *arguments):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.path.join(SOURCE, "python"), self.folder]), "LLM_USER_PATH": self.folder,
                       "SALVO_MODEL": MODEL}
        result = subprocess.run([sys.executable, "-m", "llm", *arguments], capture_output=True, text=True, env=environment, stdin=subprocess.DEVNULL)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout.strip()

    def test_answers(self):
        self.assertIn("Salvo: salvo", self.llm("models"))
        greedy = ("-o", "temperature", "0", "-o", "max_tokens", "30")
        with salvo_llm.load(MODEL) as model, model.conversation(system="Answer briefly.") as chat:
            first = self.llm("-m", "salvo", "-s", "Answer briefly.", "Name a river.", *greedy)
            self.assertEqual(first, chat.ask("Name a river.", temperature=0, max_tokens=30))
            self.assertEqual(self.llm("-c", "And a mountain?", *greedy), chat.ask("And a mountain?", temperature=0, max_tokens=30))
        city = json.loads(self.llm("-m", "salvo", "--schema", "name, height int", "Name a mountain.", "-o", "temperature", "0", "-o", "max_tokens", "200"))
        self.assertEqual({name: type(value) for name, value in city.items()}, {"name": str, "height": int})


class Tokenizers(unittest.TestCase):
    """Hugging Face's tokenizers, built from vocabulary and merges of the file; the pre-tokenizer of SmolLM is digits alone, then GPT-2's."""

    def test_parity(self):
        fields = gguf.GGUFReader(MODEL).fields
        words = fields["tokenizer.ggml.tokens"].contents()
        merges = [tuple(merge.split(" ", 1)) for merge in fields["tokenizer.ggml.merges"].contents()]
        self.assertEqual(fields["tokenizer.ggml.pre"].contents(), "smollm")
        reference = tokenizers.Tokenizer(tokenizers.models.BPE({word: i for i, word in enumerate(words)}, merges))
        split = tokenizers.pre_tokenizers
        reference.pre_tokenizer = split.Sequence([split.Digits(individual_digits=True), split.ByteLevel(add_prefix_space=False)])
        reference.decoder = tokenizers.decoders.ByteLevel()
        texts = ["", " ", "Hello world", "a  b\n\n c\t\td", "1234567 x2", "don't I'll WE'RE", "naïve café — “quoted”", "日本語のテキスト", "🙂🙃 é", "\u00a0x\u2003y", "if (x) {\n    return 42;\n}\n"]
        for name in ("README.md", "docs/architecture.md", "src/engine/scheduler.c"):
            with open(os.path.join(SOURCE, name), encoding="utf-8") as file:
                texts.append(file.read())
        source = random.Random(1)
        pools = ["abcdefghij ETAOIN'.,!?\n\t 0123456789", "äöüßéèñçøåœ αβγδε абвгд אבג ابت हिन्दी 中文字符 한국어 🙂👍🏽 \u200d\ufeff\u0301"]
        texts += ["".join(source.choice(source.choice(pools)) for _ in range(source.randrange(1, 60))) for _ in range(3000)]
        with salvo_llm.load(MODEL, context=64, parallel=1) as model:
            for text in texts:
                ids = reference.encode(text, add_special_tokens=False).ids
                self.assertEqual(model.tokenize(text), ids, repr(text[:200]))
                self.assertEqual(model.detokenize(ids), text)
                self.assertEqual(reference.decode(ids), text)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
