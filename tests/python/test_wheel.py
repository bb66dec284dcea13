"""The wheel: built with the library of this build, installed into a fresh environment, where the lines of python/README.md run."""

import glob
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import unittest
import venv
import zipfile

LIBRARY = os.path.realpath(sys.argv[1])
SOURCE = os.path.abspath(os.environ.get("SALVO_SOURCE", "."))
CACHE = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")


def run(*command, **options):
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True, stdin=subprocess.DEVNULL, **options)
    if result.returncode:
        raise AssertionError(f"{command}: {result.stdout}{result.stderr}")
    return result.stdout


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        link = os.path.join(cls.folder, "libsalvo.so.1")
        os.symlink(LIBRARY, link)
        run(sys.executable, "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps", "--no-index", "-w", cls.folder, os.path.join(SOURCE, "python"),
            f"--config-settings=cmake.define.SALVO_LIBRARY={link}", f"--config-settings=build-dir={cls.folder}/build") # -C needs pip 23.1
        cls.wheel, = glob.glob(f"{cls.folder}/*.whl")
        environment = os.path.join(cls.folder, "venv")
        venv.create(environment, with_pip=False)
        cls.python = os.path.join(environment, "bin", "python")
        run(sys.executable, "-m", "pip", "--python", cls.python, "install", "-q", "--no-deps", "--no-index", cls.wheel)
        # NumPy and Pydantic come from the tests' environment; the package is the installed one.
        cls.packages, = glob.glob(f"{environment}/lib/python*/site-packages")
        with open(os.path.join(cls.packages, "tests.pth"), "w") as file:
            file.write(sysconfig.get_paths()["purelib"] + "\n")

    def run_python(self, code):
        environment = {name: value for name, value in os.environ.items() if name not in ("SALVO_LIBRARY", "PYTHONPATH")}
        return run(self.python, "-c", code, cwd=self.folder, env=environment)

    def test_name_and_contents(self):
        with open(os.path.join(SOURCE, "CMakeLists.txt")) as file:
            version = re.search(r"project\(salvo VERSION ([0-9.]+)", file.read())[1]
        self.assertRegex(os.path.basename(self.wheel), rf"^salvo_llm-{re.escape(version)}-py3-none-(linux|manylinux|macosx)\w*\.whl$")
        with zipfile.ZipFile(self.wheel) as wheel:
            names = wheel.namelist()
        self.assertEqual([name for name in names if "libsalvo" in name], ["salvo_llm/libsalvo.so.1"])
        for name in ("salvo_llm/__init__.py", "salvo_llm/py.typed", "salvo_llm/LICENSE"):
            self.assertIn(name, names)
        printed = self.run_python("import salvo_llm; print(salvo_llm.__version__, salvo_llm.__file__)").split()
        self.assertEqual(printed[0], version)
        self.assertTrue(printed[1].startswith(self.packages), printed)

    def test_lines_of_the_readme(self):
        if not glob.glob(f"{CACHE}/salvo/models/SmolLM2-135M*.gguf"):
            self.skipTest("the default model is not there")
        with open(os.path.join(SOURCE, "python", "README.md")) as file:
            blocks = re.findall(r"```python\n(.*?)```", file.read(), re.S)
        self.assertEqual(len(blocks), 2)
        outputs = [self.run_python(block) for block in blocks]
        self.assertRegex(outputs[0], r"(red|green|blue)\n$")
        self.assertRegex(outputs[1], r"name='.*' country='.*'")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
