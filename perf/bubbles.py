#!/usr/bin/env python3
"""The share of time in which pipeline stages are idle, under every schedule: measured beside the checker's prediction.

usage: perf/bubbles.py [--stages N] [--micro-batches N] [--layers N] [--width N] [--steps N] [--repeats N]
                       [--schedules NAME,...] [--results FILE]
       perf/bubbles.py --report FILE

Needs a calm machine with a core for each stage: a stage that waits for a core is busy in the figures. (The script says so
where there are fewer.) Each schedule is a run of `trireme train` with one thread a rank, whose last steps are traced; the
schedules take turns, --repeats times. Of a traced step it takes from all stages the times of forward and backward, less
the waits inside of them. Idle is 1 - their sum / (stages x the time from the first begin to the last end); the median
over the steps of all repeats is printed, with the least and the most.

Beside it stands what `trireme memory` prints for the same run: idle by FLOPs (computations as long as their FLOPs say,
messages without time), and the micro-batches whose activations a stage holds at most.

The last columns are the measured time from the first computation of a step to the last, and that compared with 1F1B's.
Each schedule of each repeat is a line of FILE, by default bubbles.jsonl; --report prints the table from a file again.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "build/release/bin/trireme"
SCHEDULES = "gpipe,1f1b,interleaved,zb-h1,zb-v"
FIRST = 3  # steps that are not traced


def model(options):
    return ["--model.layers", options.layers, "--model.width", options.width, "--model.heads", 4, "--model.context", 128,
            "--model.vocabulary", 257, "--batch.micro", 1, "--batch.global", options.micro_batches, "--grid.data", 1,
            "--grid.pipeline", options.stages, "--run.threads", 1, "--run.device", "cpu"]


def run(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, words))}: status {done.returncode}\n{done.stdout}{done.stderr}")


def idle_shares(path, stages, steps):
    """The idle share of each traced step, and the seconds from its first computation to its last."""
    computes, waits = {}, {}
    for event in json.loads(path.read_text(encoding="utf-8"))["traceEvents"]:
        if event["ph"] != "X":
            continue
        span = (event["ts"], event["ts"] + event["dur"])
        if event["name"] in ("forward", "backward"):
            computes.setdefault(event["pid"], []).append(span)
        elif event["tid"] == 1:  # waits for communication
            waits.setdefault(event["pid"], []).append(span)
    found = []
    per_stage = {pid: sorted(spans) for pid, spans in computes.items()}
    for step in range(steps):
        begin, end, busy = float("inf"), 0.0, 0.0
        for pid in range(stages):
            spans = per_stage[pid]
            each = len(spans) // steps  # every step of a stage has the same list
            mine = spans[step * each:(step + 1) * each]
            begin, end = min(begin, mine[0][0]), max(end, mine[-1][1])
            for first, last in mine:
                inside = sum(b - a for a, b in waits.get(pid, ()) if first <= a and b <= last)
                busy += last - first - inside
        found.append((1 - busy / (stages * (end - begin)), (end - begin) * 1e-6))
    return found


def measure(options, folder, data, name):
    path = folder / "run"
    run("rm", "-rf", path)
    last = FIRST + options.steps
    run("mpiexec", "-n", options.stages, PROGRAM, "train", "--data.train", data, "--run.folder", path, "--run.steps", last,
        *model(options), "--grid.schedule", name, "--eval.every", 0, "--checkpoint.every", 0, "--log.every", 1000,
        "--log.stragglers", 0, "--log.trace", f"{FIRST + 1}-{last}")
    return idle_shares(path / "trace.json", options.stages, options.steps)


def predicted(options, folder):
    said = folder / "memory.json"
    run(PROGRAM, "memory", *model(options), "--grid.tensor", 1, "--json", said)
    return {row["name"]: row for row in json.loads(said.read_text(encoding="utf-8"))["schedules"]}


def report(lines):
    names = list(dict.fromkeys(line["schedule"] for line in lines))
    print(f"{lines[0]['stages']} stages, {lines[0]['micro_batches']} micro-batches, {lines[0]['layers']} layers of width "
          f"{lines[0]['width']}, {lines[0]['cores']} cores")
    print(f"{'schedule':<12} {'chunks':>6} {'held':>5} {'by FLOPs %':>10} {'idle %':>7} {'from':>6} {'to':>6} "
          f"{'step ms':>8} {'of 1f1b':>8}")
    step = {name: statistics.median(s for line in lines if line["schedule"] == name for s in line["seconds"]) for name in names}
    for name in names:
        mine = [line for line in lines if line["schedule"] == name]
        idle = [share for line in mine for share in line["idle"]]
        relative = f"{step[name] / step['1f1b']:.3f}" if "1f1b" in step else ""
        print(f"{name:<12} {mine[0]['chunks']:>6} {mine[0]['held']:>5.1f} {100 * mine[0]['predicted']:>10.1f} "
              f"{100 * statistics.median(idle):>7.1f} {100 * min(idle):>6.1f} {100 * max(idle):>6.1f} {1e3 * step[name]:>8.1f} "
              f"{relative:>8}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stages", type=int, default=2)
    parser.add_argument("--micro-batches", type=int, default=8)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--steps", type=int, default=10, help="traced of each run")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--schedules", default=SCHEDULES)
    parser.add_argument("--results", type=pathlib.Path, default=pathlib.Path("bubbles.jsonl"))
    parser.add_argument("--report", type=pathlib.Path)
    options = parser.parse_args()
    if options.report:
        report([json.loads(line) for line in options.report.read_text(encoding="utf-8").splitlines()])
        return
    cores = len(os.sched_getaffinity(0))
    if cores < options.stages:
        print(f"{options.stages} stages share {cores} cores: stages that wait for a core count as busy")
    lines = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        text = folder / "text.txt"
        text.write_text((ROOT / "src/README.md").read_text(encoding="utf-8") * 20, encoding="utf-8")
        run(PROGRAM, "prepare", "--input", text, "--output", folder / "data", "--tokenizer", "byte")
        rows = predicted(options, folder)
        for repeat in range(options.repeats):
            for schedule in options.schedules.split(","):
                if schedule not in rows:
                    print(f"{schedule}: not with {options.stages} stages and {options.micro_batches} micro-batches")
                    continue
                found = measure(options, folder, folder / "data/train.h5", schedule)
                row = rows[schedule]
                lines.append({"schedule": schedule, "repeat": repeat, "stages": options.stages,
                              "micro_batches": options.micro_batches, "layers": options.layers, "width": options.width,
                              "cores": cores, "chunks": row["chunks"], "held": row["held"], "predicted": row["idle"],
                              "idle": [share for share, _ in found], "seconds": [seconds for _, seconds in found]})
                with options.results.open("a", encoding="utf-8") as results:
                    results.write(json.dumps(lines[-1]) + "\n")
    report(lines)


if __name__ == "__main__":
    main()
