#!/usr/bin/env python3
"""Ranks, nodes and daemons that are lost: the job goes on by itself, and the run is what it would have been.

    python3 lost_nodes_test.py TRIREME MPIEXEC

One cluster with a network of its own. The jobs run for ever; each test decides what is lost and when, waits for
what must follow from it, and compares the loss curve with that of a run that lost nothing.
"""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from slurm_testing import Cluster, Program, clean_environment

NODES = 7
RUN = ("--run.steps", 10_000_000, "--comm.timeout", 6, "--checkpoint.every", 40, "--checkpoint.keep", 1000,
       "--log.every", 1000000, "--schedule.warmup", 0,
       "--model.width", 64, "--model.context", 32)


def environment_of(pid):
    try:
        text = Path(f"/proc/{pid}/environ").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    return dict(line.split("=", 1) for line in text.split("\0") if "=" in line)


class LostNodes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(Cluster("--nodes", str(NODES), "--mode", "network"))
        cls.folder = Path(tempfile.mkdtemp(prefix="trireme_slurm."))
        cls.addClassCleanup(shutil.rmtree, cls.folder, True)
        cls.trireme = Program(cls.program, cls.folder)
        cls.site = cls.folder / "site.ini"
        cls.site.write_text("[slurm]\nextra = --exclusive\n[environment]\nvariables = UCX_TLS=tcp,self OMP_NUM_THREADS=1\n", encoding="utf-8")

    def submit(self, run, nodes, *more):
        flags = self.trireme.train(run, *RUN)[2:]
        said = self.cluster.call(self.trireme.path, "job", "several_nodes", *flags, "--site", self.site, "--nodes",
                                 nodes, "--time", 30, "--name", run, "--log", self.cluster.scratch / "%j.log",
                                 "--submit", *more)
        job = re.fullmatch(r"Submitted batch job (\d+)\n", said)[1]
        self.addCleanup(self.cancel, job)
        return job

    def cancel(self, job):
        self.cluster.call("scancel", job)
        self.cluster.wait_for(f"the end of job {job}", lambda: not self.cluster.call("squeue", "-h", "-j", job))

    def wait(self, what, job, condition, seconds=90):
        return self.cluster.wait_for(what, condition, seconds, lambda: self.cluster.log(job))

    def wait_for_steps(self, run, job, count):
        """So many more steps than there are now."""
        aim = self.trireme.steps(run) + count
        self.wait(f"{aim} steps of {run}", job, lambda: self.trireme.steps(run) >= aim)

    def wait_for_restart(self, run, job, number):
        """Until the run has gone on for the number-th time, and some steps beyond; its events."""
        self.wait(f"restart {number} of {run}", job, lambda: len(self.events(run, "restart")) >= number)
        print(f"{run}: {self.events(run, 'restart')[number - 1]['detail']}")  # perf/RESULTS.md
        self.wait_for_steps(run, job, 50)

    def events(self, run, kind):
        path = self.folder / run / "events.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [event for event in map(json.loads, lines) if event["event"] == kind]

    def ranks(self, job):
        """{rank: (process, node)} of the step that runs now."""
        found = {}
        for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
            of = environment_of(pid)
            if of.get("SLURM_JOB_ID") == job and of.get("SLURM_CONF") == self.cluster.environment["SLURM_CONF"] \
                    and "PMI_RANK" in of and os.path.realpath(f"/proc/{pid}/exe") == str(self.trireme.path):
                found.setdefault(int(of["SLURM_STEP_ID"]), {})[int(of["SLURM_PROCID"])] = \
                    (pid, of["SLURMD_NODENAME"])
        return found[max(found)]

    def stepd_of(self, pid):
        return int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[1])

    def link(self, node, state):
        subprocess.run(["ip", "link", "set", f"{self.prefix()}h{node[1:]}", state], check=True)

    def prefix(self):
        """What the names of the cluster's links and namespaces begin with."""
        text = (self.cluster.folder / "slurm.conf").read_text(encoding="utf-8")
        return re.search(r"ClusterName=(\w+)", text)[1]

    def daemon(self, *command):
        subprocess.run(command, check=True, env={**self.cluster.environment,
                                                 "TRIREME_CLUSTER_DAEMON": str(self.cluster.folder)},
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def end_daemon(self, name, how):
        pid = int((self.cluster.folder / f"{name}.pid").read_text(encoding="utf-8"))
        os.kill(pid, how)
        self.cluster.wait_for(f"the end of {name}", lambda: not Path(f"/proc/{pid}").exists())
        return pid

    def expect_curve(self, run, replicas, same_until=None):
        """As if nothing had been lost: the same bits up to a step, and beyond it to rounding."""
        curve = self.trireme.curve(run)
        self.assertEqual([step["step"] for step in curve], list(range(1, len(curve) + 1)))
        whole = f"whole-{run}"
        flags = self.trireme.train(whole, *RUN, "--run.steps", len(curve))
        subprocess.run([self.mpiexec, "-n", str(replicas), *flags], check=True, capture_output=True,
                       env=clean_environment(), timeout=120)
        expected = self.trireme.curve(whole)
        same = len(curve) if same_until is None else same_until
        self.assertEqual(curve[:same], expected[:same])
        # Rounding grows with the steps.
        for one, other in zip(curve[same:same + 100], expected[same:same + 100]):
            self.assertAlmostEqual(one["loss"], other["loss"], delta=2e-3 * other["loss"])

    def test_a_lost_rank_a_hang_and_a_node_that_fails_twice(self):
        job = self.submit("rank", 3)
        self.wait_for_steps("rank", job, 100)
        ranks = self.ranks(job)
        node = ranks[1][1]
        os.kill(ranks[1][0], signal.SIGKILL)
        self.wait_for_restart("rank", job, 1)
        log = self.cluster.log(job)
        self.assertEqual(len(re.findall(rf"(?m)^trireme: .*{node}: task 1: Killed", log)), 1, log)
        self.assertNotIn("goes on on", log)  # on all nodes
        self.assertEqual(self.events("rank", "failure")[0]["nodes"], node)
        self.assertGreater(self.events("rank", "restart")[0]["seconds"], 0)
        self.assertRegex(log, r"(?m)^a failure \(.*\) cost \d+\.\d s until the next step; \d+ steps? (is|are) repeated")
        # It hangs; the watchdog of the others says so.
        os.kill(self.ranks(job)[2][0], signal.SIGSTOP)
        self.wait_for_restart("rank", job, 2)
        self.assertRegex(self.cluster.log(job), r"trireme: no progress for 6 s: rank 2 \(n\d\) does not answer")
        # The first node again.
        os.kill(next(pid for pid, on in self.ranks(job).values() if on == node), signal.SIGKILL)
        self.wait_for_restart("rank", job, 3)
        log = self.cluster.log(job)
        self.assertIn(f"trireme: {node} is left out: it was lost twice", log)
        self.assertIn("trireme: goes on on 2 of 3 nodes", log)
        self.assertIn("grid       2 x 1 x 1", log)
        self.cancel(job)
        self.expect_curve("rank", 3, self.events("rank", "restart")[-1]["step"] - 1)

    def test_a_node_out_of_reach_and_the_loss_of_the_batch_host(self):
        # At once, for both take as long as Slurm needs to give up a node.
        link = self.submit("link", 3)
        host = self.submit("host", 3)
        for run, job in (("link", link), ("host", host)):
            self.wait_for_steps(run, job, 60)
        lost = self.ranks(link)[1][1]
        frozen, first = self.ranks(host)[0]
        os.kill(frozen, signal.SIGSTOP)  # it shall outlive its step
        for node in (lost, first):
            self.link(node, "down")
            self.addCleanup(self.link, node, "up")
        self.wait_for_restart("link", link, 1)
        log = self.cluster.log(link)
        self.assertRegex(log, rf"(?m)^trireme: .*{lost}")
        self.assertIn("trireme: goes on on 2 of 3 nodes", log)
        self.assertEqual(self.events("link", "failure")[0]["nodes"], lost)
        self.wait("the requeue", host, lambda: self.cluster.job(host)["Restarts"] == "1", 120)
        self.wait_for_restart("host", host, 1)
        self.assertNotIn(first, self.cluster.call("scontrol", "show", "hostnames",
                                                  self.cluster.job(host)["NodeList"]).split())
        # The rank 0 of before wakes up: it ends, and the run does not notice.
        os.kill(frozen, signal.SIGCONT)
        self.wait("the end of the rank that was left over", host, lambda: not Path(f"/proc/{frozen}").exists())
        self.wait_for_steps("host", host, 50)
        self.cancel(link)
        self.cancel(host)
        self.expect_curve("host", 3)
        self.expect_curve("link", 3, self.events("link", "restart")[0]["step"] - 1)

    def test_lost_daemons_do_not_disturb(self):
        job = self.submit("daemons", 2)
        self.wait_for_steps("daemons", job, 60)
        ranks = self.ranks(job)
        node = ranks[1][1]
        self.end_daemon(f"slurmd.{node}", signal.SIGKILL)
        self.end_daemon("slurmctld", signal.SIGTERM)  # killed, it might not know of the job yet
        self.wait_for_steps("daemons", job, 60)
        self.daemon("slurmctld")
        self.daemon("nsenter", f"--net=/run/netns/{self.prefix()}{node}", "unshare", "--uts", "sh", "-c",
                    'hostname "$0" && exec slurmd -N "$0"', node)
        self.cluster.wait_for("the controller", lambda: subprocess.run(
            ["scontrol", "ping"], env=self.cluster.environment, capture_output=True, check=False).returncode == 0)
        self.wait_for_steps("daemons", job, 60)
        self.assertEqual(self.ranks(job), ranks)
        # Without its slurmstepd a task cannot tell anybody that it has ended; the job is not to wait for it.
        os.kill(self.stepd_of(ranks[1][0]), signal.SIGKILL)
        self.wait_for_steps("daemons", job, 60)
        self.assertEqual(self.events("daemons", "failure"), [])
        self.cluster.call("scancel", "--signal=USR1", job)
        self.wait("the requeue", job, lambda: self.cluster.job(job)["Restarts"] == "1")
        self.wait_for_restart("daemons", job, 1)
        self.cancel(job)
        self.expect_curve("daemons", 2)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: lost_nodes_test.py TRIREME MPIEXEC")
    LostNodes.program = sys.argv.pop(1)
    LostNodes.mpiexec = sys.argv.pop(1)
    unittest.main()
