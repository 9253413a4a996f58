#!/usr/bin/env python3
"""Ranks, nodes and daemons that are lost: the job goes on by itself, and the run is what it would have been.

    python3 lost_nodes_test.py TRIREME MPIEXEC

One cluster with a network of its own. The jobs run for ever; each test decides what is lost and when, waits for
what must follow from it, and compares the loss curve with that of a run that lost nothing.
"""
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from lost_testing import LostTest
from slurm_testing import main


class LostNodes(LostTest):
    OPTIONS = ("--nodes", "7")

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
        self.assertEqual(self.lost_nodes("rank")[0], node)
        self.assertGreater(self.events("rank", "restart")[0]["seconds"], 0)
        self.assertRegex(log, r"(?m)^a failure \(.*\) cost \d+\.\d s until the next step; \d+ steps? (is|are) repeated")
        # It hangs; the watchdog of the others says so.
        os.kill(self.ranks(job)[2][0], signal.SIGSTOP)
        self.wait_for_restart("rank", job, 2)
        self.assertRegex(self.cluster.log(job), r"trireme: no progress for [0-9.]+ s: rank 2 \(n\d\) does not answer")
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
        # Both run at once, for each takes as long as Slurm needs to give up a node.
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
        self.assertEqual(self.lost_nodes("link")[0], lost)
        self.wait("the requeue", host, lambda: self.cluster.job(host)["Restarts"] == "1", 120)
        # On a busy machine Slurm may drain another node of the job, too, whose tasks took long to end.
        self.wait("restart 1 of host", host,
                  lambda: self.cluster.resume_nodes("Kill task failed") or self.events("host", "restart"), 240)
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
    main()
