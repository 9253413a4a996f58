#!/usr/bin/env python3
"""One run that several jobs carry, while all of them are disturbed: one is killed for good, one starts late, one is
preempted, the file system of one is cut for a while, and whoever leads dies at every point of an outer step.

    python3 islands_slurm_test.py TRIREME FAULTS (the library of tests/support/island_faults.cc)
"""
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from lost_testing import environment_of
from slurm_testing import Cluster, Program, clean_environment, main

EVERY, UPDATES, SILENCE = 10, 120, 4
SETTINGS = ("--run.steps", EVERY * UPDATES, "--sync.every", EVERY, "--sync.outer", "nesterov", "--sync.silence", SILENCE,
            "--sync.patience", 2 * SILENCE, "--checkpoint.every", 5 * EVERY, "--comm.timeout", 300, "--log.every", 100000)
POINTS = ("leader", "before-state", "after-state", "before-record", "after-record", "removal")


class Islands(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(Cluster("--nodes", "4"))
        cls.folder = Path(tempfile.mkdtemp(prefix="trireme_slurm."))
        cls.addClassCleanup(shutil.rmtree, cls.folder, True)
        cls.trireme = Program(cls.program, cls.folder)
        cls.run_folder, cls.control = cls.folder / "run", cls.folder / "control"
        cls.control.mkdir()
        cls.site = cls.folder / "site.ini"
        cls.site.write_text("[slurm]\nextra = --exclusive\n[environment]\nvariables = OMP_NUM_THREADS=1 "
                            f"TRIREME_FILE_PATIENCE=120 LD_PRELOAD={cls.faults} ISLAND_FAULTS={cls.control}\n",
                            encoding="utf-8")

    def submit(self, islands, nodes):
        flags = self.trireme.train("run", *SETTINGS)[2:]
        said = self.cluster.call(self.trireme.path, "job", "islands", *flags, "--site", self.site, "--islands", islands,
                                 "--nodes", nodes, "--time", 30, "--log", self.cluster.scratch / "%A_%a.log", "--submit")
        job = re.match(r"Submitted batch job (\d+)\nlogs: .*/\1_N.log, of island-N; trireme top ", said)[1]
        self.addCleanup(self.cluster.call, "scancel", job)
        return job

    def logs(self):
        logs = sorted(self.cluster.scratch.glob("*_*.log"))
        return "".join(f"--- {path.name}\n{path.read_text(errors='replace')[-3000:]}" for path in logs)

    def wait(self, what, condition, seconds=90):
        return self.cluster.wait_for(what, condition, seconds, self.logs)

    def records(self):
        return [json.loads(path.read_text(encoding="utf-8"))
                for path in sorted((self.run_folder / "outer").glob("outer-??????.json"))]

    def wait_for_records(self, count):
        """Waits for so many more than there are."""
        aim = len(self.records()) + count
        self.wait(f"outer state {aim - 1}", lambda: len(self.records()) >= aim)

    def members(self):
        records = self.records()
        return {one["member"]["name"]: one["member"]["incarnation"] for one in records[-1]["members"]} if records else {}

    def events(self, member, kind):
        path = self.run_folder / f"islands/{member}/events.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [event for event in map(json.loads, lines) if event["event"] == kind]

    def wait_for_return(self, member, after):
        self.wait(f"{member} to come back", lambda: self.members().get(member, 0) > after)

    def kill(self, job, task):
        """Kills all of a job's processes at once, as a node does that loses its power."""
        of_job = {"SLURM_ARRAY_JOB_ID": job, "SLURM_ARRAY_TASK_ID": str(task),
                  "SLURM_CONF": self.cluster.environment["SLURM_CONF"]}
        for sent in (signal.SIGSTOP, signal.SIGKILL):  # nobody is to see another one's end
            for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
                if of_job.items() <= environment_of(pid).items():
                    os.kill(pid, sent)

    def test_a_run_goes_on_whatever_becomes_of_its_jobs(self):
        (self.control / "slow").touch()  # so that the run is not done before its faults are
        job = self.submit("1-3", 1)
        self.wait("three members", lambda: len(self.members()) == 3)
        self.wait_for_records(2)

        late = self.submit("4-4", "1-2")
        self.wait("one that comes late", lambda: "island-4" in self.members())

        self.kill(job, 3)  # with its script, so that nobody brings it back
        self.wait("the death of island-3", lambda: "island-3" not in self.members())

        before = self.members()["island-2"]
        node = self.cluster.call("squeue", "-h", "-j", f"{job}_2", "-o", "%N").strip()
        urgent = self.cluster.sbatch("#!/bin/sh\nsleep 1\n", "-p", "urgent", "-w", node, "--exclusive")
        self.cluster.wait_for_state(urgent, "COMPLETED")
        self.wait_for_return("island-2", before)
        self.assertEqual(len(self.events("island-2", "start")), 2)

        # Its work stops, its heart does not beat, and it goes on as soon as it can.
        before = len(self.events("island-4", "delivered"))
        (self.control / "cut-4").touch()
        self.wait("the others to do without island-4", lambda: "island-4" not in self.members())
        (self.control / "cut-4").unlink()
        self.wait("island-4 to deliver again", lambda: len(self.events("island-4", "delivered")) > before + 1)

        for point in POINTS:
            (self.control / point).touch()
            self.wait(f"the death of a leader at {point}", lambda: not (self.control / point).exists())  # pylint: disable=cell-var-from-loop
            self.wait_for_records(2)
        (self.control / "slow").unlink()
        for one in (f"{job}_1", f"{job}_2", f"{late}_4"):
            self.cluster.wait_for_state(one, "COMPLETED", 150)
        self.expect_an_unbroken_chain()
        self.expect_the_last_state()
        self.expect_what_is_told()

    def expect_an_unbroken_chain(self):
        records = self.records()
        self.assertEqual([one["number"] for one in records], list(range(len(records))))
        self.assertEqual(records[-1]["updates"], UPDATES)
        counted, used = set(), []
        for before, record in zip(records, records[1:]):
            self.assertEqual(record["ancestors"][0]["checksum"], before["checksum"])
            for one in record["settled"]:
                name, base = one["delivery"]["member"]["name"], one["delivery"]["base"]
                self.assertNotIn((name, base), counted)
                counted.add((name, base))
                used += one["samples"]
        last = records[-1]
        used += last["back"]
        for member in last["members"]:
            for deal in member["deals"]:
                used += deal["samples"]
        end = 0
        for first, behind in sorted(used):  # each sample once
            self.assertEqual(first, end)
            end = behind
        self.assertEqual(end, last["next_sample"])
        self.assertEqual({name for name, _ in counted}, {f"island-{i}" for i in range(1, 5)})

    def expect_the_last_state(self):
        published = list((self.run_folder / "checkpoints").glob("*"))
        self.assertEqual([path.name for path in published], [f"step-{EVERY * UPDATES:08d}.h5"])
        state = self.run_folder / self.records()[-1]["state"]["file"]
        self.assertTrue(published[0].samefile(state))
        told = subprocess.run([self.trireme.path, "eval", "--checkpoint", published[0], "--data",
                               self.folder / "data/train.h5"], capture_output=True, text=True, check=True,
                              env=clean_environment(), timeout=120).stdout
        loss = float(re.search(r"loss\s+(\d\S*)", told)[1])
        self.assertTrue(math.isfinite(loss) and loss < math.log(256), told)

    def expect_what_is_told(self):
        lines = self.cluster.call(self.trireme.path, "top", self.run_folder).splitlines()
        self.assertRegex(lines[0], rf"outer state \d+, by island-\d, {UPDATES} of {UPDATES} updates; 4 members: 1 dead, "
                         "3 finished$")
        goodput = re.search(r"^goodput (\S+) %: ", "\n".join(lines), re.MULTILINE)
        self.assertGreater(float(goodput[1]), 30, lines)
        print("\n".join(lines))  # perf/RESULTS.md
        page = (self.run_folder / "report.html").read_text(encoding="utf-8")
        for words in ("Members over time", "made outer state", "island-4/report.html"):
            self.assertIn(words, page)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: islands_slurm_test.py TRIREME FAULTS")
    Islands.program = sys.argv.pop(1)
    Islands.faults = Path(sys.argv.pop(1)).resolve()
    main()
