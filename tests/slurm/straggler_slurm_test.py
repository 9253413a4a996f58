#!/usr/bin/env python3
"""A node whose core is busy, and one whose link is slow, are named while the run goes on, and again when
they are back to normal: in the log, the events, the report, ranks.json and `trireme top`.

    python3 straggler_slurm_test.py TRIREME
"""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

from slurm_testing import SCRIPT, SKIPPED, Cluster, Program, clean_environment, main

NODES = 4
SLOW = "n3"
# Computing takes several of the intervals in which BusyCore takes the core away.
MODEL = ("--model.layers", "4", "--model.width", "64", "--model.context", "64", "--batch.global", "16")


class Run:
    """Training that goes on until it is told to stop; what it tells."""

    def __init__(self, cluster, folder, command):
        self.cluster = cluster
        self.folder = folder
        self.log = folder / "log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(command, env={**cluster.environment, "UCX_TLS": "tcp,self"},
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def text(self):
        return self.log.read_text(encoding="utf-8", errors="replace")

    def wait_for(self, pattern, after=0):
        """The line of the log, among those after so many characters."""
        def said():
            if self.process.poll() is not None:
                raise AssertionError(f"the run ended with {self.process.returncode}:\n{self.text()}")
            return re.search(f"(?m)^{pattern}.*$", self.text()[after:])
        return self.cluster.wait_for(pattern, said, 60, self.text).group()

    def ranks(self):
        """ranks.json, its rows by node."""
        table = json.loads((self.folder / "run/ranks.json").read_text(encoding="utf-8"))
        rows = [dict(zip(table["columns"], row)) for row in table["ranks"]]
        table["by_node"] = {table["nodes"][row["node"]]["host"]: {**row, "rank": rank}
                            for rank, row in enumerate(rows)}
        return table

    def wait_for_ranks(self, condition):
        self.cluster.wait_for("ranks.json to say so", lambda: condition(self.ranks()), 60,
                              lambda: json.dumps(self.ranks(), indent=1) + self.text())

    def process_of(self, node):
        """The process of the rank on this node."""
        for environ in Path("/proc").glob("[0-9]*/environ"):
            try:
                command = environ.with_name("cmdline").read_bytes().split(b"\0")
                if (b"train" == command[1] and str(self.folder / "run").encode() in command
                        and f"SLURMD_NODENAME={node}".encode() in environ.read_bytes().split(b"\0")):
                    return int(environ.parent.name)
            except (OSError, IndexError):
                continue
        raise AssertionError(f"there is no rank on {node}")


class BusyCore(threading.Thread):
    """What another program does that is served first: the process has its core for a quarter of the time.
    A real one would have to fight with whatever else runs on this host for the same two cores."""
    TAKEN, LEFT = 0.06, 0.02

    def __init__(self, process):
        super().__init__(daemon=True)
        self.process = process
        self.over = threading.Event()

    def run(self):
        while not self.over.is_set():
            os.kill(self.process, signal.SIGSTOP)
            time.sleep(self.TAKEN)
            os.kill(self.process, signal.SIGCONT)
            time.sleep(self.LEFT)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.join()


class Link:
    """The network link of a node, in both directions."""

    def __init__(self, cluster, node):
        number = subprocess.run(["cksum"], input=f"{cluster.folder}\n", capture_output=True, text=True,
                                check=True).stdout.split()[0]
        prefix = f"t{int(number) & 0xfffffff:07x}"
        self.ends = (("tc", "qdisc", "replace", "dev", f"{prefix}h{node}"),
                     ("ip", "netns", "exec", f"{prefix}n{node}", "tc", "qdisc", "replace", "dev", "eth0"))

    def limit(self, rate):
        path = {"PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"}
        for end in self.ends:
            subprocess.run([*end, "root", "tbf", "rate", rate, "burst", "512k", "limit", "8m"],
                           check=True, env={**os.environ, **path})


class Stragglers(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="trireme_slurm."))
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.trireme = Program(self.program, self.folder)

    def events(self):
        lines = (self.folder / "run/events.jsonl").read_text(encoding="utf-8").splitlines()
        return [event["detail"] for event in map(json.loads, lines) if event["event"] == "straggler"]

    def expect_everywhere(self, run, line):
        """What the log said, in the events, the report and the live view."""
        said = line.removeprefix("straggler: ")
        run.cluster.wait_for("the event", lambda: said in self.events(), 10)
        report = self.folder / "run/report.html"
        run.cluster.wait_for("the report", lambda: report.exists() and said in report.read_text(encoding="utf-8"), 10)
        top = subprocess.run([self.program, "top", self.folder / "run"], capture_output=True, text=True,
                             check=True, env={**clean_environment(), "COLUMNS": "200"}).stdout
        self.assertRegex(top, r"(?m)^slowest +rank \d on n\d, ")
        self.assertRegex(top, r"(?m)^event .* straggler, ")

    def test_a_busy_core_and_a_slow_link(self):
        with Cluster("--mode", "network") as cluster:
            command = ["srun", "--mpi=pmi2", "-N", str(NODES), "-n", str(NODES), *self.trireme.train(
                "run", "--run.steps", "10000000", "--grid.data", NODES, *MODEL,
                "--log.stragglers", "1", "--checkpoint.every", "0")]
            run = Run(cluster, self.folder, command)
            try:
                cluster.wait_for("the first window", (self.folder / "run/ranks.json").exists, 60, run.text)
                self.busy_core(run)
                self.slow_link(run)
                os.kill(run.process_of(SLOW), signal.SIGUSR1)
                self.assertEqual(run.process.wait(30), 75, run.text())
            finally:
                run.process.kill()
                run.process.wait()

    def busy_core(self, run):
        self.assertEqual(sorted(run.ranks()["by_node"]), [f"n{n}" for n in range(1, NODES + 1)])
        rank = run.ranks()["by_node"][SLOW]["rank"]
        with BusyCore(run.process_of(SLOW)):
            line = run.wait_for(rf"straggler: rank {rank} on {SLOW} computes \d+\.\d x as long as its peers \(.* "
                                r"a step, median .*\) since step \d+")
            run.wait_for_ranks(lambda table: f"rank {rank} on {SLOW} computes" in "\n".join(table["stragglers"]))
            run.wait_for_ranks(lambda table: SLOW == max(
                table["by_node"], key=lambda node: table["by_node"][node]["times_peers"]))
            self.expect_everywhere(run, line)
        run.wait_for(rf"straggler: rank {rank} on {SLOW} is back to normal after step \d+")

    def slow_link(self, run):
        link = Link(run.cluster, SLOW.removeprefix("n"))
        link.limit("40mbit")
        line = run.wait_for(rf"straggler: the link of {SLOW} carries [\d.]+ [kM]B/s, those of the other nodes "
                            r"[\d.]+ MB/s, since step \d+")
        run.wait_for_ranks(lambda table: SLOW == min(
            table["nodes"], key=lambda node: node["link_bytes_per_s"])["host"])
        self.expect_everywhere(run, line)
        link.limit("2gbit")
        run.wait_for(rf"straggler: the link of {SLOW} is back to normal after step \d+", after=len(run.text()))


if __name__ == "__main__":
    probe = subprocess.run([SCRIPT, "run", "--mode", "network", "--nodes", "1", "--leaves", "1", "--", "true"],
                           env=clean_environment(), capture_output=True, text=True, check=False)
    if probe.returncode == SKIPPED:
        print("skipped:", probe.stderr.strip(), file=sys.stderr)
        sys.exit(SKIPPED)
    Stragglers.program = Path(sys.argv.pop(1)).resolve()
    main()
