#!/usr/bin/env python3
"""Collectives on a leaf-spine network of limited rate: ours, each of our algorithms alone, MPI's own, and the links' bound.

usage: perf/collectives.py [--rate R] [--tapers 2,4] [--nodes 3,4] [--only OP,...] [--from B] [--to B]
                           [--seconds S] [--algorithm LIST] [--placements N] [--markdown FILE] [--json FILE]

Needs root (tests/slurm/cluster.sh --mode network). For each number of nodes and taper it makes a cluster of two
leaves, whose uplinks have the rate of a leaf's two nodes divided by the taper; says what raw TCP on all links at once
reaches and how many cores that takes (lower --rate until it is under half of them); probes the network; and measures
with ranks in each order of nodes that differs in who is below one leaf. All carriers of a size take turns in one run.

The bound is the largest of the times that some set of ranks needs for what must leave or enter it. n is the bytes of a
rank's larger buffer, p the ranks, h a node's rate, s the ranks of a leaf, u its uplink's rate; tbf counts whole
Ethernet frames, of which 1448 in 1514 bytes are data.
  all_reduce      2 (p-1)/p n/h     n/u
  reduce_scatter    (p-1)/p n/h     max(s, p-s)/p n/u
  all_gather        (p-1)/p n/h     max(s, p-s)/p n/u
  all_to_all        (p-1)/p n/h     s (p-s)/p n/u
For messages below 4 MiB there is no bound here: the links let bursts of 512 KiB pass.

Columns: table is what the communicator's table chooses; best is the fastest single algorithm of ours that adds in the
same order; MPI is the faster of its blocking calls and its non-blocking ones with test and yield.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "build/release/bin/trireme"
CLUSTER = ROOT / "tests/slurm/cluster.sh"
OPERATIONS = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all")
# Orders of nodes for the ranks; any other one differs from one of these only by names.
PLACEMENTS = {3: ("1 2 3", "1 3 2", "3 1 2"), 4: ("1 2 3 4", "1 3 2 4", "1 3 4 2")}
LEAVES = {3: (2, 1), 4: (2, 2)}
PAYLOAD = 1448 / 1514
MEASURABLE = 4 << 20  # less what rounding to whole parts takes off
OURS_IN_ANY_ORDER = ("ring",)
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


def bound(operation, size, nodes, host, uplink):
    """Seconds that the links need at least."""
    host, uplink = host / 8 * PAYLOAD, uplink / 8 * PAYLOAD
    s = LEAVES[nodes][0]
    per_host = (nodes - 1) / nodes * (2 if operation == "all_reduce" else 1)
    per_leaf = {"all_reduce": 1, "all_to_all": s * (nodes - s) / nodes}.get(operation, max(s, nodes - s) / nodes)
    return size * max(per_host / host, per_leaf / uplink)


def busy_seconds():
    """Processor time of the whole machine that was not idle, in seconds."""
    values = [int(word) for word in pathlib.Path("/proc/stat").read_text(encoding="utf-8").split("\n", 1)[0].split()[1:8]]
    return (sum(values) - values[3] - values[4]) / os.sysconf("SC_CLK_TCK")


class Network:
    """A cluster of two leaves; ends with the `with` block."""

    def __init__(self, nodes, host, uplink):
        self.nodes, self.host, self.uplink = nodes, host, uplink

    def __enter__(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="trireme_collectives.")
        self.folder = pathlib.Path(self.scratch.name) / "cluster"
        # The leaf of a node follows from both numbers; with 3 nodes the first leaf has two.
        subprocess.run([CLUSTER, "up", "--folder", self.folder, "--mode", "network", "--nodes", str(self.nodes), "--leaves",
                        "2", "--host-rate", f"{self.host / 1e3:.0f}kbit", "--uplink-rate", f"{self.uplink / 1e3:.0f}kbit"],
                       check=True, stdout=subprocess.DEVNULL)
        return self

    def __exit__(self, *_):
        subprocess.run([CLUSTER, "down", "--folder", self.folder], check=True)
        self.scratch.cleanup()

    def setting(self, name):
        text = (self.folder / "slurm.conf").read_text(encoding="utf-8")
        return re.search(rf"{name}", text)[1]

    def run(self, order, *words):
        """Standard output of the program with a rank on each node, in this order."""
        hosts = self.folder / "hosts"
        hosts.write_text("".join(f"n{node}\n" for node in order.split()), encoding="utf-8")
        environment = {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf"), "SLURM_HOSTFILE": str(hosts),
                       "UCX_TLS": "tcp,self", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(["srun", "--mpi=pmi2", "--distribution=arbitrary", "-n", str(self.nodes), PROGRAM,
                               *map(str, words)], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              check=False)
        if done.returncode != 0:
            sys.exit(f"{words}: status {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def raw_tcp(self, seconds=4):
        """Bytes per second of each node while all send across the spine, and the cores that this takes."""
        prefix, network = self.setting(r"ClusterName=(\w+)"), self.setting(r"NodeAddr=(\d+\.\d+\.\d+)\.")
        half = (self.nodes + 1) // 2
        begin = busy_seconds()
        senders = [subprocess.Popen(
            ["nsenter", f"--net=/run/netns/{prefix}n{node}", sys.executable, "-c", SENDER, str(seconds + 1),
             f"{network}.{1 + (node - 1 + half) % self.nodes}"], stdout=subprocess.PIPE, text=True)
            for node in range(1, self.nodes + 1)]
        rates = [float(sender.communicate()[0]) for sender in senders]
        return rates, (busy_seconds() - begin) / (seconds + 1)


def measure(network, order, options, rates):
    """{(operation, bytes): {carrier: seconds}}"""
    found = {}
    for operation in options.only.split(","):
        path = network.folder / "bench.json"
        network.run(order, "bench", "comm", "--only", operation, "--from", options.smallest, "--to", options.largest,
                    "--warmup", 0, "--seconds", options.seconds, "--algorithm", options.algorithm, "--peer", "--json", path,
                    "--network", rates)
        for row in json.loads(path.read_text(encoding="utf-8"))["rows"]:
            if row["wrong"]:
                sys.exit(f"{row}: wrong results")
            found.setdefault((operation, row["bytes"]), {})[row["carrier"]] = row["seconds"]
    return found


def row_of(operation, size, times, least):
    """What the table shows of one size, all times in seconds."""
    peer = min(seconds for carrier, seconds in times.items() if carrier.startswith("MPI"))
    single = {carrier: seconds for carrier, seconds in times.items() if not carrier.startswith(("MPI", "library"))
              and carrier != "table" and (carrier not in OURS_IN_ANY_ORDER or operation in ("all_gather", "all_to_all"))}
    best = min(single, key=single.get) if single else "table"
    return {"operation": operation, "bytes": size, "bound": least if size > 0.99 * MEASURABLE else None, "times": times,
            "table": times["table"], "best": best, "best seconds": times[best], "MPI": peer}


def markdown(title, rows):
    """A table of one cluster and placement."""
    text = f"\n{title}\n\n| operation | bytes | table ms | to bound | to MPI | best alone | to best | MPI to bound |\n|---|---|---|---|---|---|---|---|\n"
    for row in rows:
        least = row["bound"]
        to_bound = f"{row['table'] / least:.2f}" if least else "-"
        peer = f"{row['MPI'] / least:.2f}" if least else "-"
        text += (f"| {row['operation']} | {row['bytes']} | {row['table'] * 1e3:.2f} | {to_bound} | {row['table'] / row['MPI']:.2f} | "
                 f"{row['best']} | {row['table'] / row['best seconds']:.2f} | {peer} |\n")
    return text


def summary(rows):
    """The worst ratios of all."""
    def worst(name, ratios):
        ratios = sorted(ratios)
        return f"{name}: worst {ratios[-1][0]:.2f} ({ratios[-1][1]}), median {ratios[len(ratios) // 2][0]:.2f}\n" if ratios else ""
    def where(row):
        return f"{row['operation']} of {row['bytes']}, {row['where']}"
    return ("\n" + worst("table to MPI", [(row["table"] / row["MPI"], where(row)) for row in rows])
            + worst("table to best single algorithm", [(row["table"] / row["best seconds"], where(row)) for row in rows])
            + worst("table to the links' bound", [(row["table"] / row["bound"], where(row)) for row in rows if row["bound"]])
            + worst("MPI to the links' bound", [(row["MPI"] / row["bound"], where(row)) for row in rows if row["bound"]]))


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n", 2)[2])
    parser.add_argument("--rate", default="400mbit")
    parser.add_argument("--tapers", default="2,4")
    parser.add_argument("--nodes", default="3,4")
    parser.add_argument("--only", default=",".join(OPERATIONS))
    parser.add_argument("--from", dest="smallest", default="1K")
    parser.add_argument("--to", dest="largest", default="64M")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--algorithm", default="all")
    parser.add_argument("--placements", type=int, default=3)
    parser.add_argument("--markdown", type=pathlib.Path)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    text, everything = "", []

    def say(more):
        nonlocal text
        text += more
        print(more, end="", flush=True)

    for nodes in map(int, options.nodes.split(",")):
        for taper in map(float, options.tapers.split(",")):
            host = bits(options.rate)
            uplink = 2 * host / taper
            with Network(nodes, host, uplink) as network:
                rates, cores = network.raw_tcp()
                say(f"\n{nodes} nodes at {host / 1e6:.0f} Mbit/s, uplinks at {uplink / 1e6:.0f}: raw TCP across the spine "
                    f"{', '.join(f'{rate / 1e6:.1f}' for rate in rates)} MB/s, {cores:.2f} of {os.cpu_count()} cores busy\n\n")
                for order in PLACEMENTS[nodes][:options.placements]:
                    say("    " + network.run(order, "topo", "probe", "--network", network.folder / "rates.json").replace("\n", "\n    ").rstrip(" "))
                    rows = [row_of(operation, size, times, bound(operation, size, nodes, host, uplink)) for
                            (operation, size), times in measure(network, order, options, network.folder / "rates.json").items()]
                    where = f"{nodes} nodes, {taper:.0f}:1, ranks on nodes {order}"
                    say(markdown(where, rows))
                    everything += [{**row, "where": where} for row in rows]
                    if options.json:
                        options.json.write_text(json.dumps(everything, indent=1), encoding="utf-8")
    say(summary(everything))
    if options.markdown:
        options.markdown.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
