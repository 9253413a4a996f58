#!/usr/bin/env python3
"""Collectives on a leaf-spine network of limited rate: ours, each of our algorithms alone, MPI's own, and the links' bound.

usage: perf/collectives.py [--results FILE] [--budget SECONDS] [--rate R] [--tapers 4,2] [--nodes 4,3] [--placements N]
                           [--only OP,...] [--sizes B,B,...] [--seconds S] [--cell SECONDS] [--markdown FILE]
       perf/collectives.py --report FILE [--again FILE]... [--markdown FILE]

Needs root (tests/slurm/cluster.sh --mode network). It makes a cluster of two leaves with two nodes each; with 3 nodes the
second leaf has one. The uplinks get the rate of two nodes divided by the taper. It says what raw TCP on all links at once
reaches and how many cores that takes (lower --rate until it is under half of them), and probes the network. Then it
measures with ranks in each order of nodes that differs in who is below one leaf. All carriers of a size take turns.

Each cell (operation, size, nodes, taper, order) is a line of FILE, by default collectives.jsonl, as soon as it is
measured. The same command goes on where it was ended (cells that failed or took too long are not tried again). Sizes
that tell most come first; a cell begins only if there is time for it. Who takes more than 1.3 times the fastest one's
time is not repeated. 64 MiB at 400mbit, and at other rates what takes as long, is measured only of those that took at
most 1.5 times that at a quarter of it, where that is known.

The bound is the largest of the times that some set of ranks needs for what must leave or enter it. n is the bytes of a
rank's larger buffer, p the ranks, h a node's rate, s the ranks of a leaf, u its uplink's rate; tbf counts whole
Ethernet frames, of which 1448 in 1514 bytes are data.
  all_reduce      2 (p-1)/p n/h     n/u
  reduce_scatter    (p-1)/p n/h     max(s, p-s)/p n/u
  all_gather        (p-1)/p n/h     max(s, p-s)/p n/u
  all_to_all        (p-1)/p n/h     s (p-s)/p n/u
For messages below 1 MiB there is no bound at 400mbit: the links let bursts of 96 KiB pass after a pause. At lower rates
bursts are as much smaller, down to 3 KiB, and so are the messages that can be measured.

Columns: table is what the communicator's table chooses, with the algorithm; best is the fastest single algorithm of ours
that adds in the same order; any is the table of comm.order any; MPI is the faster of its blocking calls and its
non-blocking ones with test and yield. The error of a prediction is predicted / measured - 1, of each algorithm alone.
--again names the results of another run: which cells are above a limit by the median of all runs, since small messages
scatter.
"""

import argparse
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "build/release/bin/trireme"
CLUSTER = ROOT / "tests/slurm/cluster.sh"
OPERATIONS = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all")
# Orders of nodes for the ranks; any other one differs from one of these only by names.
PLACEMENTS = {3: ("1 2 3", "1 3 2", "3 1 2"), 4: ("1 2 3 4", "1 3 2 4", "1 3 4 2")}
LEAVES = {3: (2, 1), 4: (2, 2)}
PAYLOAD = 1448 / 1514
USUAL_RATE = 400e6  # bits per second; sizes below are for it, and at other rates those that take as long
OURS = "table,any,direct,pairwise,stepwise,bruck,doubling,halving,binomial,tiered,ring"
OURS_IN_ANY_ORDER = ("ring", "any")
# Sizes of one round after the other.
ROUNDS = (("1K", "32K", "1M"), ("16M",), ("4M", "256K", "4K"), ("64M",), ("128K", "8K", "512K", "2M"),
          ("2K", "16K", "64K", "8M", "32M"))
ALONE = 16 << 20  # from here on each operation is started alone
LARGEST = 64 << 20  # from here on only of carriers that were near the fastest one at a quarter of the size
DROP = 1.3
PAUSE = 0.01  # seconds before each run, in which the bursts of all links fill up
NEVER = 1e6  # of small messages, which scatter, all are repeated alike
SENDER = """
import socket, sys, threading, time
end = time.monotonic() + float(sys.argv[1])
def receive(server):
    connection = server.accept()[0]
    while connection.recv(1 << 20): pass
server = socket.create_server(("", 5999))
thread = threading.Thread(target=receive, args=(server,)); thread.start()
time.sleep(1)
connection, data, sent, begin = socket.create_connection((sys.argv[2], 5999)), bytes(1 << 18), 0, time.monotonic()
while time.monotonic() < end:
    connection.sendall(data); sent += len(data)
print(sent / (time.monotonic() - begin))
connection.close(); thread.join()
"""


def bits(rate):
    """Bits per second of "200mbit"."""
    return int(re.match(r"\d+", rate)[0]) * {"k": 1e3, "m": 1e6, "g": 1e9}[rate[-4]]


def burst_of(host):
    """KiB that the links let pass at once after a pause, for nodes with this rate, bits per second."""
    return round(min(max(96 * host / USUAL_RATE, 3), 96))


def is_measurable(size, host):
    """Whether so many bytes, less what rounding to whole parts takes off, are well above the bursts."""
    return size > 0.99 * (burst_of(host) << 10) * 32 / 3


def bound(operation, size, nodes, host, uplink):
    """Seconds that the links of the two leaves need at least."""
    return bound_of_nodes(operation, size, nodes, LEAVES[nodes][0], host, uplink)


def bound_of_nodes(operation, size, nodes, s, host, uplink):
    """The same with s of the nodes below one leaf, the others below the other one; rates in bits per second."""
    host, uplink = host / 8 * PAYLOAD, uplink / 8 * PAYLOAD
    per_host = (nodes - 1) / nodes * (2 if operation == "all_reduce" else 1)
    per_leaf = {"all_reduce": 1, "all_to_all": s * (nodes - s) / nodes}.get(operation, max(s, nodes - s) / nodes)
    return size * max(per_host / host, per_leaf / uplink)


def busy_seconds():
    """Processor time of the whole machine that was not idle, in seconds."""
    values = [int(word) for word in pathlib.Path("/proc/stat").read_text(encoding="utf-8").split("\n", 1)[0].split()[1:8]]
    return (sum(values) - values[3] - values[4]) / os.sysconf("SC_CLK_TCK")


class Network:
    """A cluster of two leaves with half of the nodes each; ends with the `with` block."""

    def __init__(self, host, quota=None, nodes=4):
        """Nodes have links of this rate, bits per second, and the time of so many processors."""
        self.host, self.uplink, self.quota, self.nodes = host, host, quota, nodes

    def __enter__(self):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the cluster ends with this
        self.scratch = tempfile.TemporaryDirectory(prefix="trireme_network.")
        self.folder = pathlib.Path(self.scratch.name) / "cluster"
        rate = f"{self.host / 1e3:.0f}kbit"
        subprocess.run([CLUSTER, "up", "--folder", self.folder, "--mode", "network", "--nodes", str(self.nodes), "--leaves", "2",
                        "--host-rate", rate, "--uplink-rate", rate, "--burst", f"{burst_of(self.host)}k",
                        *(("--quota", str(self.quota)) if self.quota else ())], check=True, stdout=subprocess.DEVNULL)
        return self

    def __exit__(self, *_):
        subprocess.run([CLUSTER, "down", "--folder", self.folder], check=True)
        self.scratch.cleanup()

    def setting(self, name):
        text = (self.folder / "slurm.conf").read_text(encoding="utf-8")
        return re.search(rf"{name}", text)[1]

    def set_uplinks(self, rate):
        """Both ends of both uplinks, bits per second."""
        self.uplink = rate
        for link in ("u1", "u2", "d1", "d2"):
            self.shape([], self.prefix() + link, rate)

    def set_hosts(self, rate):
        """Both ends of each node's link, bits per second."""
        self.host = rate
        for node in range(1, self.nodes + 1):
            self.shape([], f"{self.prefix()}h{node}", rate)
            self.shape(["ip", "netns", "exec", f"{self.prefix()}n{node}"], "eth0", rate)

    def quota_group(self, node):
        """The control group whose processes share the processor time of a node, where there is a quota."""
        mounts = [line.split() for line in pathlib.Path("/proc/mounts").read_text(encoding="utf-8").splitlines()]
        roots = (pathlib.Path(mount[1]) for mount in mounts if mount[2] in ("cgroup", "cgroup2"))
        return next(group for root in roots if (group := root / f"{self.prefix()}-n{node}").exists())

    def set_quota(self, node, processors):
        """The time of so many processors."""
        group = self.quota_group(node)
        if (group / "cpu.max").exists():
            period = (group / "cpu.max").read_text(encoding="ascii").split()[1]
            (group / "cpu.max").write_text(f"{processors * int(period):.0f} {period}", encoding="ascii")
        else:
            period = int((group / "cpu.cfs_period_us").read_text(encoding="ascii"))
            (group / "cpu.cfs_quota_us").write_text(f"{processors * period:.0f}", encoding="ascii")

    def prefix(self):
        return self.setting(r"ClusterName=(\w+)")

    def shape(self, within, link, rate):
        subprocess.run([*within, "tc", "qdisc", "change", "dev", link, "root", "tbf", "rate", f"{rate / 1e3:.0f}kbit", "burst",
                        f"{burst_of(self.host)}k", "limit", "8m"], check=True)

    def environment(self):
        return {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf"), "UCX_TLS": "tcp,self", "OMP_NUM_THREADS": "1"}

    def begin(self, node, *words):
        """A process that runs the program alone on a node."""
        return subprocess.Popen(["srun", "--mpi=none", f"--nodelist=n{node}", "-n", "1", PROGRAM, *map(str, words)],
                                env=self.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True)

    def start(self, order, *words, timeout=120, name="bench"):
        """The program's standard output with a rank on each node, in this order. Throws TimeoutExpired."""
        hosts = self.folder / "hosts"
        hosts.write_text("".join(f"n{node}\n" for node in order.split()), encoding="utf-8")
        environment = {**self.environment(), "SLURM_HOSTFILE": str(hosts)}
        command = ["srun", f"--job-name={name}", "--mpi=pmi2", "--distribution=arbitrary", "-n", str(len(order.split())),
                   PROGRAM, *map(str, words)]
        try:
            done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                  check=False, timeout=timeout)
        except subprocess.TimeoutExpired:
            subprocess.run(["scancel", "--signal=KILL", f"--name={name}"], env=environment, check=False)
            self.wait_until_idle(environment)
            raise
        if done.returncode != 0:
            raise RuntimeError(f"{words}: status {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def wait_until_idle(self, environment):
        end = time.monotonic() + 30
        while time.monotonic() < end:
            if not subprocess.run(["squeue", "-h"], env=environment, capture_output=True, text=True, check=True).stdout:
                return
            time.sleep(0.5)

    def raw_tcp(self, seconds=4):
        """Bytes per second of each node while all send across the spine, and the cores that this takes."""
        prefix, network = self.prefix(), self.setting(r"NodeAddr=(\d+\.\d+\.\d+)\.")
        begin = busy_seconds()
        senders = [subprocess.Popen(
            ["nsenter", f"--net=/run/netns/{prefix}n{node}", sys.executable, "-c", SENDER, str(seconds + 1),
             f"{network}.{1 + (node + 1) % 4}"], stdout=subprocess.PIPE, text=True) for node in range(1, 5)]
        rates = [float(sender.communicate()[0]) for sender in senders]
        return rates, (busy_seconds() - begin) / (seconds + 1)


def bytes_of(size):
    """Bytes of "32K"."""
    return int(re.match(r"\d+", size)[0]) << {"K": 10, "M": 20}[size[-1]]


def fewest_of(usual):
    """Repeats of each carrier that is among the fastest, for so many bytes at the usual rate."""
    return 3 if usual < ALONE else 2 if usual < LARGEST else 1


def quarter_of(size):
    """"16M" of "64M"."""
    kib = bytes_of(size) >> 12
    return f"{kib >> 10}M" if kib % 1024 == 0 else f"{kib}K"


class Results:
    """The lines of a file, each a measurement; its key is what it is of."""

    def __init__(self, path, names=("nodes", "taper", "rate", "order", "operation", "size")):
        self.path, self.names = path, names
        self.lines = []
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        self.separator = "" if text.endswith("\n") or not text else "\n"  # behind a line that is cut off
        for line in text.splitlines():
            try:
                self.lines.append(json.loads(line))
            except json.JSONDecodeError:
                print(f"{path}: a line that is cut off is left out")

    def key(self, line):
        return tuple(line[name] for name in self.names)

    def has(self, key):
        return any(self.key(line) == key for line in self.lines)

    def add(self, line):
        self.lines.append(line)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(self.separator + json.dumps(line) + "\n")
        self.separator = ""

    def cells(self):
        """One for each cell that has times; those of further carriers are added to the first one."""
        merged = {}
        for line in self.lines:
            if "times" not in line:
                continue
            if line["rate"] != self.lines[-1]["rate"]:
                sys.exit(f"{self.path}: of several rates; give another file to --results")
            found = merged.setdefault(self.key(line), {**line, "times": {}})
            found["times"] = {**line["times"], **found["times"]}
        return list(merged.values())


class Runner:
    """Measures cells until the time is over."""

    def __init__(self, options, network, results):
        self.options, self.network, self.results = options, network, results
        self.end = time.monotonic() + options.budget

    def bound_of(self, nodes, size, operation):
        return bound(operation, bytes_of(size), nodes, self.network.host, self.network.uplink)

    def usual(self, size):
        """Bytes that take as long at the usual rate."""
        return bytes_of(size) * USUAL_RATE / bits(self.options.rate)

    def missing(self, nodes, taper, order, size):
        return [operation for operation in self.options.only.split(",")
                if not self.results.has((nodes, taper, self.options.rate, order, operation, size))]

    def carriers(self, nodes, taper, order, size, operation, carriers=OURS):
        """The carriers but for those that were far behind at a quarter of the size."""
        if self.usual(size) < LARGEST:
            return carriers
        for cell in self.results.cells():
            if self.results.key(cell) == (nodes, taper, self.options.rate, order, operation, quarter_of(size)):
                best = cell["times"][best_of(cell)]["seconds"]
                near = [name for name in carriers.split(",") if name in ("table", "any") or
                        name in cell["times"] and cell["times"][name]["seconds"] <= 1.5 * best]
                return ",".join(near)
        return carriers

    def measure(self, nodes, taper, order, size, operations, carriers):
        """One start of the program, if there is time for it."""
        large = is_measurable(bytes_of(size), self.network.host)
        count = len(carriers.split(",")) + 2
        least = 3 + len(operations) * self.options.seconds * (1 if large else 2)
        least += sum(self.bound_of(nodes, size, operation) for operation in operations) * count * 2
        left = self.end - time.monotonic()
        if left < least:
            return
        path = self.network.folder / "bench.json"
        path.unlink(missing_ok=True)
        head = {"nodes": nodes, "taper": taper, "rate": self.options.rate, "order": order, "size": size}
        begin = time.monotonic()
        try:
            self.network.start(order, "bench", "comm", "--only", ",".join(operations), "--from", size, "--to", size, "--warmup",
                               0 if large else 5, "--repeats", 100 if large else 300, "--seconds", self.options.seconds * (1 if large else 4),
                               "--fewest", fewest_of(self.usual(size)), "--drop", DROP if large else NEVER,
                               "--pause", PAUSE if large else 0, "--algorithm", carriers, "--peer", "--json", path,
                               "--network", self.rates(nodes, taper), timeout=min(self.options.cell, left + 30))
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            for operation in operations:
                self.results.add({**head, "operation": operation, "failed": str(error)})
            print(f"{head} {operations}: given up: {error}", flush=True)
            return
        rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
        for operation in operations:
            times = {row["carrier"]: {name: row[name] for name in ("seconds", "repeats", "algorithm", "predicted_seconds") if name in row}
                     for row in rows if row["op"] == operation}
            actual = next(row["bytes"] for row in rows if row["op"] == operation)
            if any(row["wrong"] for row in rows):
                sys.exit(f"{head}: wrong results")
            least = bound(operation, actual, nodes, self.network.host, self.network.uplink)
            self.results.add({**head, "operation": operation, "bytes": actual, "times": times,
                              "bound": least if is_measurable(actual, self.network.host) else None})
        print(f"{time.monotonic() - begin:6.1f} s  {nodes} nodes {taper}:1  {order}  {size} {','.join(operations)}", flush=True)

    def rates(self, nodes, taper):
        """The file of the network's rates, measured once."""
        path = self.results.path.with_suffix(f".{self.options.rate}-{nodes}-{taper}.rates.json")
        if not path.exists():
            text = self.network.start(PLACEMENTS[nodes][0], "topo", "probe", "--network", path)
            print(f"{nodes} nodes, {taper}:1\n    " + text.replace("\n", "\n    ").rstrip(" "), end="", flush=True)
        return path

    def run(self):
        sizes = self.options.sizes.split(",") if self.options.sizes else None
        for round_sizes in ROUNDS:
            for nodes in map(int, self.options.nodes.split(",")):
                for taper in map(int, self.options.tapers.split(",")):
                    self.network.set_uplinks(2 * self.network.host / taper)
                    for order in PLACEMENTS[nodes][:self.options.placements]:
                        for size in round_sizes:
                            if sizes is None or size in sizes:
                                self.cells(nodes, taper, order, size)

    def cells(self, nodes, taper, order, size):
        operations = self.missing(nodes, taper, order, size)
        groups = [[operation] for operation in operations] if self.usual(size) >= ALONE else [operations]
        for group in groups:
            if group:
                self.measure(nodes, taper, order, size, group, self.carriers(nodes, taper, order, size, group[0]))


def tell(text, markdown):
    """Prints a report, and writes it to the file `markdown` if there is one."""
    print(text, end="")
    if markdown:
        markdown.write_text(text, encoding="utf-8")


def peer_of(cell):
    """MPI's own calls: the faster one's seconds; nothing where it was not measured."""
    found = [time["seconds"] for carrier, time in cell["times"].items() if carrier.startswith("MPI")]
    return min(found, default=None)


def best_of(cell):
    """The fastest single algorithm of ours that adds in the table's order."""
    adds = cell["operation"] in ("all_reduce", "reduce_scatter")
    single = {carrier: time["seconds"] for carrier, time in cell["times"].items()
              if not carrier.startswith(("MPI", "library")) and carrier not in ("table", "any")
              and not (adds and carrier in OURS_IN_ANY_ORDER)}
    return min(single, key=single.get, default="table")


def to_peer(cell):
    """The table's time over MPI's; nothing where that was not measured."""
    return cell["times"]["table"]["seconds"] / peer_of(cell) if peer_of(cell) else None


def to_best(cell):
    return cell["times"]["table"]["seconds"] / cell["times"][best_of(cell)]["seconds"]


def to_bound(cell, seconds):
    """Nothing where either is not known."""
    return seconds / cell["bound"] if cell["bound"] and seconds else None


def where(cell):
    return f"{cell['operation']} of {cell['size']}, {cell['nodes']} nodes, {cell['taper']}:1, ranks on {cell['order']}"


def ratio(value, other):
    return f"{value / other:.2f}" if value and other else "-"


def markdown(cells):
    """A table of each network and placement."""
    text, last = "", None
    def place(cell):
        return -cell["nodes"], -cell["taper"], cell["order"], OPERATIONS.index(cell["operation"]), bytes_of(cell["size"])
    for cell in sorted(cells, key=place):
        title = f"{cell['nodes']} nodes, {cell['taper']}:1, ranks on nodes {cell['order']}"
        if title != last:
            text += (f"\n{title}\n\n| operation | bytes | table ms | to bound | to MPI | best alone | to best | any to table | "
                     "MPI to bound | predicted |\n|---|---|---|---|---|---|---|---|---|---|\n")
            last = title
        times, table = cell["times"], cell["times"]["table"]["seconds"]
        best = best_of(cell)
        text += (f"| {cell['operation']} | {cell['size']} | {table * 1e3:.2f} {times['table'].get('algorithm', '')} | "
                 f"{ratio(table, cell['bound'])} | {ratio(table, peer_of(cell))} | {best} | {ratio(table, times[best]['seconds'])} | "
                 f"{ratio(times.get('any', {}).get('seconds'), table)} | {ratio(peer_of(cell), cell['bound'])} | "
                 f"{ratio(times['table'].get('predicted_seconds'), table)} |\n")
    return text


def errors_of(cells):
    """(error, of what) of each algorithm alone."""
    return [(time["predicted_seconds"] / time["seconds"] - 1, f"{carrier}: {where(cell)}") for cell in cells
            for carrier, time in cell["times"].items() if time.get("predicted_seconds") and carrier == time.get("algorithm")]


def summary(cells):
    """Worst ratios and errors, of all cells and of each operation."""
    def worst(name, ratios, limit):
        ratios = sorted(pair for pair in ratios if pair[0])
        if not ratios:
            return ""
        over = sum(value > limit for value, _ in ratios)
        return (f"| {name} | {ratios[-1][0]:.2f} | {ratios[len(ratios) // 2][0]:.2f} | {over} of {len(ratios)} above {limit} | "
                f"{ratios[-1][1]} |\n")
    def pairs(function, of=cells):
        return [(function(cell), where(cell)) for cell in of]
    def bound_pairs(name):
        return pairs(lambda cell: to_bound(cell, cell["times"].get(name, {}).get("seconds")))
    def to_itself(cell):
        table = cell["times"]["table"]
        alone = cell["times"].get(table.get("algorithm"))
        return table["seconds"] / alone["seconds"] if alone else None
    other = [cell for cell in cells if cell["times"]["table"].get("algorithm") != best_of(cell)]
    text = f"\n{len(cells)} cells\n\n| ratio | worst | median | | where |\n|---|---|---|---|---|\n"
    text += worst("table to MPI", pairs(to_peer), 1.05)
    text += worst("table to best single algorithm", pairs(to_best), 1.05)
    text += worst("the same where the best is another algorithm than the table's", pairs(to_best, other), 1.05)
    text += worst("table to the same algorithm alone", pairs(to_itself), 1.05)
    text += worst("table to the links' bound", bound_pairs("table"), 1.15)
    text += worst("any to the links' bound", bound_pairs("any"), 1.15)
    text += worst("MPI to the links' bound", pairs(lambda cell: to_bound(cell, peer_of(cell))), 1.15)
    text += "\n| error of predictions | mean, absolute | mean | worst | number | where |\n|---|---|---|---|---|---|\n"
    groups = [(operation, [cell for cell in cells if cell["operation"] == operation]) for operation in OPERATIONS]
    groups += [("well above the bursts", [cell for cell in cells if cell["bound"]]),
               ("less", [cell for cell in cells if not cell["bound"]]), ("all", cells)]
    for name, of in groups:
        errors = errors_of(of)
        if errors:
            value, place = max(errors, key=lambda error: abs(error[0]))
            mean = sum(abs(error) for error, _ in errors) / len(errors)
            text += (f"| {name} | {100 * mean:.1f} % | {100 * sum(error for error, _ in errors) / len(errors):+.1f} % | {100 * value:+.0f} % | "
                     f"{len(errors)} | {place} |\n")
    return text


def by_size(cells, again=()):
    """A row for each size, and the cells that are above a limit. Of more runs: how many are above by the median of all."""
    def key(cell):
        return where(cell), cell["rate"]
    others = [{key(cell): cell for cell in run} for run in again]
    def runs_of(cell):
        return [cell] + [run[key(cell)] for run in others if key(cell) in run]
    def usual(function, cell):
        values = [value for run in runs_of(cell) if (value := function(run))]
        return statistics.median(values) if values else 0
    text = ("\n| size | to the bound, median | MPI to the bound, median and worst | to MPI, median | above 1.05 | to the best single "
            "algorithm, median | above 1.05 | error of predictions, mean |\n|---|---|---|---|---|---|---|---|\n")
    named = ""
    for size in sorted({cell["size"] for cell in cells}, key=bytes_of):
        own = [cell for cell in cells if cell["size"] == size]
        def above(function, own=own):
            text = f"{sum((function(cell) or 0) > 1.05 for cell in own)} of {len(own)}"
            if not again:
                return text
            less = sum(len(runs_of(cell)) <= len(again) for cell in own)
            return (f"{text}, {sum(usual(function, cell) > 1.05 for cell in own)} by the median of {len(again) + 1} runs"
                    + (f", {less} measured less often" if less else ""))
        def middle(function, own=own):
            values = [value for cell in own if (value := function(cell))]
            return f"{statistics.median(values):.2f}" if values else "-"
        def table_to_bound(cell):
            return to_bound(cell, cell["times"]["table"]["seconds"])
        def peer_to_bound(cell):
            return to_bound(cell, peer_of(cell))
        most = max((peer_to_bound(cell) or 0 for cell in own), default=0)
        errors = [abs(error) for error, _ in errors_of(own)]
        text += (f"| {size} | {middle(table_to_bound)} | {middle(peer_to_bound)}{f', {most:.2f}' if most else ''} | "
                 f"{middle(to_peer)} | {above(to_peer)} | {middle(to_best)} | {above(to_best)} | "
                 f"{f'{100 * statistics.mean(errors):.1f} %' if errors else '-'} |\n")
        def of_both(cell):
            return (f"{to_peer(cell):.2f} of MPI, " if peer_of(cell) else "") + f"{to_best(cell):.2f} of the best"
        for cell in own:
            if max(to_peer(cell) or 0, to_best(cell), usual(to_peer, cell), usual(to_best, cell)) > 1.05:
                more = "".join(f"; again {of_both(run)}" for run in runs_of(cell)[1:])
                named += (f"- {where(cell)}: {cell['times']['table'].get('algorithm', '')}, {of_both(cell)}, "
                          f"{best_of(cell)}{more}\n")
    return text + "\n" + named


def arguments():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ", 1)[1])
    parser.add_argument("--results", type=pathlib.Path, default=pathlib.Path("collectives.jsonl"))
    parser.add_argument("--report", type=pathlib.Path)
    parser.add_argument("--again", type=pathlib.Path, action="append", default=[])
    parser.add_argument("--budget", type=float, default=2400.0)
    parser.add_argument("--cell", type=float, default=120.0)
    parser.add_argument("--rate", default="400mbit")
    parser.add_argument("--tapers", default="4,2")
    parser.add_argument("--nodes", default="4,3")
    parser.add_argument("--placements", type=int, default=3)
    parser.add_argument("--only", default=",".join(OPERATIONS))
    parser.add_argument("--sizes")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--markdown", type=pathlib.Path)
    options = parser.parse_args()
    for path in (options.report, *options.again):
        if path and not path.exists():
            parser.error(f"{path} is not there")
    return options


def main():
    options = arguments()
    results = Results(options.report or options.results)
    text = ""
    if not options.report:
        with Network(bits(options.rate)) as network:
            runner = Runner(options, network, results)
            for taper in sorted(set(options.tapers.split(","))):
                network.set_uplinks(2 * network.host / int(taper))
                rates, cores = network.raw_tcp()
                text += (f"{options.rate} a node, {taper}:1: raw TCP of four nodes across the spine "
                         f"{', '.join(f'{rate / 1e6:.1f}' for rate in rates)} MB/s, {cores:.2f} of {os.cpu_count()} cores busy\n")
            print(text, end="", flush=True)
            runner.run()
    cells = results.cells()
    sizes = by_size(cells, [Results(path).cells() for path in options.again])
    tables, all_sizes = markdown(cells), summary(cells)
    print(tables + all_sizes + sizes, end="")
    if options.markdown:
        options.markdown.write_text(text + all_sizes + sizes + tables, encoding="utf-8")


if __name__ == "__main__":
    main()
