#!/usr/bin/env python3
"""`srun --mpi=pmi2 trireme train` on four nodes: the bits of the same run under mpiexec.

    python3 train_slurm_test.py TRIREME MPIEXEC
"""
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from slurm_testing import SCRIPT, SKIPPED, Cluster, Program, clean_environment, main

RANKS = 4
GRID = ("--run.steps", "20", "--grid.data", "2", "--grid.tensor", "2", "--checkpoint.every", "0")


class TrainOnSlurm(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="trireme_slurm.")
        cls.addClassCleanup(shutil.rmtree, cls.folder, True)
        cls.trireme = Program(cls.program, cls.folder)
        subprocess.run([cls.mpiexec, "-n", str(RANKS), *cls.trireme.train("mpiexec", *GRID)], check=True,
                       env=clean_environment(), capture_output=True, timeout=60)
        cls.expected = cls.trireme.curve("mpiexec")

    def train(self, cluster, run, **environment):
        cluster.call("srun", "--mpi=pmi2", "-N", RANKS, "-n", RANKS, *self.trireme.train(run, *GRID),
                     environment=environment)
        self.assertEqual([step["step"] for step in self.expected], list(range(1, 21)))
        self.assertEqual(self.trireme.curve(run), self.expected)

    def test_nodes_on_one_host(self):
        with Cluster() as cluster:
            self.train(cluster, "plain")
            text = cluster.call("srun", "--mpi=pmi2", "-N", RANKS, "-n", RANKS, self.program, "doctor")
            self.assertTrue(text.startswith(f"{RANKS} nodes: n[1-{RANKS}]\n\nthe same on all {RANKS} nodes\n"), text)
            self.assertIn(f"; {RANKS} tasks by srun\n", text)

    def test_ranks_that_slurm_deals_out(self):
        with Cluster("--cpus", "4") as cluster:
            # Tensor ranks would be on two nodes, and then on two leaves.
            (Path(self.folder) / "hosts").write_text("n1\nn3\nn2\nn4\n", encoding="utf-8")
            for run, places, distribution, nodes in (
                    ("dealt", "n1: 0-1, n2: 2-3", "cyclic", 2),
                    ("arbitrary", "n1: 0, n2: 1, n3: 2, n4: 3", "arbitrary", RANKS)):
                text = cluster.call("srun", "--mpi=pmi2", "-N", nodes, "-n", RANKS, "--distribution", distribution,
                                    "--ntasks-per-node", RANKS // nodes,
                                    *self.trireme.train(run, *GRID), environment={
                                        "SLURM_HOSTFILE": f"{self.folder}/hosts"} if nodes == RANKS else {})
                self.assertRegex(text, r"rank order: by the model the busiest link has \d+ % of the load ")
                self.assertIn("; places of the grid on each node: " + places + "\n", text)
                self.assertEqual(self.trireme.curve(run), self.expected)

    def test_nodes_behind_a_network(self):
        probe = subprocess.run([SCRIPT, "run", "--mode", "network", "--nodes", "1", "--leaves", "1", "--",
                                "true"], env=clean_environment(), capture_output=True, text=True, check=False)
        if probe.returncode == SKIPPED:
            self.skipTest(probe.stderr)
        with Cluster("--mode", "network") as cluster:
            # Without it UCX would use shared memory between the "nodes".
            self.train(cluster, "network", UCX_TLS="tcp,self")
            sent = cluster.call("ip", "-s", "-o", "link", "show")
            self.assertIn(": t", sent)


if __name__ == "__main__":
    with Cluster("--nodes", "1", "--leaves", "1"):
        pass  # skips where none can be made
    TrainOnSlurm.program, TrainOnSlurm.mpiexec = sys.argv.pop(1), sys.argv.pop(1)
    main()
