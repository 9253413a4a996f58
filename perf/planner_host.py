#!/usr/bin/env python3
"""Steps and memory of this host's ranks beside what `trireme plan` says of them.

usage: perf/planner_host.py [--description FILE] [--rates FILE] [--results FILE] [--repeats N] [--only NAME,...]
                            [--markdown FILE]
       perf/planner_host.py --report FILE [--markdown FILE]

The description is that of one thread (`trireme bench ops --describe`, which takes two minutes), the rates those of two
ranks of one node (`trireme topo probe`); both are made beside FILE unless they are given. Each row is a training of a
few steps on one or two ranks; all rows run once before any runs again, so that a busy minute does not fall on one row
alone. Step is the median of a run's steps but for the first three; of the repeats it is the median, with the spread. A
line of FILE is a run; the same command goes on where it was ended. Nothing is fitted to these rows.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

from collectives import PROGRAM, Results, tell

ROOT = pathlib.Path(__file__).resolve().parents[1]
FIRST = 3
GPT = {"model.layers": 6, "model.width": 384, "model.heads": 6, "model.context": 256, "batch.global": 8, "batch.micro": 2}
LLAMA = {"model.preset": "test-llama", "model.layers": 6, "model.width": 384, "model.heads": 6, "model.context": 256,
         "batch.global": 8, "batch.micro": 2}
BERT = {"model.family": "bert", "model.preset": "bert-small", "model.context": 128, "batch.global": 16, "batch.micro": 4}
# By name: ranks, and the keys. A layout is given whole, so that the plan has nothing to choose.
ROWS = {"gpt": (1, GPT),
        "gpt bf16": (1, {**GPT, "run.precision": "bf16"}),
        "gpt recomputed": (1, {**GPT, "recompute.mode": "full"}),
        "llama": (1, LLAMA),
        "bert": (1, BERT),
        "gpt data 2": (2, {**GPT, "grid.data": 2}),
        "gpt tensor 2": (2, {**GPT, "grid.tensor": 2}),
        "gpt pipeline 2": (2, {**GPT, "grid.pipeline": 2}),
        "gpt pipeline 2 zb-h1": (2, {**GPT, "grid.pipeline": 2, "grid.schedule": "zb-h1"}),
        "gpt shards 1": (2, {**GPT, "grid.data": 2, "shard.stage": 1}),
        "gpt shards 3": (2, {**GPT, "grid.data": 2, "shard.stage": 3}),
        "llama tensor 2 sequence": (2, {**LLAMA, "grid.tensor": 2, "grid.sequence_parallel": "true"}),
        "bert data 2": (2, {**BERT, "grid.data": 2})}


def flags(keys):
    return [word for key, value in keys.items() for word in (f"--{key}", str(value))]


def whole(keys):
    """The keys with every dimension and choice of the layout."""
    usual = {"grid.data": 1, "grid.pipeline": 1, "grid.tensor": 1, "grid.schedule": "1f1b", "grid.cut": "equal", "shard.stage": 0,
             "recompute.mode": "none", "grid.sequence_parallel": "false"}
    return {**usual, **keys}


class Study:
    def __init__(self, options, results, scratch):
        self.options, self.results, self.scratch = options, results, scratch
        text = scratch / "text.txt"
        text.write_text("".join(page.read_text(encoding="utf-8") for page in sorted(ROOT.glob("*/*.md"))) * 4, encoding="utf-8")
        self.run("prepare", "--input", text, "--output", scratch / "data", "--tokenizer", "byte")
        self.data = scratch / "data" / "train.h5"
        beside = options.results.resolve().parent
        self.description = options.description or beside / "planner_device.json"
        self.rates = options.rates or beside / "planner_rates.json"
        if not self.description.exists():
            self.run("bench", "ops", "--describe", self.description, "--threads", "1")
        if not self.rates.exists():
            self.run("topo", "probe", "--network", self.rates, ranks=2)

    def run(self, *words, ranks=1):
        launcher = ["mpiexec", "-n", str(ranks)] if ranks > 1 else []
        done = subprocess.run([*launcher, PROGRAM, *map(str, words)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{' '.join(map(str, words))}: {done.stderr.strip()}")
        return done.stdout

    def plan(self, ranks, keys):
        out = self.scratch / "plan.json"
        self.run("plan", "--description", self.description, "--network", self.rates, "--ranks-per-node", ranks, "--nodes", 1, "--best",
                 1, "--json", out, "--data.train", self.data, *flags(whole(keys)))
        layout = json.loads(out.read_text(encoding="utf-8"))["points"][0]["layouts"][0]
        return layout["step_s"], layout["bytes"]

    def measure(self, ranks, keys):
        with tempfile.TemporaryDirectory(dir=self.scratch) as folder:
            run = pathlib.Path(folder) / "run"
            self.run("train", "--data.train", self.data, "--run.folder", run, "--run.steps", FIRST + 8, "--run.threads", 1,
                     "--eval.every", 0, "--checkpoint.every", 1000, *flags(whole(keys)), ranks=ranks)
            steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        steps = [step for step in steps if "step_s" in step][FIRST:]
        return statistics.median(step["step_s"] for step in steps), sum(steps[-1]["memory"].values())

    def run_all(self):
        only = [name for name in self.options.only.split(",") if name]
        for repeat in range(self.options.repeats):
            for name, (ranks, keys) in ROWS.items():
                if (only and name not in only) or self.results.has((name, repeat)):
                    continue
                predicted, planned_bytes = self.plan(ranks, keys)
                seconds, held = self.measure(ranks, keys)
                self.results.add({"row": name, "repeat": repeat, "ranks": ranks, "predicted": predicted, "step": seconds,
                                  "planned_bytes": planned_bytes, "bytes": held})
                print(f"{name}: predicted {1e3 * predicted:.1f} ms, measured {1e3 * seconds:.1f} ms", flush=True)


def report(lines):
    text = "| | ranks | predicted, ms | measured, ms | spread | error | memory, error |\n|---|---|---|---|---|---|---|\n"
    errors = []
    for name in dict.fromkeys(line["row"] for line in lines):
        mine = [line for line in lines if line["row"] == name]
        steps = [line["step"] for line in mine]
        step, predicted = statistics.median(steps), statistics.median(line["predicted"] for line in mine)
        errors.append(abs(predicted / step - 1))
        memory = mine[-1]["planned_bytes"] / mine[-1]["bytes"] - 1
        text += (f"| {name} | {mine[-1]['ranks']} | {1e3 * predicted:.1f} | {1e3 * step:.1f} | {1e3 * min(steps):.1f} to "
                 f"{1e3 * max(steps):.1f} | {100 * (predicted / step - 1):+.1f} % | {100 * memory:+.1f} % |\n")
    return text + f"\nmean error {100 * statistics.mean(errors):.1f} %, worst {100 * max(errors):.1f} %\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--description", type=pathlib.Path)
    parser.add_argument("--rates", type=pathlib.Path)
    parser.add_argument("--results", type=pathlib.Path, default=pathlib.Path("planner_host.jsonl"))
    parser.add_argument("--report", type=pathlib.Path)
    parser.add_argument("--markdown", type=pathlib.Path)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    results = Results(options.report or options.results, ("row", "repeat"))
    if not options.report:
        with tempfile.TemporaryDirectory(prefix="trireme_planner.") as scratch:
            Study(options, results, pathlib.Path(scratch)).run_all()
    tell(report(results.lines), options.markdown)


if __name__ == "__main__":
    main()
