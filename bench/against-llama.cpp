#!/usr/bin/env python3
"""Speed beside llama.cpp on the same CPU, alternating in one run.

The peer is PyPI's llama-cpp-python compiled from source for this CPU:
    python3 -m venv VENV && VENV/bin/pip install --no-binary llama-cpp-python llama-cpp-python
    VENV/bin/python bench/against-llama.cpp [-t THREADS] [-r ROUNDS] [--depth N] [--json FILE] MODEL.gguf...

Each round runs llama.cpp and then salvo, each in its own process with one load. The table shows the best round of each.
bench/chart draws the lines that --json appends to FILE.
"""
import argparse
import ctypes
import json
import os
import subprocess
import sys
import time

def peer(path, threads, prompts, generate, depths):
    """Measures llama.cpp in this process and prints {test: tokens a second}."""
    import llama_cpp as llama

    llama.llama_backend_init()
    callback = llama.llama_log_callback(lambda level, text, user: None)
    llama.llama_log_set(callback, ctypes.c_void_p(0))
    model = llama.llama_model_load_from_file(path.encode(), llama.llama_model_default_params())
    if not model:
        sys.exit(f"llama.cpp cannot load {path}")
    params = llama.llama_context_default_params()
    params.n_ctx = max(max(prompts), max(depths) + generate) + 64
    params.n_batch = params.n_ubatch = 512
    params.n_threads = params.n_threads_batch = threads
    context = llama.llama_init_from_model(model, params)
    vocabulary = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(model))

    def decode(count):
        ids = (llama.llama_token * count)(*[(i * 7919 + 13) % vocabulary for i in range(count)])
        if llama.llama_decode(context, llama.llama_batch_get_one(ids, count)) != 0:
            sys.exit("llama.cpp cannot decode")
        llama.llama_synchronize(context)

    def clear():
        llama.llama_memory_clear(llama.llama_get_memory(context), True)

    def feed(count):
        while count:
            decode(min(count, 512))
            count -= min(count, 512)

    results = {}
    for count in prompts:
        for warm in (True, False, False):
            clear()
            start = time.perf_counter()
            feed(count)
            if not warm:
                results[f"pp{count}"] = max(results.get(f"pp{count}", 0), count / (time.perf_counter() - start))
    for depth in depths:
        name = f"tg{generate}" + (f"@d{depth}" if depth else "")
        clear()
        feed(depth)
        decode(1)
        start = time.perf_counter()
        for _ in range(generate):
            decode(1)
        results[name] = generate / (time.perf_counter() - start)
    print(json.dumps(results))


def salvo(program, path, threads, prompts, generate, depths):
    command = [program, "bench", "-m", path, "-t", str(threads), "-r", "2", "--json", "-n", str(generate),
               "-p", ",".join(map(str, prompts)), "-d", ",".join(map(str, depths))]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    return json.loads(output)


def write_runs(path, run, best):
    """Appends one line for each program, in the shape of `salvo bench --json`."""
    with open(path, "a", encoding="utf-8") as file:
        for program, figures in best.items():
            line = {"program": program, **{key: run[key] for key in ("name", "file_type", "backend", "device", "threads")},
                    "tests": [{"test": test, "avg_ts": figure} for test, figure in figures.items()]}
            file.write(json.dumps(line, separators=(",", ":")) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("-t", "--threads", type=int, default=os.cpu_count())
    parser.add_argument("-r", "--rounds", type=int, default=3)
    parser.add_argument("-p", "--prompts", default="64,512")
    parser.add_argument("-n", "--generate", type=int, default=128)
    parser.add_argument("--depth", type=int, default=0, help="measure generation at this context length too")
    parser.add_argument("--json", metavar="FILE", help="append the results to FILE as lines of JSON, for bench/chart")
    parser.add_argument("--salvo", default=os.path.join(os.path.dirname(__file__), "..", "build", "salvo"))
    parser.add_argument("--peer-only", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    prompts = [int(text) for text in arguments.prompts.split(",")]
    depths = [0] + ([arguments.depth] if arguments.depth else [])
    if arguments.peer_only:
        peer(arguments.models[0], arguments.threads, prompts, arguments.generate, depths)
        return
    for path in arguments.models:
        best = {"llama.cpp": {}, "salvo": {}}
        for _ in range(arguments.rounds):
            command = [sys.executable, __file__, "--peer-only", *sys.argv[1:]]
            command = [word for word in command if word not in arguments.models] + [path]
            theirs = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
            run = salvo(arguments.salvo, path, arguments.threads, prompts, arguments.generate, depths)
            ours = {test["test"]: test["avg_ts"] for test in run["tests"]}
            for name, figures in (("llama.cpp", theirs), ("salvo", ours)):
                for test, figure in figures.items():
                    best[name][test] = max(best[name].get(test, 0), figure)
        print(f"{os.path.basename(path)}, {arguments.threads} threads, best of {arguments.rounds}")
        print(f"  {'test':<14}{'llama.cpp':>12}{'salvo':>12}{'ratio':>8}   tokens a second")
        for test, theirs in best["llama.cpp"].items():
            ours = best["salvo"].get(test, 0)
            print(f"  {test:<14}{theirs:>12.1f}{ours:>12.1f}{ours / theirs:>8.2f}")
        if arguments.json:
            write_runs(arguments.json, run, best)


if __name__ == "__main__":
    main()
