#!/usr/bin/env python3
"""A leaf switch that fails: the jobs on both of its sides go on by themselves.

    python3 lost_leaf_test.py TRIREME MPIEXEC

Three leaves of four nodes. The uplink of the second one is cut while two jobs run: of the job "far" the leaf holds
the second half of the nodes, of the job "near" the first half, and so the node of its script.
"""
import subprocess
import sys

from lost_testing import LostTest
from slurm_testing import main

FAR = ["n1", "n2", "n5", "n6"]
NEAR = ["n7", "n8", "n9", "n10"]
SPARE = ["n3", "n4", "n11", "n12"]


class LostLeaf(LostTest):
    OPTIONS = ("--nodes", "12", "--leaves", "3")

    def uplink(self, leaf, state):
        subprocess.run(["ip", "link", "set", f"{self.prefix()}u{leaf}", state], check=True)

    def set_state(self, nodes, state):
        self.cluster.call("scontrol", "update", f"nodename={','.join(nodes)}", f"state={state}", "reason=test")

    def nodes_of(self, job):
        return self.cluster.call("scontrol", "show", "hostnames", self.cluster.job(job)["NodeList"]).split()

    def submit_on(self, run, nodes):
        """A job on these nodes; a later start of it may run on others."""
        others = [node for node in FAR + NEAR + SPARE if node not in nodes]
        self.set_state(others, "drain")
        job = self.submit(run, len(nodes))
        self.wait(f"{run} to run", job, lambda: self.cluster.job(job)["JobState"] == "RUNNING")
        self.assertEqual(self.nodes_of(job), nodes)
        self.set_state(others, "resume")
        return job

    def test_both_sides_of_a_cut_leaf(self):
        far = self.submit_on("far", FAR)
        near = self.submit_on("near", NEAR)
        for run, job in (("far", far), ("near", near)):
            self.wait_for_steps(run, job, 60)
        self.addCleanup(self.uplink, 2, "up")
        self.uplink(2, "down")

        self.wait_for_restart("far", far, 1)
        log = self.cluster.log(far)
        self.assertRegex(log, r"(?m)^trireme: no progress for [0-9.]+ s: n5, n6 cannot be reached from n1 \(ranks 2, 3\)")
        self.assertIn("\ntrireme: n5, n6 cannot be reached\n", log)
        self.assertIn("\ntrireme: goes on on 2 of 4 nodes: n1 n2\n", log)
        self.assertEqual(self.lost_nodes("far"), ["n5 n6"])

        # Only a node on the other side can have this job started again.
        self.wait("the requeue", near, lambda: self.cluster.job(near)["Restarts"] == "1", 120)
        self.wait_for_restart("near", near, 1)
        self.assertRegex(self.cluster.log(near),
                         r"(?m)^trireme: n7, n8 cannot be reached: n(9|10) has the job queued again$")
        self.assertEqual(self.lost_nodes("near"), ["n7 n8"])
        self.assertEqual({"n7", "n8"} & set(self.nodes_of(near)), set())
        # Slurm may have drained nodes on which tasks of the first start did not end in time.
        drained = self.cluster.call("sinfo", "-h", "-N", "-p", "batch", "-t", "drain", "-o", "%N %E").splitlines()
        for node in {line.split()[0] for line in drained if "Kill task failed" in line} - {"n5", "n6", "n7", "n8"}:
            self.assertRegex(self.cluster.log(near), rf"(?m)^trireme: .*\b{node}\b.*drained by Slurm \(Kill task failed\)")

        # What is left of the first start sees the network again, and neither speaks nor writes.
        self.uplink(2, "up")
        self.wait_for_steps("near", near, 50)
        self.cancel(far)
        self.cancel(near)
        self.assertEqual(self.cluster.job(near)["Restarts"], "1")
        self.expect_curve("near", 4, self.events("near", "restart")[0]["step"] + 40)
        self.expect_curve("far", 4, self.events("far", "restart")[0]["step"] - 1)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: lost_leaf_test.py TRIREME MPIEXEC")
    LostLeaf.program = sys.argv.pop(1)
    LostLeaf.mpiexec = sys.argv.pop(1)
    main()
