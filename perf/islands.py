#!/usr/bin/env python3
"""Islands and what else is for slow links and unequal nodes: time, bytes, losses, balance, and members that are killed.

usage: perf/islands.py network|losses|balance|members [--results FILE] [--budget SECONDS] [--markdown FILE] [OPTION...]
       perf/islands.py network|losses|balance|members --report FILE [--markdown FILE]

Each run is a line of FILE, by default islands_PART.jsonl; the same command goes on where it was ended. All but losses
need root. A row whose keys the program does not know is called absent.

network [--rates 25mbit,100mbit,400mbit] [--repeats N] [--model-width N] [--layers N] [--batch N]
  The cluster of perf/collectives.py: four nodes of one rank and thread, their links at each rate, the uplinks at twice
  that. An island is a node; without islands the four are data replicas. --batch sequences a step in all. Seconds a step
  are those between the lines of metrics.jsonl, so that meetings count; the part of communication is that of the slowest
  rank within steps, and what lies between steps. Bytes are what the nodes' links carry, both ways, headers included, by
  the kernel's counters. All are means over whole periods of meetings, the first of which does not count.

losses --text FILE [--seeds 1,2,3] [--steps N] [--samples N] [--only NAME,...] [--lr X] [--mpiexec COMMAND]
  A small GPT on bytes of a text (runs/quickstart/gcide.txt, which jobs/quickstart.sh makes), whose last 500 kB are held
  out. All runs of a seed see as many tokens: each of four islands has --samples a step, the ordinary run four times as many. The loss
  is that of `trireme eval` over the held-out text. Losses do not depend on the machine's load.

balance [--quotas 1.0,0.5,0.5] [--micro-batches N]
  Three nodes with the time of so many processors. Each alone, at the same time, gives its speed; the sum of speeds allows
  a step of (micro-batches of all) / (sum of micro-batches a second). Beside it batch.balance even, auto and a list.

members [--members 16] [--quota X] [--faults 60] [--seed N] [--seconds N] [--every H] [--silence S]
  One run of so many members, which share a folder alone, each with the time of X processors. Members that a seed draws,
  at times that it draws, are killed by SIGKILL and started again; each fourth fault kills the leader. Inner steps are
  delivered when a record counts them. The next outer step is the first record that is written after a kill.
"""

import argparse
import json
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from collectives import PROGRAM, Network, Results, bits, tell
from training import Trainer

NODES = "1 2 3 4"
KEYS = {"network": ("rate", "row", "repeat"), "losses": ("row", "seed", "steps", "samples"), "balance": ("row", "quotas", "repeat"),
        "members": ("members", "seed", "faults")}


def known(keys):
    """Whether the program knows all of these keys."""
    text = subprocess.run([PROGRAM, "train", "--help"], capture_output=True, text=True, check=True).stdout
    return all(f"--{key} " in text for key in keys)


def lines_of(path):
    """The whole lines of a file of JSON lines, which may still grow."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines()]


def table(head, rows):
    """A table of a page; cells are texts."""
    return "".join(f"| {' | '.join(row)} |\n" for row in (head, ["---"] * len(head), *rows))


# ---- network


def islands(every, **more):
    return {"grid.islands": 4, "sync.every": every, **{key.replace("_", "."): value for key, value in more.items()}}


# By name: the keys, the steps that do not count, and those that do.
NETWORK = {"ordinary": ({}, 2, 6),
           "comm.reduce bf16": ({"comm.reduce": "bf16"}, 2, 6),
           "comm.compress int8": ({"comm.compress": "int8"}, 2, 10),
           "islands, every 10": (islands(10), 10, 40),
           "islands, every 50": (islands(50), 50, 100),
           "every 50, int8": (islands(50, sync_reduce="int8"), 50, 100),
           "every 50, 4 fragments, delay 10": (islands(50, sync_fragments=4, sync_delay=10), 50, 100),
           "the same, int8": (islands(50, sync_fragments=4, sync_delay=10, sync_reduce="int8"), 50, 100)}


class LinkBytes(threading.Thread):
    """What the nodes' links have carried, looked at ten times a second until the end of the `with` block."""

    def __init__(self, network):
        super().__init__(daemon=True)
        self.folders = [pathlib.Path(f"/sys/class/net/{network.prefix()}h{node}/statistics") for node in NODES.split()]
        self.seen, self.ended = [], threading.Event()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.join()

    def run(self):
        while True:
            last = self.ended.is_set()
            self.seen.append((time.time(), sum(int((folder / name).read_text(encoding="ascii")) for folder in self.folders
                                               for name in ("rx_bytes", "tx_bytes")) / len(self.folders)))
            if last:
                return
            self.ended.wait(0.1)

    def at(self, moment):
        """Bytes of a node, both ways."""
        for (before, less), (after, more) in zip(self.seen, self.seen[1:]):
            if before <= moment <= after:
                return less + (more - less) * (moment - before) / (after - before)
        return self.seen[-1][1]


def of_window(steps, first, count):
    """Seconds a step, of which communication, and when the steps began and ended. `steps`: lines of metrics.jsonl."""
    times = [step["time"] for step in steps]
    begin, end = times[first - 1], times[first + count - 1]
    between = sum(max(0.0, times[i] - times[i - 1] - steps[i]["step_s"]) for i in range(first, first + count))
    waits = sum(step["comm_s"] for step in steps[first:first + count])
    return (end - begin) / count, (waits + between) / count, begin, end


class NetworkStudy(Trainer):
    def run(self):
        for rate in self.options.rates.split(","):  # all links in proportion: what was probed at the first one holds
            self.network.set_hosts(bits(rate))
            self.network.set_uplinks(2 * bits(rate))
            for repeat in range(self.options.repeats):
                for row, (keys, first, count) in NETWORK.items():
                    self.row(rate, row, repeat, keys, first, count)

    def row(self, rate, row, repeat, keys, first, count):
        key = {"rate": rate, "row": row, "repeat": repeat}
        if self.results.has(tuple(key.values())) or not known(keys) or time.monotonic() > self.end:
            return
        batch = self.options.batch // keys.get("grid.islands", 1)
        run, words = self.words("1x1", batch, True, more={"batch.micro": self.options.batch // 4, "grid.order": "rank",
                                                          "run.steps": first + count, **keys})
        begin = time.monotonic()
        try:
            with LinkBytes(self.network) as links:
                self.network.start(NODES, *words, timeout=max(1, self.end - begin), name="islands")
        except RuntimeError as error:
            print(f"{key}: given up: {error}", flush=True)
            return
        except subprocess.TimeoutExpired:
            print(f"{key}: given up for want of time", flush=True)
            return
        step, exposed, *moments = of_window(lines_of(run / "metrics.jsonl"), first, count)
        carried = (links.at(moments[1]) - links.at(moments[0])) / count
        self.results.add({**key, "step": step, "exposed": exposed, "bytes": carried})
        print(f"{time.monotonic() - begin:6.1f} s  {key}  step {step:.3f} s, exposed {exposed:.3f} s, {carried / 1e6:.2f} MB", flush=True)


def network_report(lines):
    text = ""
    for rate in dict.fromkeys(line["rate"] for line in lines):
        found = {row: [line for line in lines if line["rate"] == rate and line["row"] == row] for row in NETWORK}
        def median(row, name, found=found):
            return statistics.median(line[name] for line in found[row]) if found[row] else None
        ordinary = {name: median("ordinary", name) for name in ("step", "bytes")}
        rows = []
        for row in NETWORK:
            step, exposed, carried = (median(row, name) for name in ("step", "exposed", "bytes"))
            if step is None:
                rows.append([row, "absent" if not known(NETWORK[row][0]) else "not run", "", "", "", ""])
                continue
            rows.append([row, f"{1e3 * step:.0f}", f"{1e3 * exposed:.0f}", f"{carried / 1e6:.3f}",
                         f"{ordinary['step'] / step:.2f}" if ordinary["step"] else "-",
                         f"{carried / ordinary['bytes']:.4f}" if ordinary["bytes"] else "-"])
        text += f"\n{rate} a node\n\n" + table(["", "step, ms", "exposed, ms", "MB a node and step, both ways", "times as fast",
                                               "bytes of ordinary"], rows)
    return text


def network_part(options, results):
    first = bits(options.rates.split(",", maxsplit=1)[0])
    with Network(first) as network:
        network.set_uplinks(2 * first)
        NetworkStudy(options, network, results).run()


# ---- losses

ISLANDS = 4
GPT = {"model.layers": 2, "model.width": 64, "model.heads": 4, "model.context": 64, "run.threads": 1,
       "schedule.name": "cosine", "schedule.warmup": 100, "optim.weight_decay": 0.1, "optim.clip": 1, "eval.every": 0,
       "checkpoint.every": 0, "checkpoint.keep": 1, "log.every": 100000, "log.stragglers": 0}
MUON = {"optim.name": "muon"}
# By name: the keys, and the row that it is compared with.
LOSSES = {"ordinary": ({}, "ordinary"),
          "H 1": (islands(1), "ordinary"),
          "H 1 average": (islands(1, sync_outer="average"), "ordinary"),
          "H 10": (islands(10), "ordinary"),
          "H 50": (islands(50), "ordinary"),
          "H 200": (islands(200), "ordinary"),
          "H 50 first 250": (islands(50, sync_first=250), "ordinary"),
          "H 50 average": (islands(50, sync_outer="average"), "ordinary"),
          "H 50 momentum 0.5": (islands(50, sync_momentum=0.5), "ordinary"),
          "Muon": (MUON, "Muon"),
          "Muon H 30 int2 outer 0.8": (islands(30, sync_reduce="int2", sync_lr=0.8) | MUON, "Muon")}


def evaluation_loss(told):
    """Of what `trireme eval` prints."""
    return next(float(line.split()[1]) for line in told.splitlines() if line.startswith("loss "))


class LossStudy:
    def __init__(self, options, results, folder):
        self.options, self.results, self.folder = options, results, folder
        self.end = time.monotonic() + options.budget
        subprocess.run([PROGRAM, "prepare", "--input", options.text, "--output", folder / "data", "--tokenizer", "byte",
                        "--validation", "tail:500000"], check=True, stdout=subprocess.DEVNULL)

    def run(self):
        rows = self.options.only.split(",") if self.options.only else list(LOSSES)
        for seed in map(int, self.options.seeds.split(",")):
            for row in rows:
                if not self.results.has((row, seed, self.options.steps, self.options.samples)) and time.monotonic() < self.end:
                    self.row(row, seed)

    def row(self, row, seed):
        keys, _ = LOSSES[row]
        apart = keys.get("grid.islands", 1)
        run = self.folder / f"{row.replace(' ', '_')}-{seed}"
        rate = self.options.muon_lr if keys.get("optim.name") == "muon" else self.options.lr
        all_keys = {**GPT, "data.train": self.folder / "data/train.h5", "run.folder": run, "run.seed": seed,
                    "run.steps": self.options.steps, "batch.global": self.options.samples * ISLANDS // apart,
                    "batch.micro": min(8, self.options.samples), "optim.lr": rate, **keys}
        begin = time.monotonic()
        subprocess.run([*self.options.mpiexec.split(), "-n", str(apart), PROGRAM, "train",
                        *(str(word) for key, value in all_keys.items() for word in (f"--{key}", value))],
                       check=True, stdout=subprocess.DEVNULL)
        told = subprocess.run([PROGRAM, "eval", "--checkpoint", run, "--data", self.folder / "data/validation.h5", "--threads",
                               "1", "--batch.micro", "64"], check=True, capture_output=True, text=True).stdout
        line = {"row": row, "seed": seed, "steps": self.options.steps, "samples": self.options.samples, "lr": rate, "loss": evaluation_loss(told),
                "tokens": self.options.steps * self.options.samples * ISLANDS * GPT["model.context"]}
        self.results.add(line)
        print(f"{time.monotonic() - begin:6.1f} s  {line}", flush=True)


def loss_report(lines):
    text = ""
    for steps in dict.fromkeys(line["steps"] for line in lines):
        by_row = {row: {line["seed"]: line["loss"] for line in lines if line["row"] == row and line["steps"] == steps} for row in LOSSES}
        rows = []
        for row, losses in by_row.items():
            if not losses:
                continue
            base = by_row[LOSSES[row][1]]
            excess = [100 * (losses[seed] / base[seed] - 1) for seed in losses if seed in base]
            rows.append([row, str(len(losses)), f"{statistics.mean(losses.values()):.4f}", f"{min(losses.values()):.4f} to {max(losses.values()):.4f}",
                         f"{statistics.mean(excess):+.2f} %" if excess and base is not losses else "",
                         f"{min(excess):+.2f} to {max(excess):+.2f} %" if excess and base is not losses else ""])
        text += f"\n{steps} steps, {lines[0]['tokens'] / 1e6:.1f} million tokens\n\n" + table(
            ["", "seeds", "loss, mean", "spread", "excess, mean", "spread"], rows)
    return text


def losses_part(options, results):
    with tempfile.TemporaryDirectory(prefix="trireme_losses.") as scratch:
        LossStudy(options, results, pathlib.Path(scratch)).run()



# ---- balance


def balance_rows(quotas):
    """By name: the keys, and the steps that do not count."""
    usual = {"log.stragglers": 3, "checkpoint.every": 8, "checkpoint.keep": 1}
    return {"even": ({}, 3), "auto": ({"batch.balance": "auto", **usual}, 26),
            "list": ({"batch.balance": ",".join(f"{quota:g}" for quota in quotas)}, 3)}


class BalanceStudy(Trainer):
    counted = 8  # steps, the last ones

    def run(self):
        quotas = [float(quota) for quota in self.options.quotas.split(",")]
        self.order = " ".join(str(node + 1) for node in range(len(quotas)))
        for node, quota in enumerate(quotas):
            self.network.set_quota(node + 1, quota)
        for repeat in range(self.options.repeats):
            self.measure_alone(quotas, repeat)
            for row, (keys, first) in balance_rows(quotas).items():
                self.row(row, repeat, keys, first)

    def key(self, row, repeat):
        return {"row": row, "quotas": self.options.quotas, "repeat": repeat}

    def step_of(self, run):
        return statistics.median(step["step_s"] for step in lines_of(run / "metrics.jsonl")[-self.counted:])

    def measure_alone(self, quotas, repeat):
        key = self.key("alone", repeat)
        if self.results.has(tuple(key.values())):
            return
        share = 2 * self.options.micro_batches // len(quotas)
        runs = self.each_alone(self.order, "1x1", share, self.options.budget, {"batch.micro": 2, "run.steps": 3 + self.counted})
        speeds = [share / 2 / self.step_of(run) for run in runs]
        self.results.add({**key, "speeds": speeds, "step": self.options.micro_batches / sum(speeds)})
        print(f"micro-batches a second: {', '.join(f'{speed:.2f}' for speed in speeds)}", flush=True)

    def row(self, row, repeat, keys, first):
        key = self.key(row, repeat)
        if self.results.has(tuple(key.values())) or not known(key for key in keys if key.startswith("batch.")):
            return
        run, words = self.words("1x1", 2 * self.options.micro_batches, True,
                                more={"batch.micro": 2, "grid.order": "rank", "run.steps": first + self.counted, **keys})
        try:
            self.network.start(self.order, *words, timeout=max(1, self.end - time.monotonic()), name="balance")
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            print(f"{key}: given up: {error}", flush=True)
            return
        self.results.add({**key, "step": self.step_of(run)})
        print(f"{key}  step {self.results.lines[-1]['step']:.3f} s", flush=True)


def balance_report(lines):
    text = ""
    for quotas in dict.fromkeys(line["quotas"] for line in lines):
        found = {}
        for line in lines:
            if line["quotas"] == quotas:
                found.setdefault(line["row"], []).append(line["step"])
        allowed = statistics.median(found["alone"])
        rows = []
        for row in balance_rows([float(quota) for quota in quotas.split(",")]):
            if row in found:
                step = statistics.median(found[row])
                rows.append([row, f"{1e3 * step:.0f}", f"{1e3 * allowed:.0f}", f"{step / allowed:.2f}"])
            else:
                rows.append([row, "not run" if known(["batch.balance"]) else "absent", "", ""])
        text += f"\nquotas {quotas}\n\n" + table(["batch.balance", "step, ms", "the sum of speeds allows, ms", "over that"], rows)
    return text


def balance_part(options, results):
    with Network(2e9, 1.0) as network:
        BalanceStudy(options, network, results).run()


# ---- members


class Member:
    """A member of a run, in the control group of a node: its process, and the times of the steps that it has begun."""

    def __init__(self, name, group, words, root):
        self.name, self.group, self.words = name, group, words
        self.folder = root / "islands" / name
        self.process, self.starts, self.steps = None, 0, []

    def start(self):
        self.process = subprocess.Popen(["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', self.group, PROGRAM, *self.words],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def lives(self):
        return self.process is not None and self.process.poll() is None

    def end(self, number):
        """Ends the process by a signal and counts its steps: a start that follows cuts metrics.jsonl back. What it said."""
        self.process.send_signal(number)
        said = self.process.communicate(timeout=60)[1]
        self.process = None
        starts = [event["step"] for event in lines_of(self.folder / "events.jsonl") if event["event"] == "start"]
        if len(starts) > self.starts:
            self.steps += [line["time"] for line in lines_of(self.folder / "metrics.jsonl") if line["step"] > starts[-1]]
        self.starts = len(starts)
        return said


def drawn_faults(seed, count, members, seconds, begin):
    """By time: (seconds since the start, a member's number or None for the leader, seconds until it starts again)."""
    draw = random.Random(seed)
    times = sorted(draw.uniform(begin, seconds) for _ in range(count))
    return [(at, None if i % 4 == 3 else draw.randrange(members), draw.uniform(0, 10)) for i, at in enumerate(times)]


def records_of(root):
    """The published records in order, each with the time at which it was written."""
    found = sorted((root / "outer").glob("outer-*.json"))
    return [(path.stat().st_mtime, json.loads(path.read_text(encoding="utf-8"))) for path in found]


def delivered_steps(records):
    """Inner steps that records count."""
    return sum(one["delivery"]["steps"] for _, record in records for one in record["settled"] if one["weight"] > 0)


def recovery(kills, published):
    """Seconds from each of the times `kills` to the next of `published`; those without a next one are left out."""
    return [min(later) - kill for kill in kills if (later := [moment for moment in published if moment > kill])]


class Miniature:
    def __init__(self, options, network):
        self.options = options
        folder = network.folder.parent
        subprocess.run([PROGRAM, "prepare", "--input", options.text, "--output", folder / "data", "--tokenizer", "byte"], check=True,
                       stdout=subprocess.DEVNULL)
        self.root = folder / "run"
        keys = {"data.train": folder / "data/train.h5", "run.folder": self.root, "run.steps": 10**6, "run.threads": 1,
                "model.layers": 2, "model.width": 32, "model.heads": 2, "model.context": 32, "batch.global": 4, "batch.micro": 4,
                "schedule.name": "constant", "eval.every": 0, "checkpoint.every": options.every, "checkpoint.keep": 1,
                "log.every": 100000, "log.stragglers": 0, "sync.every": options.every, "sync.silence": options.silence}
        words = [str(word) for key, value in keys.items() for word in (f"--{key}", value)]
        self.members = [Member(f"m{i:02}", network.quota_group(i + 1), ["train", "--sync.member", f"m{i:02}", *words], self.root)
                        for i in range(options.members)]
        self.kills = []

    def leading(self):
        """The member that leads; another one where it is not known."""
        try:
            name = json.loads((self.root / "outer/leader").read_text(encoding="utf-8"))["name"]
        except (OSError, ValueError, KeyError):
            name = ""
        return next((i for i, member in enumerate(self.members) if member.name == name), 0)

    def kill(self, number):
        """A member, or the next one that lives."""
        for member in self.members[number:] + self.members[:number]:
            if member.lives():
                self.kills.append(time.time())
                member.end(signal.SIGKILL)
                return member
        return None

    def run(self):
        options = self.options
        begin = time.monotonic()
        faults = drawn_faults(options.seed, options.faults, options.members, options.seconds, options.seconds / 10)
        waiting = [(0.0, member) for member in self.members]  # when to start whom
        while (now := time.monotonic() - begin) < options.seconds + 10 * options.silence or waiting:
            for at, member in [one for one in waiting if one[0] <= now]:
                waiting.remove((at, member))
                member.start()
            while faults and faults[0][0] <= now:
                _, number, pause = faults.pop(0)
                killed = self.kill(self.leading() if number is None else number)
                if killed:
                    waiting.append((now + pause, killed))
            for member in self.members:
                if member.process is not None and not member.lives():
                    sys.exit(f"{member.name} ended: {member.process.communicate()[1]}")
            time.sleep(0.05)
        for member in self.members:
            member.end(signal.SIGKILL)
        return self.result()

    def result(self):
        """Steps after the last record are left out: what becomes of them is not known."""
        records = records_of(self.root)
        last = records[-1][0]
        begun = sum(moment <= last for member in self.members for moment in member.steps)
        return {"killed": len(self.kills), "outer": len(records) - 1, "begun": begun, "delivered": delivered_steps(records),
                "seconds": recovery(self.kills, [moment for moment, _ in records])}


def members_part(options, results):
    key = {"members": options.members, "seed": options.seed, "faults": options.faults}
    if results.has(tuple(key.values())):
        return
    if not known(["sync.member"]):
        sys.exit("absent: this program has no sync.member")
    with Network(2e9, options.quota, max(4, options.members)) as network:
        found = Miniature(options, network).run()
    results.add({**key, "quota": options.quota, "every": options.every, "silence": options.silence, **found})


def members_report(lines):
    rows = []
    for line in lines:
        seconds = sorted(line["seconds"])
        rows.append([str(line["members"]), str(line["killed"]), str(line["outer"]), str(line["begun"]), str(line["delivered"]),
                     f"{100 * line['delivered'] / line['begun']:.1f} %", f"{statistics.median(seconds):.1f}", f"{seconds[-1]:.1f}"])
    return "\n" + table(["members", "kills", "outer steps", "inner steps begun", "delivered", "of those begun",
                         "s from a kill to the next outer step, median", "longest"], rows)


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ", 1)[1])
    parser.add_argument("part", choices=KEYS)
    parser.add_argument("--results", type=pathlib.Path)
    parser.add_argument("--report", type=pathlib.Path)
    parser.add_argument("--markdown", type=pathlib.Path)
    parser.add_argument("--budget", type=float, default=3600.0)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--rates", default="400mbit,100mbit,25mbit")
    parser.add_argument("--model-width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--text", type=pathlib.Path, default=pathlib.Path("runs/quickstart/gcide.txt"))
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--only", default="")
    parser.add_argument("--lr", type=float, default=6e-3)
    parser.add_argument("--muon-lr", type=float, default=6e-3)
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--quotas", default="1.0,0.5,0.5")
    parser.add_argument("--micro-batches", type=int, default=48)
    parser.add_argument("--members", type=int, default=16)
    parser.add_argument("--quota", type=float, default=0.1)
    parser.add_argument("--faults", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--every", type=int, default=100)
    parser.add_argument("--silence", type=float, default=5.0)
    options = parser.parse_args()
    parts = {"network": (network_part, network_report), "losses": (losses_part, loss_report),
             "balance": (balance_part, balance_report), "members": (members_part, members_report)}
    measure, report = parts[options.part]
    results = Results(options.report or options.results or pathlib.Path(f"islands_{options.part}.jsonl"), KEYS[options.part])
    if not options.report:
        measure(options, results)
    tell(report(results.lines) if results.lines else "nothing is measured\n", options.markdown)


if __name__ == "__main__":
    main()
