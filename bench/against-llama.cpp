#!/usr/bin/env python3
"""Speed beside llama.cpp on the same CPU, alternating in one run.

The peer is PyPI's llama-cpp-python compiled from source for this CPU:
    python3 -m venv VENV && VENV/bin/pip install --no-binary llama-cpp-python llama-cpp-python
    VENV/bin/python bench/against-llama.cpp [-t THREADS] [-r ROUNDS] [--depth N] [--json FILE] MODEL.gguf...

Each round runs llama.cpp and then salvo, each in its own process with one load. The table shows the best round of each.
bench/chart draws the lines that --json appends to FILE.

With --sessions 1,2,4,8,16,32 the peer is llama.cpp's llama-batched-bench, which needs no VENV:
    bench/against-llama.cpp --sessions 1,2,4,8,16,32 [-t THREADS] [-r ROUNDS] MODEL.gguf...
Each session has a prompt of 64 tokens (-p) and generates 128 (-n); the figures are tokens a second of all sessions together,
while all decode. --batched-bench names the program; without it, it is built once, from the source package of PyPI's
llama-cpp-python, in ~/.cache/salvo/llama.cpp: that needs cmake and a C++ compiler, and takes minutes.
"""
import argparse
import ctypes
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import time
import urllib.parse
import urllib.request

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


def build_batched_bench():
    """The path of llama-batched-bench, built if it is not there."""
    folder = os.path.expanduser("~/.cache/salvo/llama.cpp")
    program = os.path.join(folder, "build", "bin", "llama-batched-bench")
    if os.path.exists(program):
        return program
    os.makedirs(folder, exist_ok=True)
    index = "https://pypi.org/pypi/llama-cpp-python/json"
    with urllib.request.urlopen(index, timeout=60) as reply:
        files = json.load(reply)["urls"]
    package = next(file for file in files if file["packagetype"] == "sdist")
    package["url"] = urllib.parse.urljoin(index, package["url"])  # mirrors name files relative to the index
    print(f"downloading {package['filename']}", file=sys.stderr)
    with urllib.request.urlopen(package["url"], timeout=60) as reply:
        archive = reply.read()
    if hashlib.sha256(archive).hexdigest() != package["digests"]["sha256"]:
        sys.exit(f"{package['url']} has another checksum than PyPI promises")
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    source = os.path.join(folder, package["filename"][:-len(".tar.gz")], "vendor", "llama.cpp")
    options = {"CMAKE_BUILD_TYPE": "Release", "BUILD_SHARED_LIBS": "OFF", "GGML_NATIVE": "ON", "LLAMA_BUILD_TESTS": "OFF",
               "LLAMA_BUILD_EXAMPLES": "OFF", "LLAMA_BUILD_SERVER": "OFF", "LLAMA_CURL": "OFF", "LLAMA_BUILD_TOOLS": "ON",
               "LLAMA_BUILD_MTMD": "OFF", "LLAMA_BUILD_UI": "OFF", "LLAMA_BUILD_APP": "OFF"}
    build = os.path.join(folder, "build")
    subprocess.run(["cmake", "-S", source, "-B", build, *[f"-D{name}={value}" for name, value in options.items()]],
                   check=True, stdout=sys.stderr)
    subprocess.run(["cmake", "--build", build, "-j", str(os.cpu_count()), "--target", "llama-batched-bench"], check=True,
                   stdout=sys.stderr)
    return program


def peer_sessions(program, path, threads, sessions, prompt, generate):
    """{test: tokens a second} of llama-batched-bench."""
    command = [program, "-m", path, "-t", str(threads), "-tb", str(threads), "-ngl", "0", "-b", "2048", "-ub", "512",
               "-c", str(max(sessions) * (prompt + generate) + 64), "-npp", str(prompt), "-ntg", str(generate),
               "-npl", ",".join(map(str, sessions)), "--output-format", "jsonl"]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    lines = [json.loads(line) for line in (output.stdout + output.stderr).splitlines() if line.startswith("{")]
    if len(lines) != len(sessions):
        sys.exit(f"{program} has measured {len(lines)} of {len(sessions)} tests:\n{output.stderr[-2000:]}")
    return {f"tg{line['tg']}x{line['pl']}": line["speed_tg"] for line in lines}


def salvo_sessions(program, path, threads, sessions, prompt, generate):
    command = [program, "bench", "-m", path, "-t", str(threads), "--backend", "cpu", "-r", "2", "--json", "-n", str(generate),
               "-p", str(prompt), "--sessions", ",".join(map(str, sessions))]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


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
    parser.add_argument("-p", "--prompts", help="lengths of prompts (default: 64,512; with --sessions 64)")
    parser.add_argument("-n", "--generate", type=int, default=128)
    parser.add_argument("--depth", type=int, default=0, help="measure generation at this context length too")
    parser.add_argument("--sessions", metavar="N,N", help="instead: as many sessions that decode at once, each after a prompt")
    parser.add_argument("--batched-bench", metavar="PROGRAM", help="llama-batched-bench (default: built in ~/.cache)")
    parser.add_argument("--json", metavar="FILE", help="append the results to FILE as lines of JSON, for bench/chart")
    parser.add_argument("--salvo", default=os.path.join(os.path.dirname(__file__), "..", "build", "salvo"))
    parser.add_argument("--peer-only", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    sessions = [int(text) for text in arguments.sessions.split(",")] if arguments.sessions else []
    prompts = [int(text) for text in (arguments.prompts or ("64" if sessions else "64,512")).split(",")]
    depths = [0] + ([arguments.depth] if arguments.depth else [])
    if arguments.peer_only:
        peer(arguments.models[0], arguments.threads, prompts, arguments.generate, depths)
        return
    if sessions:
        program = arguments.batched_bench or build_batched_bench()
    for path in arguments.models:
        best = {"llama.cpp": {}, "salvo": {}}
        for _ in range(arguments.rounds):
            if sessions:
                theirs = peer_sessions(program, path, arguments.threads, sessions, prompts[0], arguments.generate)
                run = salvo_sessions(arguments.salvo, path, arguments.threads, sessions, prompts[0], arguments.generate)
            else:
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
