"""The types of the Python package, as mypy --strict sees them: in the package, in a program that uses it well, and in one that does not."""

import importlib.util
import os
import subprocess
import sys
import tempfile

SOURCE = os.path.abspath(os.environ.get("SALVO_SOURCE", "."))
if not importlib.util.find_spec("mypy"):
    print("skipped: no mypy")
    sys.exit(77)

GOOD = '''
import asyncio
import numpy
import pydantic
import salvo_llm

class City(pydantic.BaseModel):
    name: str

def use(path: str) -> tuple[str, int]:
    with salvo_llm.load(path, backend="cpu", threads=1, context=512) as model:
        city: City = model.parse("Where?", City, system="Answer.", max_tokens=20)
        stream: salvo_llm.Stream = model.stream("x", stop=["a"], logprobs=2)
        text: str = "".join(stream)
        ids: list[int] = model.tokenize(text)
        rows: numpy.ndarray = model.logits(ids)
        with model.conversation(system="x") as chat:
            answer: str = chat.ask("q", temperature=0, seed=1)

        async def ask() -> list[str]:
            pieces: list[str] = [piece async for piece in model.astream("x", regex="a+")]
            return pieces + await asyncio.gather(*(model.achat("x") for _ in range(2)))

        return city.name + answer + stream.finish + "".join(asyncio.run(ask())), stream.prompt_tokens + len(rows)
'''
WRONG = ['salvo_llm.load(3)', 'model.chat(5)', 'model.generate("x", temperature="hot")', 'model.generate("x", temprature=0)', 'number: int = model.chat("x")',
         'model.nothing()', 'salvo_llm.load("x", context="8")']


def errors(folder, text):
    """The lines with an error."""
    path = os.path.join(folder, "program.py")
    with open(path, "w") as file:
        file.write(text)
    done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--no-color-output", "--cache-dir", os.path.join(folder, "cache"), path],
                          capture_output=True, text=True, cwd=folder, env={**os.environ, "MYPYPATH": os.path.join(SOURCE, "python")})
    assert done.returncode in (0, 1), done.stderr
    return [line for line in done.stdout.splitlines() if ": error: " in line]


with tempfile.TemporaryDirectory() as folder:
    found = errors(folder, GOOD)
    assert not found, "\n".join(found)
    found = errors(folder, "import salvo_llm\nmodel: salvo_llm.Model\n" + "\n".join(WRONG) + "\n")
    numbers = [int(line.split(":")[1]) for line in found]
    assert numbers == list(range(3, 3 + len(WRONG))), "\n".join(found)
