#!/usr/bin/env python3
"""Memory of a rank at each shard.stage, with and without recomputation: by dry runs, and measured beside them.

usage: memory_table.py                     a model of Llama's 7 billion parameters on 4 ranks, by dry runs
       memory_table.py --measure SHARD     gpt2-124m, by runs of 4 ranks here, beside dry runs of the same

SHARD is a file of tokens with 50,257 of them, as trireme prepare TEXT --tokenizer bpe:50257 makes it. Without
gpt2-124m's vocabulary the figures would be those of a smaller model.

Columns in MiB: what a rank holds of each use when it holds most (of the measured runs: at most of each use), and in
all. "difference" is the largest, of parameters, gradients, optimizer and activations, between what was measured and the
dry run's peak of the use.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "build/release/bin/trireme"
USES = ("parameters", "gradients", "optimizer", "activations", "workspace", "communication")
STAGES = ("0", "1", "2", "3")
LLAMA = ["--model.layers", "32", "--model.width", "4096", "--model.heads", "32", "--model.hidden", "11008",
         "--model.vocabulary", "32000", "--model.context", "2048", "--model.norm", "rms", "--model.activation", "swiglu",
         "--model.positions", "rotary", "--model.tied", "false", "--model.bias", "false",
         "--batch.global", "4", "--batch.micro", "1", "--grid.data", "4"]
GPT2 = ["--model.preset", "gpt2-124m", "--model.context", "256", "--batch.global", "4", "--batch.micro", "1",
        "--grid.data", "4", "--run.threads", "1"]


def mib(size):
    return size / 1048576


def dry_run(arguments):
    """The kind of rank that needs most."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "memory.json")
        subprocess.run([PROGRAM, "memory", *arguments, "--json", file], check=True, capture_output=True)
        return max(json.loads(file.read_text())["kinds"], key=lambda kind: kind["peak_bytes"])


def measure(arguments, shard, mpiexec):
    """Peaks of each use over the ranks of a run of two steps."""
    with tempfile.TemporaryDirectory() as folder:
        run = pathlib.Path(folder, "run")
        subprocess.run([*mpiexec.split(), "-n", "4", PROGRAM, "train", *arguments, "--data.train", shard, "--run.folder",
                        run, "--run.steps", "2", "--log.every", "1", "--checkpoint.every", "0"],
                       check=True, capture_output=True)
        return json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["memory"]


def rows(precisions):
    for precision in precisions:
        for stage in STAGES:
            for mode in ("none", "selective", "full"):
                flags = ["--run.precision", precision, "--recompute.mode", mode, "--shard.stage", stage]
                yield precision, stage, mode, flags


def print_row(name, values):
    print(f"| {' | '.join(name)} | {' | '.join(values)} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", metavar="SHARD")
    parser.add_argument("--mpiexec", default="mpiexec")
    given = parser.parse_args()
    head = ["precision", "shard.stage", "recompute.mode"]
    if given.measure is None:
        print_row(head, [*USES[:5], "all"])
        print("|" + "---|" * 9)
        for precision, stage, mode, flags in rows(("fp32", "bf16")):
            kind = dry_run(LLAMA + flags)
            held = [kind["at_peak"].get(use, 0) for use in USES[:5]]
            print_row([precision, stage, mode], [f"{mib(size):.0f}" for size in [*held, kind["peak_bytes"]]])
        return
    print_row(head, [*USES[:5], "dry run, all", "difference"])
    print("|" + "---|" * 10)
    for precision, stage, mode, flags in rows(("fp32",)):
        kind = dry_run(GPT2 + flags)
        measured = measure(GPT2 + flags, given.measure, given.mpiexec)
        off = max(abs(measured[use] / kind["peaks"][use] - 1) for use in USES[:4])
        print_row([precision, stage, mode], [f"{mib(measured[use]):.0f}" for use in USES[:5]] +
                  [f"{mib(kind['peak_bytes']):.0f}", f"{off:.1%}"])


if __name__ == "__main__":
    main()
