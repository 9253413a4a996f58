#!/usr/bin/env python3
"""Steps and memory of this host's ranks beside what `trireme plan` says of them.

usage: perf/planner_host.py [--images ARCHIVE] [--rate RATE] [--results FILE] [--repeats N] [--only NAME,...]
                            [--seconds S] [--markdown FILE]
       perf/planner_host.py --report FILE [--markdown FILE]

Each row is a training of a few steps. Rows of one and two ranks run on this host; with --rate (100mbit), those of four
ranks run on four nodes of the emulated network, whose links have it (needs root, and slurmctld). Rows of pictures need
CIFAR-10: --images cifar10-jpeg.tar.xz. Each repeat describes the host anew for one thread of one, two and four ranks
that share it (`trireme bench ops --describe`, --seconds each) and measures the rates of the network (`trireme topo
probe`), then predicts and runs all rows, so that a busy minute falls on all alike. A step is the median of a run's steps
but for the first three; of predicted and measured steps the medians of the repeats count. A line of FILE is a run; the
same command goes on where it was ended. Nothing is fitted to these rows.
"""

import argparse
import contextlib
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

from collectives import PROGRAM, Network, Results, bits, tell

ROOT = pathlib.Path(__file__).resolve().parents[1]
FIRST = 3
GPT = {"model.layers": 6, "model.width": 384, "model.heads": 6, "model.context": 256, "batch.global": 8, "batch.micro": 2}
LLAMA = {"model.preset": "test-llama", "model.layers": 6, "model.width": 384, "model.heads": 6, "model.context": 256,
         "batch.global": 8, "batch.micro": 2}
BERT = {"model.family": "bert", "model.preset": "bert-small", "model.context": 128, "batch.global": 16, "batch.micro": 4}
PICTURES = {"model.family": "mobilenet_v2", "model.preset": "mobilenet_v2-cifar", "batch.global": 128, "batch.micro": 32}
# By name: ranks, and the keys. A layout is given whole, so that the plan has nothing to choose.
ROWS = {"gpt": (1, GPT),
        "gpt bf16": (1, {**GPT, "run.precision": "bf16"}),
        "gpt recomputed": (1, {**GPT, "recompute.mode": "full"}),
        "llama": (1, LLAMA),
        "bert": (1, BERT),
        "mobilenet_v2": (1, PICTURES),
        "gpt data 2": (2, {**GPT, "grid.data": 2}),
        "gpt tensor 2": (2, {**GPT, "grid.tensor": 2}),
        "gpt pipeline 2": (2, {**GPT, "grid.pipeline": 2}),
        "gpt pipeline 2 zb-h1": (2, {**GPT, "grid.pipeline": 2, "grid.schedule": "zb-h1"}),
        "gpt shards 1": (2, {**GPT, "grid.data": 2, "shard.stage": 1}),
        "gpt shards 3": (2, {**GPT, "grid.data": 2, "shard.stage": 3}),
        "llama tensor 2 sequence": (2, {**LLAMA, "grid.tensor": 2, "grid.sequence_parallel": "true"}),
        "bert data 2": (2, {**BERT, "grid.data": 2}),
        "mobilenet_v2 data 2": (2, {**PICTURES, "grid.data": 2}),
        "gpt data 4": (4, {**GPT, "grid.data": 4}),
        "gpt shards 1 of 4": (4, {**GPT, "grid.data": 4, "shard.stage": 1}),
        "gpt shards 3 of 4": (4, {**GPT, "grid.data": 4, "shard.stage": 3}),
        "gpt data 2 tensor 2": (4, {**GPT, "grid.data": 2, "grid.tensor": 2}),
        "bert data 2 pipeline 2": (4, {**BERT, "grid.data": 2, "grid.pipeline": 2})}


def flags(keys):
    return [word for key, value in keys.items() for word in (f"--{key}", str(value))]


def whole(keys):
    """The keys with every dimension and choice of the layout."""
    usual = {"grid.data": 1, "grid.pipeline": 1, "grid.tensor": 1, "grid.schedule": "1f1b", "grid.cut": "equal", "shard.stage": 0,
             "recompute.mode": "none", "grid.sequence_parallel": "false"}
    return {**usual, **keys}


class Study:
    def __init__(self, options, results, scratch, network):
        self.options, self.results, self.scratch, self.network = options, results, scratch, network
        text = scratch / "text.txt"
        text.write_text("".join(page.read_text(encoding="utf-8") for page in sorted(ROOT.glob("*/*.md"))) * 4, encoding="utf-8")
        self.run("prepare", "--input", text, "--output", scratch / "text", "--tokenizer", "byte")
        if options.images:
            self.run("prepare", "--images", options.images, "--output", scratch / "pictures", "--size", "32")
        only = [name for name in options.only.split(",") if name]
        self.rows = {name: (ranks, keys) for name, (ranks, keys) in ROWS.items()
                     if (not only or name in only) and (ranks < 4 or network)
                     and (options.images or "mobilenet_v2" not in name)}

    def run(self, *words, ranks=1):
        launcher = ["mpiexec", "-n", str(ranks)] if ranks > 1 else []
        done = subprocess.run([*launcher, PROGRAM, *map(str, words)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{' '.join(map(str, words))}: {done.stderr.strip()}")
        return done.stdout

    def on(self, ranks, *words):
        """On this host, or with four ranks on the network's nodes."""
        if ranks == 4:
            return self.network.start("1 2 3 4", *words, timeout=300, name="planner")
        return self.run(*words, ranks=ranks)

    def describe(self, ranks):
        """What the plan is told of so many ranks: flags. Rates of one rank are of none."""
        device, rates = self.scratch / f"device_{ranks}.json", self.scratch / f"rates_{ranks}.json"
        self.run("bench", "ops", "--describe", device, "--threads", 1, "--seconds", self.options.seconds, ranks=ranks)
        told = ["--description", device]
        if ranks > 1:
            self.on(ranks, "topo", "probe", "--network", rates)
            told += ["--network", rates]
        return [*told, *(("--nodes", 4, "--ranks-per-node", 1) if ranks == 4 else ("--nodes", 1))]

    def data(self, keys):
        return self.scratch / ("pictures" if keys.get("model.family") == "mobilenet_v2" else "text") / "train.h5"

    def plan(self, told, keys):
        out = self.scratch / "plan.json"
        self.run("plan", *told, "--best", 1, "--json", out, "--data.train", self.data(keys), *flags(whole(keys)))
        layout = json.loads(out.read_text(encoding="utf-8"))["points"][0]["layouts"][0]
        return layout["step_s"], layout["bytes"]

    def measure(self, ranks, keys):
        # A run chooses algorithms for the network that it is told; nodes of one host are told of none.
        network = ("--comm.network", self.scratch / "rates_4.json") if ranks == 4 else ()
        with tempfile.TemporaryDirectory(dir=self.scratch) as folder:
            run = pathlib.Path(folder) / "run"
            self.on(ranks, "train", "--data.train", self.data(keys), "--run.folder", run, "--run.steps", FIRST + 8, "--run.threads", 1,
                    "--eval.every", 0, "--checkpoint.every", 1000, *network, *flags(whole(keys)))
            steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        steps = [step for step in steps if "step_s" in step][FIRST:]
        return statistics.median(step["step_s"] for step in steps), sum(steps[-1]["memory"].values())

    def run_all(self):
        for repeat in range(self.options.repeats):
            left = {name: row for name, row in self.rows.items() if not self.results.has((name, repeat))}
            told = {ranks: self.describe(ranks) for ranks in sorted({ranks for ranks, _ in left.values()})}
            for name, (ranks, keys) in left.items():
                predicted, planned_bytes = self.plan(told[ranks], keys)
                seconds, held = self.measure(ranks, keys)
                self.results.add({"row": name, "repeat": repeat, "ranks": ranks, "predicted": predicted, "step": seconds,
                                  "planned_bytes": planned_bytes, "bytes": held})
                print(f"{name}: predicted {1e3 * predicted:.1f} ms, measured {1e3 * seconds:.1f} ms", flush=True)


def report(lines):
    text = ("| | ranks | predicted, ms | measured, ms | spread, % | error, % | memory, error, % |\n"
            "|---|---|---|---|---|---|---|\n")
    errors = []
    for name in dict.fromkeys(line["row"] for line in lines):
        mine = [line for line in lines if line["row"] == name]
        steps = [line["step"] for line in mine]
        step, predicted = statistics.median(steps), statistics.median(line["predicted"] for line in mine)
        errors.append(abs(predicted / step - 1))
        memory = mine[-1]["planned_bytes"] / mine[-1]["bytes"] - 1
        spread = (max(steps) - min(steps)) / step
        text += (f"| {name} | {mine[-1]['ranks']} | {1e3 * predicted:.1f} | {1e3 * step:.1f} | {100 * spread:.0f} | "
                 f"{100 * (predicted / step - 1):+.1f} | {100 * memory:+.2f} |\n")
    near = sum(error <= 0.1 for error in errors)
    return text + f"\n{near} of {len(errors)} rows within 10 %; mean error {100 * statistics.mean(errors):.1f} %, worst {100 * max(errors):.1f} %\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=pathlib.Path)
    parser.add_argument("--rate", default="")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--results", type=pathlib.Path, default=pathlib.Path("planner_host.jsonl"))
    parser.add_argument("--report", type=pathlib.Path)
    parser.add_argument("--markdown", type=pathlib.Path)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    results = Results(options.report or options.results, ("row", "repeat"))
    if not options.report:
        with tempfile.TemporaryDirectory(prefix="trireme_planner.") as scratch, (
                Network(bits(options.rate)) if options.rate else contextlib.nullcontext()) as network:
            Study(options, results, pathlib.Path(scratch), network).run_all()
    tell(report(results.lines), options.markdown)


if __name__ == "__main__":
    main()
