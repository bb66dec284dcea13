#!/usr/bin/env python3
"""Answers the rows of JSONL or Parquet files with Ray: on one machine, or on all machines of a cluster.

    python batch.py --model SmolLM2-135M --input prompts.jsonl --output answers/
    python batch.py --address auto --actors 16 --model /shared/model.gguf --input '/shared/prompts/*.parquet' --output /shared/answers/

The input is divided into blocks of --block-rows rows. Each actor holds an engine and gives it all rows of its blocks at once, so that the library's
scheduler keeps the engine full; an actor works on two blocks at a time, so that it stays full between them. The answers to a block are one Parquet
file, which is renamed to its name when it is whole. A block that is computed again, because an actor or a machine died, or because the job was started
again, therefore replaces nothing and doubles nothing. At the end all rows are counted.

Input and output must be folders that all machines share. Columns of the output: row (number of the row in the input, from 0), answer, finish ("end",
"length", ...), prompt_tokens, tokens, error (why a row has no answer, as a prompt that is too long; otherwise empty), and the column of --id.
"""

from __future__ import annotations

import argparse
import glob
import json
import os
import sys
import time
import uuid
from typing import Any, Iterator

import pyarrow
import pyarrow.parquet as parquet
import ray


# ---- The plan: which rows are in which block ----

def count_jsonl(path: str, rows: int) -> Iterator[tuple[int, int]]:
    """(bytes before it, rows) of each block; empty lines are no rows."""
    with open(path, "rb") as file:
        start = end = count = 0
        for line in file:
            end += len(line)
            count += bool(line.strip())
            if count == rows:
                yield start, count
                start, count = end, 0
        if count:
            yield start, count


def make_plan(options: argparse.Namespace) -> dict[str, Any]:
    paths = sorted({path for pattern in options.input for path in glob.glob(pattern)})
    if not paths:
        sys.exit(f"batch: no file matches {' '.join(options.input)}")
    blocks, first = [], 0
    for path in paths:
        if path.endswith(".parquet"):
            total = parquet.ParquetFile(path).metadata.num_rows
            parts = [(start, min(options.block_rows, total - start)) for start in range(0, total, options.block_rows)]
        else:
            parts = list(count_jsonl(path, options.block_rows))
        for place, rows in parts:
            blocks.append({"number": len(blocks), "path": os.path.abspath(path), "place": place, "first": first, "rows": rows})
            first += rows
    return {"rows": first, "model": options.model, "prompt": options.prompt, "id": options.id, "chat": not options.plain, "system": options.system,
            "max_tokens": options.max_tokens, "temperature": options.temperature, "seed": options.seed,
            "sizes": {path: os.path.getsize(path) for path in paths}, "blocks": blocks}


def keep_plan(plan: dict[str, Any], folder: str) -> None:
    """Writes the plan, or compares it with the plan of an earlier, unfinished job."""
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "plan.json")
    if os.path.exists(path):
        with open(path) as file:
            if json.load(file) != plan:
                sys.exit(f"batch: {folder} has the answers of another job: other input, model or options (plan.json)")
        return
    write_whole(path, lambda part: open(part, "w").write(json.dumps(plan)))


def write_whole(path: str, write: Any) -> None:
    """A file that appears under its name when it is complete."""
    part = f"{path}.{uuid.uuid4().hex}.part"
    try:
        write(part)
        os.rename(part, path)
    finally:
        if os.path.exists(part):
            os.unlink(part)


def output_path(folder: str, block: dict[str, Any]) -> str:
    return os.path.join(folder, f"part-{block['number']:06d}.parquet")


def read_block(block: dict[str, Any]) -> list[dict[str, Any]]:
    if block["path"].endswith(".parquet"):
        return list(read_parquet(block))
    rows = []
    with open(block["path"], "rb") as file:
        file.seek(block["place"])
        while len(rows) < block["rows"]:
            if (line := file.readline()).strip():
                rows.append(json.loads(line))
    return rows


def read_parquet(block: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Reads only the row groups in which the block's rows are."""
    with parquet.ParquetFile(block["path"]) as file:
        before, end = 0, block["place"] + block["rows"]
        for group in range(file.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            begin, stop = max(block["place"] - before, 0), min(end - before, rows)
            if begin < stop:
                yield from file.read_row_group(group).slice(begin, stop - begin).to_pylist()
            before += rows


# ---- Actors ----

class Answerer:
    """An engine that answers blocks."""

    def __init__(self, plan: dict[str, Any], folder: str, load: dict[str, Any]):
        import salvo_llm
        self._plan, self._folder, self._error = plan, folder, salvo_llm.SalvoError
        self._model = salvo_llm.load(plan["model"], **load)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        blocks = [self._plan["blocks"][number] for number in batch["block"]]
        tokens = [self._answer_block(block) for block in blocks]
        return {"rows": [block["rows"] for block in blocks], "tokens": tokens}

    def _answer_block(self, block: dict[str, Any]) -> int:
        path = output_path(self._folder, block)
        if os.path.exists(path):
            return 0  # another actor was faster
        rows = read_block(block)
        begun = [self._begin(row) for row in rows]  # all at once: the scheduler computes as many as the engine has places for
        answers = [self._finish(stream) for stream in begun]
        columns = {"row": pyarrow.array(range(block["first"], block["first"] + len(rows)), pyarrow.int64())}
        if self._plan["id"]:
            columns["id"] = [row.get(self._plan["id"]) for row in rows]
        for name in ("answer", "finish", "prompt_tokens", "tokens", "error"):
            columns[name] = [answer[name] for answer in answers]
        write_whole(path, lambda part: parquet.write_table(pyarrow.table(columns), part))
        return sum(answer["tokens"] for answer in answers)

    def _begin(self, row: dict[str, Any]) -> Any:
        plan, prompt = self._plan, row.get(self._plan["prompt"])
        options = {name: plan[name] for name in ("max_tokens", "temperature", "seed") if plan[name] is not None}
        try:
            if not isinstance(prompt, str):
                raise self._error(f"the row has no text '{plan['prompt']}'")
            if plan["chat"]:
                return self._model.conversation(system=plan["system"]).stream(prompt, **options)
            return self._model.stream(prompt, **options)
        except self._error as error:
            return error

    def _finish(self, stream: Any) -> dict[str, Any]:
        if isinstance(stream, self._error):
            return {"answer": "", "finish": "", "prompt_tokens": 0, "tokens": 0, "error": str(stream)}
        try:
            answer, error = "".join(stream), ""
        except self._error as failure:
            if not stream.finish or stream.finish == "cancelled":
                raise  # the engine failed: the block is answered again
            answer, error = stream.text, str(failure)
        return {"answer": answer, "finish": stream.finish, "prompt_tokens": stream.prompt_tokens, "tokens": len(stream.tokens), "error": error}


# ---- The job ----

def check(plan: dict[str, Any], folder: str) -> int:
    """Counts the rows of all files: each row of the input must be there once. Returns the number of rows with an error."""
    errors = 0
    for block in plan["blocks"]:
        table = parquet.read_table(output_path(folder, block), columns=["row", "error"])
        rows = table.column("row").to_pylist()
        if rows != list(range(block["first"], block["first"] + block["rows"])):
            sys.exit(f"batch: {output_path(folder, block)} does not have the rows {block['first']} to {block['first'] + block['rows'] - 1}")
        errors += sum(map(bool, table.column("error").to_pylist()))
    return errors


def run(plan: dict[str, Any], options: argparse.Namespace) -> None:
    missing = [block for block in plan["blocks"] if not os.path.exists(output_path(options.output, block))]
    done = plan["rows"] - sum(block["rows"] for block in missing)
    if done:
        print(f"batch: {done} of {plan['rows']} rows were answered before", flush=True)
    if not missing:
        return
    ray.init(address=options.address, log_to_driver=False, logging_level="warning")
    ray.data.DataContext.get_current().enable_progress_bars = False
    load = {"parallel": options.parallel, "context": options.context, "threads": options.threads, "backend": options.backend}
    answers = ray.data.from_items([{"block": block["number"]} for block in missing], override_num_blocks=len(missing)).map_batches(
        Answerer, fn_constructor_args=(plan, os.path.abspath(options.output), load), batch_size=1, num_cpus=options.cpus, num_gpus=options.gpus,
        compute=ray.data.ActorPoolStrategy(min_size=1, max_size=options.actors, initial_size=options.actors, max_tasks_in_flight_per_actor=4,
                                           max_concurrent_calls_per_actor=2, enable_true_multi_threading=True))
    start, tokens = time.monotonic(), 0
    for block in answers.iter_rows():
        done, tokens = done + block["rows"], tokens + block["tokens"]
        print(f"batch: {done} of {plan['rows']} rows, {tokens / (time.monotonic() - start):.0f} tok/s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a model file, or a name from `salvo list`")
    parser.add_argument("--input", required=True, nargs="+", help="files or patterns, JSONL or *.parquet")
    parser.add_argument("--output", required=True, help="a folder; a job that was interrupted goes on in it")
    parser.add_argument("--prompt", default="prompt", help="column with the prompt")
    parser.add_argument("--id", help="a column that is copied to the output as `id`")
    parser.add_argument("--plain", action="store_true", help="continue the text instead of answering it as a message")
    parser.add_argument("--system", help="system message")
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--temperature", type=float)
    parser.add_argument("--seed", type=int, default=0, help="of every row, so that answers do not depend on where they are computed")
    parser.add_argument("--block-rows", type=int, default=256, help="rows of an output file")
    parser.add_argument("--actors", type=int, default=1, help="engines at most; each needs --cpus and --gpus")
    parser.add_argument("--cpus", type=float, default=1)
    parser.add_argument("--gpus", type=float, default=0)
    parser.add_argument("--parallel", type=int, default=16, help="rows that an engine computes at once")
    parser.add_argument("--context", type=int, default=0)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--backend")
    parser.add_argument("--address", help="of a Ray cluster: auto, or HOST:PORT; without one, this machine alone")
    options = parser.parse_args()
    plan = make_plan(options)
    keep_plan(plan, options.output)
    run(plan, options)
    errors = check(plan, options.output)
    print(f"batch: all {plan['rows']} rows are in {options.output}, {errors} of them with an error")


if __name__ == "__main__":
    main()
