"""examples/ray/batch.py on a Ray cluster of two nodes, of which one is killed in the middle, with an actor of the other: each row is answered once."""

import json
import os
import signal
import subprocess
import sys
import tempfile

try:
    import ray
    from ray.cluster_utils import Cluster
except ImportError:
    print("skipped: ray is not installed")
    sys.exit(77)
import pyarrow
import pyarrow.parquet
from cluster_process import LIMIT, wait_for

LIBRARY, MAKE_WORDS = map(os.path.abspath, sys.argv[1:3])
SOURCE = os.path.abspath(os.environ.get("SALVO_SOURCE", "."))
BATCH = os.path.join(SOURCE, "examples", "ray", "batch.py")
os.environ.update(SALVO_LIBRARY=LIBRARY, PYTHONPATH=os.path.join(SOURCE, "python"), RAY_USAGE_STATS_ENABLED="0", RAY_DEDUP_LOGS="0",
                  RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0", RAY_worker_niceness="0")
sys.path.insert(0, os.environ["PYTHONPATH"])
ROWS, BLOCK = 240, 8
work = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
MODEL, OUTPUT = os.path.join(work.name, "words.gguf"), os.path.join(work.name, "answers")
subprocess.run([MAKE_WORDS, "llama-tiny", MODEL], check=True)


def inputs():
    """The first half as JSONL with an empty line, the second as Parquet; a row without a prompt and one that is too long are among them."""
    rows = [{"prompt": f"hello {n}", "name": f"r{n}"} for n in range(ROWS)]
    rows[7], rows[ROWS - 3]["prompt"] = {"name": "r7"}, "hello " * 5000
    with open(os.path.join(work.name, "a.jsonl"), "w") as file:
        for n, row in enumerate(rows[:ROWS // 2]):
            file.write(json.dumps(row) + ("\n\n" if n == 30 else "\n"))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows[ROWS // 2:]), os.path.join(work.name, "b.parquet"), row_group_size=70)
    return rows


def command(address, *more):
    return [sys.executable, BATCH, "--model", MODEL, "--input", os.path.join(work.name, "a.jsonl"), os.path.join(work.name, "b.parquet"), "--output", OUTPUT,
            "--id", "name", "--block-rows", str(BLOCK), "--actors", "2", "--max-tokens", "200", "--temperature", "0", "--context", "512", "--threads", "1",
            "--backend", "cpu", "--address", address, *more]


def parts():
    return [name for name in os.listdir(OUTPUT) if name.endswith(".parquet")] if os.path.isdir(OUTPUT) else []


def actors_of(node):
    """Processes of answering actors that the raylet of a node has started."""
    raylets = {process.process.pid for kind, processes in node.all_processes.items() if kind == "raylet" for process in processes}
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as stat, open(f"/proc/{pid}/cmdline") as line:
                if int(stat.read().rsplit(")", 1)[1].split()[1]) in raylets and "Answerer" in line.read():
                    found.append(int(pid))
        except OSError:
            pass
    return found


def check(rows):
    """The answers equal the answers of one engine; each occurs once."""
    import salvo_llm
    found = [row for name in sorted(parts()) for row in pyarrow.parquet.read_table(os.path.join(OUTPUT, name)).to_pylist()]
    assert [row["row"] for row in found] == list(range(ROWS))
    assert [row["id"] for row in found] == [row["name"] for row in rows]
    assert {row["row"] for row in found if row["error"]} == {7, ROWS - 3}, [row for row in found if row["error"]]
    with salvo_llm.load(MODEL, context=512, threads=1, backend="cpu") as model:
        for row in found[::37]:
            assert row["answer"] == model.chat(rows[row["row"]]["prompt"], max_tokens=200, temperature=0, seed=0), row


rows = inputs()
memory = {"object_store_memory": 80 * 1024 * 1024}
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False, **memory})
try:
    second = cluster.add_node(num_cpus=1, **memory)
    with open(os.path.join(work.name, "log"), "w+") as log:
        job = subprocess.Popen(command(cluster.address), stdout=log, stderr=subprocess.STDOUT)
        wait_for(lambda: (len(parts()) >= 2 and actors_of(cluster.head_node) and actors_of(second)) or job.poll() is not None)
        assert job.poll() is None, open(log.name).read()
        os.kill(actors_of(cluster.head_node)[0], signal.SIGKILL)
        cluster.remove_node(second, allow_graceful=False)
        answered = len(parts())
        assert answered < ROWS // BLOCK, "nothing was left to be answered when they were killed"
        status = job.wait(LIMIT)
        log.seek(0)
        text = log.read()
    assert status == 0, text
    assert f"all {ROWS} rows are in" in text and "2 of them with an error" in text, text
    check(rows)
    # Started again, it computes only what is missing, and refuses another job.
    os.unlink(os.path.join(OUTPUT, "part-000003.parquet"))
    again = subprocess.run(command(cluster.address), capture_output=True, text=True)
    assert again.returncode == 0 and f"{ROWS - BLOCK} of {ROWS} rows were answered before" in again.stdout, again
    check(rows)
    other = subprocess.run(command(cluster.address, "--system", "be kind"), capture_output=True, text=True)
    assert other.returncode == 1 and "another job" in other.stderr, other
    print(f"{answered} of {ROWS // BLOCK} blocks were there when an actor and a node were killed")
finally:
    cluster.shutdown()
