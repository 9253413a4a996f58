#!/usr/bin/env python3
"""What run.precision fp8 learns beside bf16: loss curves of a small GPT on bytes of this repository's pages and sources.

usage: perf/precision.py [--program FILE] [--precisions fp32,bf16,fp8] [--seeds 1,2,3] [--steps N] [--every N]
                         [--width N] [--layers N] [--batch N] [--threads N] [--device cpu|cuda] [--results FILE]
                         [--markdown FILE]

Each run is a line of FILE, by default precision.jsonl; the same command goes on where it was ended. The loss is that of
the validation data (the last 200 kB) at every N steps, evaluated in bf16 for fp8 too; the last is that of
the weights that are left. A seed gives initial values and the order of the data, so runs of one seed differ in
precision alone: "excess" compares them. On a CPU the products of fp8 run in bf16 on the same numbers, with sums in fp32.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile
import time

from collectives import PROGRAM, ROOT, Results, tell

KEYS = ("precision", "seed", "steps", "every", "width", "layers", "batch", "device")
CONTEXT = 128


def prepared(program, folder):
    text = folder / "text.txt"
    pages = sorted([*ROOT.glob("*/*.md"), *ROOT.glob("src/*/*.cc"), *ROOT.glob("io/*/*.cc")])
    text.write_text("".join(page.read_text(encoding="utf-8") for page in pages), encoding="utf-8")
    subprocess.run([program, "prepare", "--input", text, "--output", folder / "data", "--tokenizer", "byte",
                    "--validation", "tail:200000"], check=True, stdout=subprocess.DEVNULL)
    return folder / "data"


def measure(options, results, folder):
    data = None
    for seed in map(int, options.seeds.split(",")):
        for precision in options.precisions.split(","):
            line = {"precision": precision, "seed": seed, "steps": options.steps, "every": options.every, "width": options.width,
                    "layers": options.layers, "batch": options.batch, "device": options.device}
            if results.has(tuple(line.values())):
                continue
            data = data or prepared(options.program, folder)
            run = folder / f"{precision}-{seed}"
            keys = {"data.train": data / "train.h5", "data.validation": data / "validation.h5", "run.folder": run, "run.seed": seed,
                    "run.steps": options.steps, "run.precision": precision, "run.device": options.device,
                    "model.layers": options.layers, "model.width": options.width, "model.heads": options.width // 64,
                    "model.context": CONTEXT, "model.dropout": 0, "batch.global": options.batch, "batch.micro": min(4, options.batch),
                    "optim.lr": 1e-3, "optim.clip": 1, "schedule.name": "cosine", "schedule.warmup": options.steps // 10,
                    "eval.every": options.every, "eval.batches": 16, "checkpoint.every": 0, "checkpoint.keep": 1,
                    "log.every": 100000, "run.threads": options.threads}
            begin = time.monotonic()
            subprocess.run([options.program, "train", *(str(word) for key, value in keys.items() for word in (f"--{key}", value))],
                           check=True, stdout=subprocess.DEVNULL)
            steps = [json.loads(one) for one in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
            line["losses"] = {str(one["step"]): one["eval_loss"] for one in steps if "eval_loss" in one}
            results.add(line)
            last = list(line["losses"].values())[-1]
            print(f"{time.monotonic() - begin:6.1f} s  {precision}, seed {seed}: {last:.4f}", flush=True)


def report(lines):
    """For each step a row: mean and range of each precision over seeds, and of fp8's excess over bf16."""
    runs = {(line["precision"], line["seed"]): line["losses"] for line in lines}
    precisions = list(dict.fromkeys(precision for precision, _ in runs))
    compared = "bf16" in precisions and "fp8" in precisions
    seeds = sorted({seed for _, seed in runs})
    head = ["step", *precisions, *(["excess of fp8 over bf16"] if compared else [])]
    text = f"| {' | '.join(head)} |\n|{'---|' * len(head)}\n"
    for step in next(iter(runs.values())):
        row = [step]
        for precision in precisions:
            losses = [runs[precision, seed][step] for seed in seeds if (precision, seed) in runs]
            row.append(f"{statistics.mean(losses):.4f} ({min(losses):.4f} to {max(losses):.4f})")
        if compared:
            excess = [100 * (runs["fp8", seed][step] / runs["bf16", seed][step] - 1) for seed in seeds
                      if ("fp8", seed) in runs and ("bf16", seed) in runs]
            row.append(f"{statistics.mean(excess):+.2f} % ({min(excess):+.2f} to {max(excess):+.2f})")
        text += f"| {' | '.join(row)} |\n"
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, default=PROGRAM)
    parser.add_argument("--precisions", default="bf16,fp8")
    parser.add_argument("--seeds", default="1,2,3")
    for name, value in (("steps", 240), ("every", 60), ("width", 256), ("layers", 2), ("batch", 4), ("threads", 2)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--results", type=pathlib.Path, default=pathlib.Path("precision.jsonl"))
    parser.add_argument("--markdown", type=pathlib.Path)
    options = parser.parse_args()
    results = Results(options.results, KEYS)
    with tempfile.TemporaryDirectory(prefix="trireme_precision.") as scratch:
        measure(options, results, pathlib.Path(scratch))
    tell(report(results.lines), options.markdown)


if __name__ == "__main__":
    main()
