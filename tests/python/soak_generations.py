"""soak_generations.py LIBRARY MAKE-WORDS-MODEL [COUNT]: memory stays flat over COUNT (10000) generations of every kind."""

import asyncio
import gc
import os
import subprocess
import sys
import tempfile

os.environ["SALVO_LIBRARY"] = os.path.abspath(sys.argv[1])
sys.path.insert(0, os.path.join(os.environ.get("SALVO_SOURCE", "."), "python"))
import salvo_llm

COUNT = int(sys.argv[3]) if len(sys.argv) > 3 else 10000
SCHEMA = {"type": "object", "properties": {"x": {"type": "integer", "maximum": 99}}, "required": ["x"], "additionalProperties": False}


def resident():
    """Kilobytes."""
    gc.collect()
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))


def generate(model, i):
    kind = i % 7
    if kind == 0:
        model.chat(f"hello {i}", max_tokens=8, seed=i)
    elif kind == 1:
        with model.conversation(system="hi") as chat:
            chat.ask("hello", max_tokens=4, seed=i)
            chat.ask(f"and {i}?", max_tokens=4)
    elif kind == 2:
        next(model.stream(f"hello {i}"))  # dropped
    elif kind == 3:
        model.generate(f"hello {i}", max_tokens=16, schema=SCHEMA)
    elif kind == 4:
        model.embed([f"hello {i}", "world"])
        model.logits(model.tokenize(f"{i}"))
    elif kind == 5:
        asyncio.run(model.agenerate(f"hello {i}", max_tokens=8))
    else:
        try:
            model.generate("hello " * 2000)
        except salvo_llm.SalvoError:
            pass


with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "words.gguf")
    subprocess.run([sys.argv[2], "llama-tiny", path], check=True)
    with salvo_llm.load(path, backend="cpu", threads=1, context=512) as model:
        sizes = []
        for i in range(COUNT):
            if i % (COUNT // 10) == 0:
                sizes.append(resident())
            generate(model, i)
        sizes.append(resident())
print("resident memory in kB, at each tenth:", *sizes)
if sizes[-1] - sizes[2] > 4096:  # until then, caches of tokens, masks and prefixes are filled
    sys.exit(f"memory has grown by {sizes[-1] - sizes[2]} kB over {COUNT} generations")
