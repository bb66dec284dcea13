"""Options under the names that they have in llama.cpp, models by name, and what completions offer."""

import json
import os
import re
import subprocess
import unittest

from commands import MODEL, PLAIN, RECURRENT, SALVO, folder, path, read, salvo

FORCED = ("--temp", "0", "--logit-bias", "120=1000")  # x and x and x


def run(*arguments, status=0, **more):
    return salvo("run", "-p", "hello", *FORCED, *arguments, status=status, **more)


class LlamaCpp(unittest.TestCase):
    def test_synonyms(self):
        for flags in (["--n-predict", 3], ["--predict", 3], ["--n-predict=3"], ["-n3"], ["-n", 5, "-n", 3],
                      ["-n", 3, "--temperature", 0], ["-n", 3, "--temperature=0.0"], ["-n", 3, "--ctx-size", 64],
                      ["-n", 3, "--batch-size", 8], ["-n", 3, "-ngl", 99], ["-n", 3, "-ngl", 0], ["-n", 3, "-ngl", "all"],
                      ["-n", 3, "--n-gpu-layers=99"], ["-n", 3, "-ngl", 1, "-ngl", 99], ["-n", 3, "-fa"], ["-n", 3, "-fa", "on"],
                      ["-n", 3, "-fa", "auto"], ["-fa", "-n", 3], ["-n", 3, "--flash-attn=on"], ["-n", 3, "-ctk", "q8_0", "-ctv", "q8_0"],
                      ["-n", 3, "--cache-type-k", "f32", "--cache-type-v", "f32"], ["-n", 3, "-ctk", "q8_0"], ["-n", 3, "-no-cnv"],
                      ["-n", 3, "-mg", 0], ["-n", 3, "--main-gpu=0"], ["-n", 3, "-sm", "none"], ["-n", 3, "-e"], ["-n", 3, "-r", "y"],
                      ["-r", "xxxx", "-n", 3], ["-n", 3, "--seed", -1], ["-n", 3, "-s-1"], ["-n", 3, "--repeat-last-n", -1],
                      ["-n", 3, "--top-k", -1], ["--n_predict", 3], ["--n_predict=3"], ["-n", 3, "--ctx_size", 64],
                      ["-n", 3, "--jinja", "--no-display-prompt", "--no-warmup", "--simple-io"], ["-n", 3, "-st"], ["-n", 3, "-st", "-sys", "be kind"]):
            with self.subTest(flags):
                self.assertEqual(run(*flags)[0], b"xxx")

    def test_they_mean_what_they_say(self):
        self.assertEqual(json.loads(run("-n", -1, "--ctx-size", 30, "--json")[0])["finish_reason"], "context")
        self.assertEqual(json.loads(run("-r", "xx", "-n", 9, "--json")[0])["finish_reason"], "stop")
        self.assertGreater(json.loads(run("-n", 1, "-st", "--json")[0])["prompt_tokens"], 1)
        for flags, word in ((["-ngl", 0, "-v"], "cpu: "), (["--batch-size", 24, "-v"], "batch 24"), (["--ctx-size", 77, "-v"], "context 77")):
            self.assertIn(word, run("-n", 1, *flags)[1])
        sizes = [int(float(re.search(r"state ([\d.]+) kB", run("-n", 1, "-c", 512, "-v", *flags)[1])[1]))
                 for flags in (["-ctk", "f32", "-ctv", "f32"], ["--kv-type", "f32"], ["-ctk", "q8_0"])]
        self.assertEqual(sizes[0], sizes[1])
        self.assertGreater(sizes[1], 2 * sizes[2])
        seeds = {json.loads(run("-n", 1, "--seed", -1, "--json")[0])["seed"] for _ in range(4)}
        self.assertGreater(len(seeds), 1)
        whole = ("run", "-p", "hello", "-n", 40, "--temp", 0, "--repeat-penalty", 9, "--json")
        everything, enough, few = (json.loads(salvo(*whole, "--repeat-last-n", n)[0])["ids"] for n in (-1, 512, 1))
        self.assertEqual(everything, enough)
        self.assertNotEqual(everything, few)
        chosen = ("run", "-p", "hello", "-n", 20, "--seed", 5, "--temp", 3, "--json", "--top-p", 1, "--min-p", 0)
        off, minus, one = (json.loads(salvo(*chosen, "--top-k", k)[0])["ids"] for k in (0, -1, 1))
        self.assertEqual(off, minus)
        self.assertNotEqual(off, one)

    def test_what_there_is_not_is_answered_by_name(self):
        for command, flags, words in (
            ("run", ["-ngl", 1], "invalid --gpu-layers 1: the model has 2 layers"), ("run", ["-ngl", "x"], "'x'"), ("run", ["-ngl", 0, "--backend", "cuda"], "cannot be combined"),
            ("run", ["-fa", "off"], "invalid -fa 'off'"), ("run", ["--flash-attn=0"], "invalid --flash-attn '0'"),
            ("run", ["-ctk", "q8_0", "-ctv", "f16"], "same type"), ("run", ["-ctk", "q4_0"], "'q4_0'"),
            ("run", ["--kv-type", "f32", "-ctv", "f16"], "same type"),
            ("run", ["-hf", "a"], "hf:a: expected"), ("chat", ["-mu", "x"], "salvo pull URL"), ("run", ["-hft", "x"], "HF_TOKEN"), ("run", ["-md", "x"], "-md is not supported"),
            ("run", ["-sm", "layer"], "invalid -sm 'layer'"), ("run", ["-ts", "1,1"], "-ts is not supported"), ("run", ["-tb", 2], "-tb is not supported"),
            ("run", ["-nkvo"], "-nkvo is not supported"), ("run", ["-rtr"], "always repacked"), ("run", ["-hff", "x"], "-hff is not supported"), ("bench", ["-pg", "8,8"], "-pg is not supported"), ("run", ["--prompt-cache", "x"], "--state-save"),
            ("run", ["--prompt-cache=x"], "--prompt-cache is not supported"), ("run", ["--keep", 2], "--on-full slide"),
            ("run", ["--list-devices"], "salvo devices"), ("chat", ["-st"], "salvo run --chat"), ("chat", ["-no-cnv"], "salvo run"),
            ("run", ["-cnv"], "salvo chat"), ("run", ["--chat", "-no-cnv"], "cannot be combined"), ("tokenize", ["-fa"], "'-fa'"),
            ("tokenize", ["-ngl", 99], "'-ngl'"), ("info", ["-tb", 2], "-tb is not supported"), ("run", ["-n", -2], "'-2'"),
            ("verify", ["--backend", "abacus", "--json"], "abacus"), ("run", ["-e=1"], "-e"), ("eval", ["-r", "x"], "'-r'"),
            ("run", ["--chat-template", "chatml"], "--chat-template is not supported"), ("run", ["--no-mmap"], "always mapped"),
            ("chat", ["--no_mmap"], "always mapped"), ("run", ["--mlock"], "--mlock is not supported"), ("chat", ["--color"], "NO_COLOR"),
            ("bench", ["--no-warmup"], "warmed up"), ("verify", ["--cpu-isa", "mmx"], "mmx"), ("verify", ["--backend", "cpu:foo"], "'foo'"),
            ("eval", ["--tokens", "99999"], "99999 is outside the vocabulary"), ("verify", ["--tokens", "99999"], "99999"),
            *(("run", [flag, "x"], f"'{flag}'") for flag in ("-bf", "-nocb", "-ctkd", "-td", "-cram", "-ngl99", "-sps", "-hfa/b")),
            *(("run", [flag + value, "x"], f"write a blank: {flag} {value}")
              for flag, value in (("-fa", "1"), ("-fa", "on"), ("-mg", "0"), ("-tb", "2"), ("-pg", "8,8"), ("-sm", "none"))),
            ("bench", ["-npp", 8], "'-npp'"), ("run", ["-hfd", "a/b"], "-hfd is not supported"), ("embed", ["-mmu", "x"], "-mmu is not supported"),
            ("run", ["-model", "x"], "'-model'; did you mean --model?"), ("run", ["-prompt", "x"], "'-prompt'; did you mean --prompt?"), ("run", ["-prompt=x"], "'-prompt'; did you"),
            ("chat", ["-model=x"], "'-model'; did"), ("run", ["-port", 1], "unknown option '-port'"), ("chat", ["-mlock"], "--mlock is not supported"), ("serve", ["-model", "x"], "'-model'; did"),
            *((command, [flag, 0], f"{flag} is not supported") for command in ("run", "bench", "chat") for flag in ("-mmp", "-mv", "-ps", "-pps", "-rpc", "-embd", "-fitp")),
            ("run", ["-ptc", 4], "--stats"), ("perplexity", ["-fitt", 4], "-fitt is not supported"),
            *((command, ["-m", "hf:a", *more], "hf:a: expected") for command, more in (
                ("run", []), ("chat", []), ("info", []), ("bench", []), ("serve", []), ("verify", []), ("embed", ["x"]), ("tokenize", ["-p", "x"]), ("detokenize", ["1"]),
                ("eval", ["--tokens", "1"]), ("perplexity", ["-f", SALVO]), ("template", ["--messages", SALVO]))),
            ("detokenize", ["99999"], "99999"), ("tokenize", ["hi"], "give the text with -p"), ("perplexity", ["text.txt"], "with -f"),
        ):
            with self.subTest([command, *flags]):
                output, error = salvo(command, *flags, *(["-p", "x"] if command == "run" else []), status=2)
                self.assertEqual((output, error.count("\n")), (b"", 1), error)
                self.assertIn(words, error)
        for command in (["quantize", "hf:a", "out.gguf", "Q8_0"], ["show", "hf:a"], ["chat", "hf:a"]):
            self.assertIn("hf:a: expected", salvo(*command, model=None, status=2)[1])
        done = subprocess.run([SALVO, "--list-devices"], capture_output=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn(b"salvo devices", done.stderr)

    def test_commands_of_ollama_are_answered_by_name(self):
        for command, words in (("ls", "salvo list"), ("stop", "salvo ps"), ("create", "no 'create'")):
            for arguments in ([command, "llama3"], ["help", command]):
                error = salvo(*arguments, model=None, status=2)[1]
                self.assertIn(words, error)
                self.assertEqual(error.count("\n"), 1, error)

    def test_help_names_the_defaults_and_options_of_the_command(self):
        help = {name: salvo("help", name, model=None)[0].decode() for name in ("run", "chat", "bench", "perplexity")}
        for name, default in (("run", "at most 8192"), ("bench", "the longest test"), ("perplexity", "512")):
            lines = [line for line in help[name].splitlines() if "--context" in line]
            self.assertEqual(len(lines), 1)
            self.assertIn(default, lines[0])
        self.assertNotIn("--prompt", help["chat"])

    def test_suggestions_are_near(self):
        for flag, near in (("--tmep", "--temp"), ("--contxt", "--context"), ("--sede", "--seed"), ("--kepe", None), ("--pre", None),
                           ("--mirostat", None), ("-x", None), ("--x", None)):
            error = salvo("run", flag, 1, status=2)[1]
            self.assertIn(f"'{flag}'", error)
            self.assertEqual("did you mean" in error, near is not None, error)
            self.assertIn(near or "salvo help run", error)
        self.assertNotIn("did you mean", salvo("xy", model=None, status=2)[1])

    def test_help_and_completions_have_them(self):
        text = salvo("help", "run", model=None)[0].decode()
        for flag in ("-ngl", "-ctk", "--temperature", "--n-predict", "--ctx-size", "-fa"):
            self.assertIn(flag, text)
        script = salvo("completions", "bash", model=None)[0].decode()
        complete = script + "\nCOMP_WORDS=(salvo run --backend '%s'); COMP_CWORD=3; _salvo; echo \"${COMPREPLY[@]}\""
        for begun, expected in (("", "auto cpu cuda metal vulkan"), ("c", "cpu cuda")):
            done = subprocess.run(["bash", "-c", complete % begun], capture_output=True, check=True)
            self.assertEqual(done.stdout.decode().strip(), expected)
        self.assertIn(":(auto cpu cuda metal vulkan)'", salvo("completions", "zsh", model=None)[0].decode())
        self.assertRegex(salvo("completions", "fish", model=None)[0].decode(), "-l backend -x -a 'auto cpu cuda metal vulkan'")

    def test_man_pages_have_every_option_and_command(self):
        commands = re.findall("(?m)^  ([a-z]+)  ", salvo("help", model=None)[0].decode())
        self.assertGreater(len(commands), 20)
        overview = salvo("help", "--man", model=None)[0].decode()
        for command in commands:
            self.assertIn(f"salvo\\-{command}\\fR(1)\n", overview)
            page = salvo("help", "--man", command, model=None)[0].decode()
            self.assertTrue(page.startswith(f".TH SALVO-{command.upper()} 1 "), page[:80])
            plain = re.sub(r"\\f[BIR]", "", page).replace("\\-", "-")
            self.assertNotRegex(plain, r"(?m)^'|^\.(?!TH|SH|TP|nf|fi|I |B )")  # no text is a request of troff
            for option in re.findall(r"(?m)^  (?:-\w,|   ) (--[a-z0-9-]+)", salvo("help", command, model=None)[0].decode()):
                self.assertRegex(plain, rf"(?m)^\.TP\n(-\w, )?{option}( |$)")


class Models(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.models = path("cache/salvo/models")
        os.makedirs(cls.models)
        for name in ("Alpha-1B.Q8_0.gguf", "alpha-2B.Q8_0.gguf", "Beta.gguf", "run.gguf", "gamma.gguf", "Gamma.gguf",
                     "split-00001-of-00002.gguf", "split-00002-of-00002.gguf", "Upper.GGUF", "beta-notes.txt"):
            os.symlink(PLAIN, os.path.join(cls.models, name))
        cls.environment = {**os.environ, "XDG_CACHE_HOME": path("cache")}
        cls.environment.pop("SALVO_MODEL", None)

    def info(self, name, status=0):
        return salvo("info", name, model=None, status=status, env=self.environment, cwd=folder.name)

    def test_names(self):
        for name, file in (("Beta", "Beta.gguf"), ("beta", "Beta.gguf"), ("BETA.GGUF", "Beta.gguf"), ("b", "Beta.gguf"),
                           ("alpha-2", "alpha-2B.Q8_0.gguf"), ("ALPHA-1b", "Alpha-1B.Q8_0.gguf"), ("gamma", "gamma.gguf"),
                           ("Gamma", "Gamma.gguf"), ("split", "split-00001-of-00002.gguf"), ("run", "run.gguf"), ("upper", "Upper.GGUF")):
            with self.subTest(name):
                self.assertEqual(self.info(name)[0].decode().splitlines()[0], os.path.join(self.models, file))

    def test_what_is_not_one_model(self):
        error = self.info("alpha", status=1)[1]
        self.assertIn("Alpha-1B.Q8_0.gguf, alpha-2B.Q8_0.gguf", error)
        self.assertEqual(error.count("\n"), 1)
        self.assertIn("Gamma.gguf, gamma.gguf", self.info("GAMMA", status=1)[1])
        self.assertIn("no model of this name", self.info("delta", status=1)[1])
        self.assertIn("no model of this name", self.info("beta-n", status=1)[1])
        self.assertIn("empty", self.info("", status=2)[1])
        os.mkdir(path("Beta"))  # a folder is no model
        self.assertIn(self.models, self.info("Beta")[0].decode())
        os.rmdir(path("Beta"))

    def test_without_an_option(self):
        self.assertEqual(salvo("chat", MODEL, "-n", 2, *FORCED, "-q", stdin=b"hello\n", model=None)[0], b"xx\n")
        for arguments in ([MODEL, "hello"], ["-m", MODEL, "hello"], [MODEL, "-p", "hello"], ["-m", MODEL, "-p", "hello"], ["--", MODEL, "hello"]):
            self.assertEqual(salvo("run", *arguments, "-n", 2, *FORCED, model=None)[0] if "--" not in arguments else
                             salvo("run", "-n", 2, *FORCED, *arguments, model=None)[0], b"xx")
        self.assertEqual(salvo("run", MODEL, "-n", 2, *FORCED, stdin=b"hello", model=None)[0], b"xx")
        self.assertIn("words.gguf", salvo("info", MODEL, model=None)[0].decode())
        salvo("verify", PLAIN, model=None)
        os.symlink(MODEL, path("info"))  # a model that is called like a command
        self.assertEqual(salvo("run", "info", "hello", "-n", 2, *FORCED, model=None, cwd=folder.name)[0], b"xx")
        for arguments, status, words in ((["run", MODEL, "hello", "you"], 2, "'you'"), (["run", MODEL, "hello", "-p", "x"], 2, "'hello'"),
                                         (["info", MODEL, PLAIN], 2, "plain.gguf"), (["tokenize", MODEL], 2, "-m"),
                                         (["run", "why is the sky blue?"], 1, "-p"), (["info", "-m", MODEL, PLAIN], 2, "plain.gguf")):
            self.assertIn(words, salvo(*arguments, model=None, status=status)[1])

    def test_files_that_are_no_models(self):
        os.mkfifo(path("a-fifo"))
        self.assertIn("not a regular file", salvo("info", model=path("a-fifo"), status=1)[1])
        for size in (0, 10, 30, 1000, len(read("words.gguf")) // 2, len(read("words.gguf")) - 40):
            with open(path("part.gguf"), "wb") as file:
                file.write(read("words.gguf")[:size])
            self.assertIn("incomplete download?", salvo("info", model=path("part.gguf"), status=1)[1])


class Devices(unittest.TestCase):
    def test_processors_that_act_as_devices_are_marked(self):
        devices = json.loads(salvo("devices", "--json", model=None)[0])["devices"]
        self.assertTrue(devices)
        for device in devices:
            self.assertEqual(device["software"], "llvmpipe" in device["name"])


class Loops(unittest.TestCase):
    """Weights are random; a bias decides which token comes, so that the cycle is known."""

    def test_an_answer_that_repeats_itself_ends(self):
        for model in (MODEL, RECURRENT):
            output, error = run("--chat", model=model)
            self.assertEqual(output, b"x" * 256)
            self.assertRegex(error, r"\Asalvo: warning: the answer repeats itself.*a cycle of 1;.*--allow-loops.*\n\Z")
            self.assertEqual(json.loads(run("--chat", "--json", model=model)[0])["finish_reason"], "loop")
            self.assertEqual(run("--chat", "--ahead", 7, model=model)[0], b"x" * 256)
            output, error = salvo("chat", *FORCED, "--stats", stdin=b"hello\nagain\n", model=model)
            self.assertEqual(output.split(b"\n")[0], b"x" * 256)
            self.assertIn("repeats itself", error)
            self.assertIn("ended by: loop", error)

    def test_a_cycle_of_tokens_without_text_ends(self):
        silent = json.loads(salvo("run", "-p", "hello", "--chat", "--temp", 0, "--logit-bias", "262=1000", "--json")[0])  # <|im_start|>
        self.assertEqual((silent["text"], silent["tokens"], silent["finish_reason"]), ("", 256, "loop"))

    def test_it_can_be_switched_off_and_is_for_answers_only(self):
        self.assertEqual(len(run("--chat", "--allow-loops", "-n", 300)[0]), 300)
        self.assertEqual(len(run("-n", 300)[0]), 300)
        self.assertEqual(len(run("--chat", "-n", 255)[0]), 255)


if __name__ == "__main__":
    unittest.main(argv=[__file__, *os.sys.argv[4:]])
