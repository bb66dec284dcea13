"""scripts/try-mac with programs of macOS, and salvo, that a table replaces: which commands it runs, and what it prints.

The commands take the options that they have on macOS alone, so that one of GNU is noticed."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["SALVO_SOURCE"])

# Each is a shell script below; `refuse` ends it for options that are not expected.
COMMANDS = {
    "uname": 'case "$*" in -s) echo Darwin ;; -m) echo arm64 ;; *) refuse "$@" ;; esac',
    "sw_vers": '[ "$*" = -productVersion ] || refuse "$@"; echo 15.1',
    "git": 'echo 1234567',
    "xcode-select": '[ "$*" = -p ] || refuse "$@"',
    "xcrun": '[ "$*" = "--sdk macosx --show-sdk-path" ] || refuse "$@"; echo /sdk',
    "python3": '[ "$1 $2" = "-m venv" ] || refuse "$@"; mkdir -p "$3/bin"; cp "$0" "$3/bin/pip"; cp "$STUBS/pip" "$3/bin/pip"',
    "pip": '[ "$*" = "install -q cmake ninja" ] || refuse "$@"; for name in cmake ninja; do cp "$STUBS/$name-of-pip" "$(dirname "$0")/$name"; done',
    "ninja-of-pip": 'refuse "$@"',
    "cmake-of-pip": 'case $1 in -S) ;; --build) mkdir -p "$2"; cp "$STUBS/salvo" "$2/salvo" ;; *) refuse "$@" ;; esac',
    "curl": '[ "$1 $2" = "-fsSL -o" ] || refuse "$@"; echo archive >"$3"',
    "shasum": '[ "$*" = "-a 256 -c -" ] || refuse "$@"; [ -z "$WRONG_SUM" ]',
    "tar": '[ "$1 $3" = "-xzf -C" ] || refuse "$@"; mkdir -p "$4/utf8proc-2.8.0"',
    "cc": '''
case "$*" in
"-O2 -DUTF8PROC_STATIC -c utf8proc.c") touch utf8proc.o ;;
"-O2 -I../../include -I../../src -I. make_model.c model_"*".c random_weights.c "*"/build/libsalvo-internal.a "*"/libutf8proc.a -lm -o "*)
    [ -f make_model.c ] || refuse "$@"
    while [ $# -gt 1 ]; do shift; done
    cp "$STUBS/make-model" "$1" ;;
*) refuse "$@" ;;
esac''',
    "make-model": '[ $# = 3 ] || refuse "$@"; [ "$1" != rwkv7-1.5b ] || { echo "no room"; exit 1; }; echo "$2" >"$3"',
    "ar": '[ "$1" = rcs ] || refuse "$@"; touch "$2"',
    "salvo": '''
case $1 in
--version) echo "salvo 9" ;;
devices) [ -z "$NO_DEVICE" ] && echo "metal   0  Apple M9, 9 GB" || echo "no metal device: $NO_DEVICE" ;;
info) [ -z "$NO_KERNELS" ] || { printf 'program_source:7: error: one\\nprogram_source:9: error: two\\n    ^\\n'; exit 1; }
    echo "metal Apple M9, weights in the mapped file: 5 bytes, 31 pipelines, ids are seen as they come" ;;
quantize) [ "$6" != Q3_K ] || { echo "Q3_K cannot be made"; exit 1; }; echo "$6" >"$5" ;;
verify)
    case "$(cat "$4") ${MTL_DEBUG_LAYER}${MTL_SHADER_VALIDATION}${MTL_SHADER_VALIDATION_REPORT_TO_STDERR}" in
    "Q4_0 111") echo "-[Encoder dispatch]: failed assertion" >&2; exit 134 ;;
    "Q8_0 111") echo "Invalid device load at offset 4096" >&2 ;;
    "Q6_K "*) echo "12 outputs are out of tolerance"; exit 1 ;;
    *" 111" | "Q4_0 " | "Q8_0 ") ;;
    *) refuse "$@" ;;
    esac
    echo "whole model  mean KL 1e-9" ;;
run) case "$*" in *"--backend cpu"*"the sea"*) echo other ;; *) echo "a text" ;; esac ;;
bench)
    case "$*" in *"-p 0"*"-d 512,1536") echo "tg64@d512  55.5 ± 0.1"; exit ;; *"--backend cpu") echo "no memory"; exit 1 ;; esac
    printf 'a model\n\ntest  tok/s\npp64  93.6 ± 0.0  170.8 ms  0.06\ntg128  44.1 ± 0.0  1.0\n\npeak memory 5 MB\n' ;;
*) refuse "$@" ;;
esac''',
}


class TryMac(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        scripts, stubs = self.folder / "tree/scripts", self.folder / "stubs"
        scripts.mkdir(parents=True)
        (self.folder / "tree/tests/tools").mkdir(parents=True)
        (self.folder / "tree/tests/tools/make_model.c").touch()
        stubs.mkdir()
        shutil.copy(SOURCE / "scripts/try-mac", scripts)
        self.write(scripts / "check-selectors", 'echo "4 of 4 selectors are declared"')
        self.write(scripts / "setup", '[ "$*" = model ] || refuse "$@"; [ -z "$NO_MODEL" ]; mkdir -p "$XDG_CACHE_HOME/salvo/models"\n'
                   'echo F32 >"$XDG_CACHE_HOME/salvo/models/SmolLM2-135M-Instruct.Q4_1.gguf"')
        for name, text in COMMANDS.items():
            self.write(stubs / name, text)
        (self.folder / "model.gguf").write_text("F32\n")
        self.environment = {"PATH": f"{stubs}:/usr/bin:/bin", "STUBS": str(stubs), "SALVO_TRY_TYPES": "F16 Q4_0 Q8_0 Q6_K Q3_K",
                            "XDG_CACHE_HOME": str(self.folder / "cache")}

    @staticmethod
    def write(path, text):
        path.write_text(f'#!/bin/sh\nset -e\nrefuse() {{ echo "$(basename "$0") is called with $*" >&2; exit 99; }}\n{text}\n')
        path.chmod(0o755)

    def run_it(self, *arguments, **environment):
        command = [self.folder / "tree/scripts/try-mac", *arguments]
        result = subprocess.run(command, cwd=self.folder, env={**self.environment, **environment}, capture_output=True, text=True,
                                timeout=60, check=False)
        self.assertNotIn("is called with", result.stdout + result.stderr)
        return result

    def test_the_table(self):
        result = self.run_it("model.gguf")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual([" ".join(line.split()) for line in result.stdout.splitlines()], [
            "salvo 9, 1234567, arm64, macOS 15.1",
            "metal 0 Apple M9, 9 GB",
            "4 of 4 selectors are declared",
            "kernels compiled 31 pipelines, ids are seen as they come",
            "",
            "verify result detail",
            "model - model.gguf",
            "as-given passed mean KL 1e-9",
            "F16 passed mean KL 1e-9",
            "Q4_0 FAILED under the validation layers alone: -[Encoder dispatch]: failed assertion",
            "| -[Encoder dispatch]: failed assertion",
            "Q8_0 FAILED under the validation layers alone: Invalid device load at offset 4096",
            "Q6_K FAILED 12 outputs are out of tolerance",
            "Q3_K left-out Q3_K cannot be made",
            "",
            "text result detail",
            "capital passed a text",
            "sea DIFFERS a text",
            "fibonacci passed a text",
            "",
            "speed backend tok/s",
            "model metal pp64 93.6 (170.8 ms), tg128 44.1",
            "model metal tg64@d512 55.5",
            "model FAILED no memory",
            "smollm-135m metal pp64 93.6 (170.8 ms), tg128 44.1",
            "llama-1b metal pp64 93.6 (170.8 ms), tg128 44.1",
            "rwkv7-0.1b passed mean KL 1e-9",
            "rwkv7-0.1b metal pp64 93.6 (170.8 ms), tg128 44.1",
            "rwkv7-1.5b left-out no room",
        ])
        again = self.run_it("model.gguf")  # what is there is used
        self.assertEqual(again.stdout, result.stdout)

    def test_the_default_model(self):
        given, default = self.run_it("model.gguf"), self.run_it()
        self.assertEqual((default.returncode, default.stderr), (0, ""))
        self.assertEqual(default.stdout, given.stdout.replace("model.gguf", "SmolLM2-135M-Instruct.Q4_1.gguf"))
        refused = self.run_it(NO_MODEL="1")
        self.assertEqual((refused.returncode, refused.stdout), (1, ""))
        self.assertIn("without the default model", refused.stderr)

    def test_kernels_that_do_not_compile(self):
        result = self.run_it("model.gguf", NO_KERNELS="1")
        self.assertIn("kernels    FAILED   \n    | program_source:7: error: one\n    | program_source:9: error: two\n", result.stdout)

    def test_what_ends_it(self):
        for environment, message in (({"NO_DEVICE": "Metal has no device"}, "no metal device: Metal has no device"),
                                     ({"WRONG_SUM": "1"}, "has another checksum")):
            shutil.rmtree(self.folder / "tree/build-mac", ignore_errors=True)
            result = self.run_it("model.gguf", **environment)
            self.assertEqual(result.returncode, 1)
            self.assertIn(message, result.stderr)
        self.assertIn("there is no file nowhere.gguf", self.run_it("nowhere.gguf").stderr)
        self.assertIn("usage", self.run_it("one", "two").stderr)


if __name__ == "__main__":
    unittest.main()
