#!/usr/bin/env python3
"""A training step on a leaf-spine network of limited rate: its exposed communication, and strong and weak scaling.

usage: perf/training.py [--results FILE] [--budget SECONDS] [--rate R] [--taper N] [--steps N] [--repeats N]
                        [--grids PxT,...] [--model-width N] [--layers N] [--batch N] [--shards STAGE,...]
                        [--markdown FILE]
       perf/training.py --report FILE [--markdown FILE]

Needs root, and makes the cluster of perf/collectives.py: four nodes of one rank with one thread, two leaves. Each run of
`trireme train` is a line of FILE, by default training.jsonl; the same command goes on where it was ended. Times are
medians over the steps but for the first two; exposed communication is that of the slowest rank.

Exposed communication: before is --comm.network none --grid.order rank (default tables, the launcher's order), after is
--comm.network with the rates that topo probe has found and --grid.order auto; in turns, for each grid (pipeline x
tensor, data takes the other ranks) and each order in which the launcher may number the nodes.

Scaling: strong (the same batch) and weak (a batch for each node) at 1, 2 and 4 nodes with data parallelism, planned and
ordered. compute(N) is the step of N independent runs at the same time, each on a node of its own with the batch that a
replica has among N, so that they share the cores of this host as the ranks of one run do. links(N) is the bound of the
links (perf/collectives.py) for an all-reduce of the gradients. Then
  limit(N)      = compute(N) + links(N)       without any overlap
  overlapped(N) = max(compute(N), links(N))   if all communication could hide behind computation
  possible(N)   = max(compute(N), limit(N) - last backward(N))
and a run reaches limit(N) / step of the first, and so on. Gradients are whole only while the last micro-batch of a step
runs backward, so no more than this can hide them: compute(N) x 2 / 3 / micro-batches of a replica.

--shards 0,1,2,3 measures a step at these shard.stages instead, on four nodes in order, --batch sequences each. Links are
the bound for what a stage moves: gradients are reduced once, from stage 2 on after each micro-batch; weights are
gathered once, at stage 3 twice for each micro-batch.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import time

from collectives import PLACEMENTS, ROOT, Network, Results, bits, bound_of_nodes, tell

FIRST = 2  # steps that do not count
KEY = ("kind", "grid", "order", "nodes", "batch", "planned", "repeat", "stage")


def micro(batch):
    """The micro-batch of a run with so many sequences a step."""
    return max(1, min(2, batch // 4))


def read_run(run):
    """Seconds of a step and of its exposed communication, medians, and the bytes of the gradients."""
    steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()][FIRST:]
    events = [json.loads(line) for line in (run / "events.jsonl").read_text(encoding="utf-8").splitlines()]
    return {"step": statistics.median(step["step_s"] for step in steps),
            "exposed": statistics.median(step["comm_s"] for step in steps), "gradients": steps[0]["memory"]["gradients"],
            "places": events[0].get("places", "")}


class Trainer:
    def __init__(self, options, network, results):
        self.options, self.network, self.results = options, network, results
        self.end = time.monotonic() + options.budget
        self.longest = 0.0
        self.number = 0
        data = network.folder.parent / "data"
        text = network.folder.parent / "text.txt"
        text.write_text("".join(page.read_text(encoding="utf-8") for page in sorted(ROOT.glob("*/*.md"))) * 2,
                        encoding="utf-8")
        subprocess.run([ROOT / "build/release/bin/trireme", "prepare", "--input", text, "--output", data, "--tokenizer", "byte"],
                       check=True, stdout=subprocess.DEVNULL)
        self.data = data / "train.h5"
        self.rates = network.folder.parent / "rates.json"
        print(network.start("1 2 3 4", "topo", "probe", "--network", self.rates), end="", flush=True)

    def words(self, grid, batch, planned, stage=0, more=None):
        """The run's folder, and the words of the program's command. `more`: keys that are added, or have other values."""
        self.number += 1
        run = self.network.folder.parent / f"run{self.number}"
        pipeline, tensor = grid.split("x")
        keys = {"data.train": self.data, "run.folder": run, "run.steps": self.options.steps, "run.threads": 1,
                "model.layers": self.options.layers, "model.width": self.options.model_width, "model.heads": 4,
                "model.context": 128, "batch.global": batch, "batch.micro": micro(batch), "grid.pipeline": pipeline,
                "grid.tensor": tensor, "schedule.name": "constant", "eval.every": 0, "checkpoint.every": 0,
                "checkpoint.keep": 1, "log.every": 1000, "log.stragglers": 0, **({"shard.stage": stage} if stage else {}),
                "comm.network": self.rates if planned else "none", "grid.order": "auto" if planned else "rank", **(more or {})}
        return run, ["train", *(word for key, value in keys.items() for word in (f"--{key}", value))]

    def measure(self, kind, grid, order, batch, planned, repeat, stage=0):
        """One run on all nodes of the order, or for kind "alone" one on each node."""
        nodes = len(order.split())
        key = {"kind": kind, "grid": grid, "order": order, "nodes": nodes, "batch": batch, "planned": planned, "repeat": repeat,
               "stage": stage}
        left = self.end - time.monotonic()
        if self.results.has(tuple(key.values())) or left < 1.2 * self.longest:
            return
        begin = time.monotonic()
        try:
            if kind == "alone":
                found = self.alone(order, grid, batch, left)
            else:
                run, words = self.words(grid, batch, planned, stage)
                self.network.start(order, *words, timeout=left + 30, name="training")
                found = read_run(run)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            print(f"{key}: given up: {error}", flush=True)
            return
        self.longest = max(self.longest, time.monotonic() - begin)
        self.results.add({**key, "rate": self.options.rate, "taper": self.options.taper, **found})
        print(f"{time.monotonic() - begin:6.1f} s  {key}  step {found['step']:.3f} s, exposed {found['exposed']:.3f} s", flush=True)

    def alone(self, order, grid, batch, left):
        """The slowest of runs that know nothing of each other."""
        return max((read_run(run) for run in self.each_alone(order, grid, batch, left)), key=lambda one: one["step"])

    def each_alone(self, order, grid, batch, left, more=None):
        """The folders of such runs, one on each node, at the same time."""
        started = [self.words(grid, batch, False, more=more) for _ in order.split()]
        processes = [self.network.begin(node, *words) for node, (_, words) in zip(order.split(), started)]
        for process in processes:
            text = process.communicate(timeout=left + 30)[0]
            if process.returncode != 0:
                raise RuntimeError(text)
        return [run for run, _ in started]

    def run(self):
        options = self.options
        orders = {1: "1", 2: "1 3", 4: PLACEMENTS[4][0]}  # two nodes are below different leaves
        for repeat in range(options.repeats):
            if options.shards:
                self.measure("alone", "1x1", orders[4], options.batch, False, repeat)
                for stage in map(int, options.shards.split(",")):
                    self.measure("sharded", "1x1", orders[4], 4 * options.batch, True, repeat, stage)
                continue
            for nodes, order in orders.items():
                strong = options.batch // nodes
                self.measure("alone", "1x1", order, strong, False, repeat)
                self.measure("alone", "1x1", order, options.batch, False, repeat)
                if nodes > 1:
                    self.measure("training", "1x1", order, options.batch, True, repeat)
                    self.measure("training", "1x1", order, options.batch * nodes, True, repeat)
            for order in reversed(PLACEMENTS[4]):
                for grid in options.grids.split(","):
                    self.measure("training", grid, order, options.batch, False, repeat)
                    self.measure("training", grid, order, options.batch, True, repeat)


def median_of(lines, name, **wanted):
    """Over the repeats; None where there is none."""
    found = [line[name] for line in lines if all(line[key] == value for key, value in wanted.items())]
    return statistics.median(found) if found else None


def exposed_table(lines, batch):
    text = ("\n| pipeline x tensor | ranks on nodes | exposed before, ms | after, ms | ratio | step before, ms | after, ms | "
            "speedup |\n|---|---|---|---|---|---|---|---|\n")
    for grid in dict.fromkeys(line["grid"] for line in lines):
        for order in PLACEMENTS[4]:
            pair = [{name: median_of(lines, name, kind="training", grid=grid, order=order, batch=batch, planned=planned)
                     for name in ("exposed", "step")} for planned in (False, True)]
            if None in (pair[0]["step"], pair[1]["step"]):
                continue
            before, after = pair
            less = f"{after['exposed'] / before['exposed']:.2f}" if before["exposed"] else "-"
            text += (f"| {grid} | {order} | {1e3 * before['exposed']:.0f} | {1e3 * after['exposed']:.0f} | {less} | "
                     f"{1e3 * before['step']:.0f} | {1e3 * after['step']:.0f} | {before['step'] / after['step']:.2f} |\n")
    return text


def scaling_table(lines, batch, host, uplink):
    text = ("\n| scaling | nodes | step, ms | exposed, ms | compute, ms | links, ms | efficiency | of the limit without overlap | "
            "of what is possible | of the limit with overlap |\n|---|---|---|---|---|---|---|---|---|---|\n")
    one = median_of(lines, "step", kind="alone", nodes=1, batch=batch)
    gradients = median_of(lines, "gradients", kind="alone", nodes=1, batch=batch)
    for mode in ("strong", "weak"):
        for nodes, order in ((1, "1"), (2, "1 3"), (4, PLACEMENTS[4][0])):
            share, whole = (batch // nodes, batch) if mode == "strong" else (batch, batch * nodes)
            compute = median_of(lines, "step", kind="alone", nodes=nodes, batch=share)
            wanted = {"kind": "training" if nodes > 1 else "alone", "grid": "1x1", "order": order, "batch": whole, "planned": nodes > 1}
            step, exposed = median_of(lines, "step", **wanted), median_of(lines, "exposed", **wanted)
            if None in (compute, step, one):
                continue
            links = bound_of_nodes("all_reduce", gradients, nodes, nodes // 2, host, uplink) if nodes > 1 else 0.0
            efficiency = one / step / (nodes if mode == "strong" else 1)
            last_backward = compute * 2 / 3 / (share / micro(whole))
            possible = max(compute, compute + links - last_backward)
            text += (f"| {mode} | {nodes} | {1e3 * step:.0f} | {1e3 * exposed:.0f} | {1e3 * compute:.0f} | {1e3 * links:.0f} | "
                     f"{100 * efficiency:.0f} % | {100 * (compute + links) / step:.0f} % | {100 * possible / step:.0f} % | {100 * max(compute, links) / step:.0f} % |\n")
    return text


def shard_table(lines, host, uplink):
    batch = next(line["batch"] for line in lines if line["kind"] == "alone" and line["nodes"] == 4)
    found = [line for line in lines if line["kind"] == "sharded"]
    compute = median_of(lines, "step", kind="alone", nodes=4, batch=batch)
    text = ("\n| shard.stage | step, ms | exposed, ms | compute, ms | links, ms | of the larger | of stage 0 |\n"
            "|---|---|---|---|---|---|---|\n")
    medians = {stage: [median_of(found, name, stage=stage) for name in ("step", "exposed")]
               for stage in sorted({line["stage"] for line in found})}
    micro_batches = batch // micro(4 * batch)
    once = bound_of_nodes("all_gather", max(line["gradients"] for line in found), 4, 2, host, uplink)
    for stage, (step, exposed) in medians.items():
        links = ((micro_batches if stage >= 2 else 1) + (2 * micro_batches if stage == 3 else 1)) * once
        of_first = f"{step / medians[0][0]:.2f}" if 0 in medians else "-"
        text += (f"| {stage} | {1e3 * step:.0f} | {1e3 * exposed:.0f} | {1e3 * compute:.0f} | {1e3 * links:.0f} | "
                 f"{step / max(compute, links):.2f} | {of_first} |\n")
    return text


def report(lines):
    if not lines:
        return "nothing is measured\n"
    host = bits(lines[0]["rate"])
    uplink = 2 * host / lines[0]["taper"]
    text = f"\n{lines[0]['rate']} a node, {lines[0]['taper']}:1"
    plain = [line for line in lines if line["kind"] == "alone" and line["nodes"] == 1]
    if plain:
        batch = min(line["batch"] for line in plain)
        text += (f", {batch} sequences a node or in all\n" + exposed_table(lines, batch)
                 + scaling_table(lines, batch, host, uplink))
    if any(line["kind"] == "sharded" for line in lines):
        text += ("" if plain else "\n") + shard_table(lines, host, uplink)
    return text


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ", 1)[1])
    parser.add_argument("--results", type=pathlib.Path, default=pathlib.Path("training.jsonl"))
    parser.add_argument("--report", type=pathlib.Path)
    parser.add_argument("--budget", type=float, default=600.0)
    parser.add_argument("--rate", default="400mbit")
    parser.add_argument("--taper", type=int, default=4)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--grids", default="1x1,1x2,2x1")
    parser.add_argument("--model-width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--shards", default="")
    parser.add_argument("--markdown", type=pathlib.Path)
    options = parser.parse_args()
    results = Results(options.report or options.results, KEY)
    if not options.report:
        with Network(bits(options.rate)) as network:
            network.set_uplinks(2 * network.host / options.taper)
            Trainer(options, network, results).run()
    tell(report(results.lines), options.markdown)


if __name__ == "__main__":
    main()
