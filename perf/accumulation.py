#!/usr/bin/env python3
"""BERT where the network is slow: the efficiency that gradient accumulation reaches, by micro-batches a step.

usage: perf/accumulation.py [--results FILE] [--budget SECONDS] [--quota N] [--nodes 2,4] [--ratios 0.5,1,2,4,8]
                            [--types fp32,bf16] [--most N] [--steps N] [--layers N] [--model-width N] [--context N]
                            [--micro N] [--markdown FILE]
       perf/accumulation.py --report FILE [--markdown FILE]

Published: pretraining of BERT over 10 Gb/s, where gradient accumulation reaches a scaling efficiency of 70 %. What
decides is not the rate but r, the time of an all-reduce of the gradients over that of a micro-batch's computation. So
the links here get the rate that gives r: all gradients in fp32, 2 (N-1)/N of their bytes for each of N nodes, at what
TCP carries of a link's rate. In bf16 the links are the same and the bytes are half as many.

Needs root, and makes the cluster of perf/collectives.py: four nodes of one rank, each with the time of --quota
processors, so that a node computes as fast alone as among four. A small BERT trains on text with data parallelism. First
one node alone gives the time of a micro-batch. Then for each number of nodes, r and type (comm.reduce) steps of 1, 2,
4, ... micro-batches a node are measured, up to the first number beyond that which reaches 70 %, at most --most. Each run is
a line of FILE, by default accumulation.jsonl; the same command goes on where it was ended. Times are medians over the
steps but for the first two, of the slowest rank.

  efficiency = (step - exposed communication) / step
  expected   = compute / (compute + what cannot hide), compute = micro-batches x that of one,
               what cannot hide = max(0, all-reduce - the last micro-batch's backward, 2/3 of its computation)
"""

import argparse
import pathlib
import statistics
import subprocess
import sys
import time

from collectives import PAYLOAD, ROOT, Network, Results, tell
from training import read_run

GOOD = 0.7
KEY = ("nodes", "ratio", "type", "micro_batches")
SETTINGS = ("quota", "layers", "model_width", "context", "micro")  # with others the lines of a file mean something else
ORDERS = {1: "1", 2: "1 3", 4: "1 2 3 4"}
MEASURED_ALONE = 4  # micro-batches a step of the one node


class Study:
    def __init__(self, options, network, results):
        self.options, self.network, self.results = options, network, results
        self.end = time.monotonic() + options.budget
        self.settings = {name: getattr(options, name) for name in SETTINGS}
        if any(line[name] != value for line in results.lines for name, value in self.settings.items()):
            sys.exit(f"{results.path}: of other options; give another file to --results")
        folder = network.folder.parent
        text = folder / "text.txt"
        text.write_text("".join(page.read_text(encoding="utf-8") for page in sorted(ROOT.glob("*/*.md"))) * 4,
                        encoding="utf-8")
        subprocess.run([ROOT / "build/release/bin/trireme", "prepare", "--input", text, "--output", folder / "data", "--tokenizer",
                        "byte"], check=True, stdout=subprocess.DEVNULL)
        self.folder, self.number = folder, 0

    def train(self, nodes, kind, micro_batches):
        """What a run on so many nodes measured, each with so many micro-batches a step."""
        options = self.options
        self.number += 1
        run = self.folder / f"run{self.number}"
        left = self.end - time.monotonic()
        self.network.start(
            ORDERS[nodes], "train", "--model.family", "bert", "--model.layers", options.layers, "--model.width",
            options.model_width, "--model.heads", 4, "--model.context", options.context, "--data.train",
            self.folder / "data/train.h5", "--run.folder", run, "--run.steps", options.steps, "--run.threads", 1,
            "--batch.micro", options.micro, "--batch.global", options.micro * micro_batches * nodes, "--comm.reduce", kind,
            "--schedule.name", "constant", "--eval.every", 0, "--checkpoint.every", 0, "--checkpoint.keep", 1, "--log.every", 1000,
            "--log.stragglers", 0, timeout=left + 30, name="accumulation")
        return read_run(run)

    def measure(self, nodes, ratio, kind, micro_batches, compute=0.0):
        """The line of these; None when no time is left or the run fails. `compute`: seconds of a micro-batch."""
        key = dict(zip(KEY, (nodes, ratio, kind, micro_batches)))
        found = next((line for line in self.results.lines if self.results.key(line) == tuple(key.values())), None)
        if found:
            return found
        if time.monotonic() + (micro_batches + ratio) * compute * self.options.steps > self.end:
            return None
        begin = time.monotonic()
        try:
            measured = self.train(nodes, kind, micro_batches)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            print(f"{key}: given up: {error}", flush=True)
            return None
        line = {**key, **self.settings, "rate": self.network.host, **measured}
        self.results.add(line)
        print(f"{time.monotonic() - begin:6.1f} s  {key}  step {line['step']:.3f} s, exposed {line['exposed']:.3f} s", flush=True)
        return line

    def run(self):
        alone = self.measure(1, 0, "fp32", MEASURED_ALONE)
        if alone is None:
            return
        compute = alone["step"] / MEASURED_ALONE
        for nodes in map(int, self.options.nodes.split(",")):
            for ratio in map(float, self.options.ratios.split(",")):
                sent = 2 * (nodes - 1) / nodes * alone["gradients"]
                rate = 8 * sent / PAYLOAD / (ratio * compute)
                self.network.set_hosts(rate)
                self.network.set_uplinks(2 * rate)
                for kind in self.options.types.split(","):
                    micro_batches, reached = 1, False
                    while micro_batches <= self.options.most:
                        line = self.measure(nodes, ratio, kind, micro_batches, compute)
                        if line is None or reached:
                            break
                        reached = efficiency(line) >= GOOD
                        micro_batches *= 2


def efficiency(line):
    return (line["step"] - line["exposed"]) / line["step"]


def expected(ratio, kind, micro_batches):
    exposed = max(0.0, ratio * (0.5 if kind == "bf16" else 1) - 2 / 3)
    return micro_batches / (micro_batches + exposed)


def report(lines):
    alone = [line for line in lines if line["nodes"] == 1]
    if not alone:
        return "nothing is measured\n"
    compute = statistics.median(line["step"] for line in alone) / MEASURED_ALONE
    counts = sorted({line["micro_batches"] for line in lines if line["nodes"] > 1})
    text = (f"\nA micro-batch takes {1e3 * compute:.0f} ms, gradients are {alone[0]['gradients'] / 1e6:.1f} MB in fp32; "
            "efficiency in %, in brackets what is expected\n"
            "\n| nodes | all-reduce / micro-batch | rate of a node, Mb/s | comm.reduce | "
            + "".join(f"{count} a step | " for count in counts) + "70 % from |\n|" + "---|" * (5 + len(counts)) + "\n")
    for nodes, ratio, kind in dict.fromkeys(tuple(line[name] for name in KEY[:3]) for line in lines if line["nodes"] > 1):
        row = {line["micro_batches"]: line for line in lines if tuple(line[name] for name in KEY[:3]) == (nodes, ratio, kind)}
        cells = (f"{100 * efficiency(row[count]):.0f} ({100 * expected(ratio, kind, count):.0f})" if count in row else "" for count in counts)
        first = next((count for count in counts if count in row and efficiency(row[count]) >= GOOD), None)
        text += (f"| {nodes} | {ratio:g} | {next(iter(row.values()))['rate'] / 1e6:.0f} | {kind} | " + " | ".join(cells)
                 + f" | {first or '-'} |\n")
    return text


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ", 1)[1].replace("%", "%%"))
    parser.add_argument("--results", type=pathlib.Path, default=pathlib.Path("accumulation.jsonl"))
    parser.add_argument("--report", type=pathlib.Path)
    parser.add_argument("--budget", type=float, default=3000.0)
    parser.add_argument("--quota", type=float, default=0.5)
    parser.add_argument("--nodes", default="2,4")
    parser.add_argument("--ratios", default="0.5,1,2,4,8")
    parser.add_argument("--types", default="fp32,bf16")
    parser.add_argument("--most", type=int, default=64)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--model-width", type=int, default=256)
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--micro", type=int, default=2)
    parser.add_argument("--markdown", type=pathlib.Path)
    options = parser.parse_args()
    results = Results(options.report or options.results, KEY)
    if not options.report:
        with Network(2e9, options.quota) as network:
            Study(options, network, results).run()
    tell(report(results.lines), options.markdown)


if __name__ == "__main__":
    main()
