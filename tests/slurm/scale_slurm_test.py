#!/usr/bin/env python3
"""`trireme scale` on a cluster: inside of an allocation through srun, and as a job for each point.

    python3 scale_slurm_test.py TRIREME
"""
import csv
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from slurm_testing import Cluster, Program, main

STUDY = ("--nodes 1,2 --mode strong,weak --repeats 1 --steps 6 --model.layers 1 --model.width 16 "
         "--model.heads 2 --model.context 16 --batch.global 8 --batch.micro 2 --threads 1").split()
NAMES = ["strong-n1-d1p1t1-r1", "strong-n2-d2p1t1-r1", "weak-n2-d2p1t1-r1"]


class ScaleOnSlurm(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="trireme_slurm."))
        cls.addClassCleanup(shutil.rmtree, cls.folder, True)
        cls.trireme = Program(cls.program, cls.folder)
        cls.cluster = cls.enterClassContext(Cluster("--nodes", "2", "--leaves", "1"))

    def scale(self, study, *more):
        return [str(self.trireme.path), "scale", "--data.train", str(self.folder / "data/train.h5"),
                "--output", str(self.folder / study), *STUDY, *more]

    def check(self, study, launcher, jobs):
        with open(self.folder / study / "points.csv", encoding="utf-8", newline="") as file:
            points = list(csv.DictReader(file))
        self.assertEqual([p["point"] for p in points], NAMES)
        self.assertEqual([p["job"] for p in points], jobs)
        for point in points:
            self.assertRegex(point["hosts"], r"n\d+" if point["nodes"] == "1" else r"n\[\d+-\d+\]")
        page = (self.folder / study / "report.html").read_text(encoding="utf-8")
        facts = dict(re.findall("<dt>(.*?)</dt><dd>(.*?)</dd>", page))
        self.assertIn("3 of 3 points", page)
        self.assertEqual((facts["run by"], facts["jobs"]), (launcher, ", ".join(dict.fromkeys(jobs))))
        self.assertRegex(facts["hosts"], r"^n\[\d+-\d+\]$")

    def test_inside_of_an_allocation(self):
        script = "#!/bin/sh\nexec " + " ".join(self.scale("allocation")) + "\n"
        job = self.cluster.sbatch(script, "--nodes=2", "--ntasks-per-node=1")
        self.cluster.wait_for_state(job, "COMPLETED")
        self.assertIn("3/3 weak-n2-d2p1t1-r1: ", self.cluster.log(job))
        self.check("allocation", "srun", [job] * len(NAMES))
        # The same command shows it outside of the allocation, but measures nothing more there.
        self.assertIn("verdict, strong", self.cluster.call(*self.scale("allocation"), timeout=60))
        unsaid = [word if word != "1,2" else "1,2,4" for word in self.scale("allocation")]
        more = subprocess.run(unsaid, env=self.cluster.environment, check=False, capture_output=True, text=True,
                              cwd=self.cluster.scratch, timeout=60)
        # bad input: `scale` without `--launcher` where there is `sbatch` but no allocation | this host has
        # sbatch but is in no allocation: choose with --launcher sbatch ... | 2
        self.assertEqual(more.returncode, 2, more.stderr)
        self.assertIn("this host has sbatch but is in no allocation", more.stderr)

    def test_more_nodes_than_the_allocation_has(self):
        job = self.cluster.sbatch("#!/bin/sh\nexec " + " ".join(self.scale("small")) + "\n", "--nodes=1")
        self.cluster.wait_for_state(job, "FAILED")
        # bad input: `scale`: `srun` outside of an allocation, or for more nodes than it has | --nodes asks
        # for 2 nodes, but the allocation has 1 | 2
        self.assertIn("--nodes asks for 2 nodes, but the allocation has 1", self.cluster.log(job))

    def test_a_job_for_each_point(self):
        (self.folder / "site.ini").write_text("[slurm]\nmpi = pmi2\n[environment]\nvariables = SEEN=yes\n")
        arguments = self.scale("jobs", "--launcher", "sbatch", "--time", "5", "--site",
                               str(self.folder / "site.ini"))
        # Interrupted once all are queued: the jobs go on, and the same command waits for them.
        process = subprocess.Popen(arguments, env=self.cluster.environment, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, cwd=self.cluster.scratch)
        self.addCleanup(process.kill)
        first = [process.stdout.readline() for _ in NAMES]
        process.terminate()
        rest, errors = process.communicate(timeout=60)
        self.assertEqual(errors, "")
        self.assertEqual([line.split(":")[0] for line in first], NAMES)
        # bad input: `scale`: SIGTERM or SIGINT | stopped by a signal; the same command goes on | 75
        self.assertEqual(process.returncode, 75, rest)
        jobs = [line.split()[-1] for line in first]
        again = self.cluster.call(*arguments, timeout=120)
        self.assertNotIn(": job ", again)
        self.check("jobs", "sbatch", jobs)
        for name, job in zip(NAMES, jobs):
            # A point's result is there a moment before Slurm calls its job completed.
            known = self.cluster.wait_for_state(job, "COMPLETED")
            self.assertEqual(known["NumNodes"], name[name.index("-n") + 2])
            log = (self.folder / "jobs/points" / name / "log").read_text(encoding="utf-8")
            self.assertRegex(log, rf"\Ajob {job} \(trireme-scale-\w+\), nodes n\S+, trireme \S+, commit \w+")


if __name__ == "__main__":
    with Cluster("--nodes", "1", "--leaves", "1"):
        pass  # skips where none can be made
    ScaleOnSlurm.program = sys.argv.pop(1)
    main()
