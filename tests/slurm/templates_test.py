#!/usr/bin/env python3
"""Submits every job template for real, through `trireme job --submit`, to a cluster on this host.

    python3 templates_test.py TRIREME
"""
import json
import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
from cli_testing import ProgramTest  # noqa: E402
from slurm_testing import ENDED, Cluster, main  # noqa: E402

NODES = 3
# Writes down which devices a task was given, before the task starts.
PROLOG = """#!/bin/sh
[ -z "$CUDA_VISIBLE_DEVICES" ] || echo "$SLURMD_NODENAME $SLURM_LOCALID $CUDA_VISIBLE_DEVICES" > "{folder}/gpu-$SLURM_PROCID"
"""
GPUS = 2 if os.geteuid() == 0 else 0  # stand-ins: device files, which only root makes
# What a login profile asks of all jobs, against what the templates decide. Only where slurmd is root's can it make an
# environment for jobs that do not get that of their sbatch.
PROFILE = {"SBATCH_PARTITION": "none", "SBATCH_TIMELIMIT": "0:02", "SBATCH_MEM_PER_CPU": "1", "SBATCH_NO_REQUEUE": "1",
           "SBATCH_OPEN_MODE": "truncate", **({"SBATCH_EXPORT": "NONE"} if os.geteuid() == 0 else {})}
# An allocation whose memory, binding and GPUs are not those of a job that is submitted in one of its steps.
AROUND = ("salloc", "--quiet", "-N1", "-n1", "--mem-per-cpu=100", "srun", "--quiet", "--mpi=none", "--distribution=cyclic",
          "env", "SLURM_TRES_PER_TASK=gres:gpu:7", "SLURM_JOB_END_TIME=1", "SLURM_RESTART_COUNT=3",
          "SLURM_ARRAY_JOB_ID=1", "SLURM_ARRAY_TASK_ID=7", "SLURM_HET_SIZE=2")


class Templates(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.cluster = cls.enterClassContext(
            Cluster("--nodes", str(NODES), "--gpus", str(GPUS), "--leaves", "1"))
        cls.on_cluster = {"SLURM_CONF": cls.cluster.environment["SLURM_CONF"]}

    def setUp(self):
        super().setUp()
        self.prepare()
        self.write("run.ini", "[run]\nsteps = 6\n[model]\npreset = test-gpt\ntied = true\n"
                   "[data]\ntrain = data/train.h5\n[batch]\nglobal = 8\nmicro = 2\n"
                   "[eval]\nevery = 0\n[log]\nevery = 100\n")
        self.write("site.ini", "[slurm]\npartition = batch\nmpi = pmi2\n[environment]\n"
                   f"variables = SLURM_TASK_PROLOG={self.folder}/prolog.sh OMP_NUM_THREADS=1\n")
        self.write("prolog.sh", PROLOG.format(folder=self.folder)).chmod(0o755)

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return path

    def submit(self, template, *arguments, before=(), how="--submit"):
        text = self.expect_done("job", template, "--config", "run.ini", "--site", "site.ini", *how.split(),
                                "--name", template, "--log", f"logs/{template}-%j.out", *arguments, before=before,
                                environment={**self.on_cluster, **PROFILE})
        job = re.match(r"Submitted batch job (\d+)\nlog: (\S+); run: run; ", text)
        return job.group(1) if job else text

    def fields(self, job):
        """What Slurm says of each task of a job: the job itself, or those of an array."""
        text = self.cluster.call("scontrol", "show", "job", "-o", job)
        return [dict(word.split("=", 1) for word in line.split() if "=" in word)
                for line in text.splitlines() if line]

    def logs(self):
        return "".join(f"--- {path.name}\n{path.read_text(encoding='utf-8')}"
                       for path in sorted(self.folder.glob("logs/*.out")))

    def wait_until(self, condition, what):
        # A chain of jobs writes a checkpoint in each step, and disks differ.
        return self.cluster.wait_for(what, condition, seconds=180, show=self.logs)

    def wait(self, job, state="COMPLETED"):
        """Waits until the job is over, and returns the last that Slurm says of it."""
        self.wait_until(lambda: all(one["JobState"] in ENDED for one in self.fields(job)),
                        f"the end of job {job}")
        told = self.fields(job)
        self.assertEqual({one["JobState"] for one in told}, {state}, self.logs())
        return told

    def steps(self, run="run"):
        path = self.folder / run / "metrics.jsonl"
        if not path.exists():
            return []
        found = []
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                found.append(json.loads(line)["step"])
            except ValueError:
                pass  # being written
        return found

    def test_single_node(self):
        told = self.wait(self.submit("single_node", "--tasks-per-node", "2", before=AROUND))
        self.assertEqual((told[0]["Partition"], told[0]["TimeLimit"], told[0]["Requeue"]), ("batch", "01:00:00", "1"))
        self.assertRegex(self.logs(), r"\A--- \S+\njob \d+ \(single_node\), nodes n\d, trireme \S+ commit \w+")
        self.assertEqual(self.steps(), list(range(1, 7)))
        self.assertIn("grid       2 x 1 x 1", self.logs())

    def test_several_nodes(self):
        # It is submitted by hand inside of an allocation, as the command says; of two or three nodes it gets as many
        # as are free.
        command = self.submit("several_nodes", "--nodes", "2-3", "--tasks-per-node", "2", "--grid.pipeline", "2",
                              "--sbatch=--exclude=n3", how="--output job.sh")
        self.assertIn(" --time=01:00:00 ", command)
        done = self.cluster.call(*AROUND, "sh", "-c", f"cd {self.folder} && {command}", environment=PROFILE)
        told = self.wait(done.split()[-1])
        self.assertEqual((told[0]["NumNodes"], told[0]["NumTasks"]), ("2", "4"))
        self.assertEqual(self.steps(), list(range(1, 7)))
        self.assertIn("grid       2 x 2 x 1", self.logs())

    @unittest.skipIf(GPUS == 0, "only root makes device files")
    def test_several_nodes_gpu(self):
        told = self.wait(self.submit("several_nodes_gpu", "--nodes", "2", "--tasks-per-node", "2",
                                     "--run.device", "cpu"))  # the GPUs are stand-ins
        self.assertEqual(told[0]["TresPerNode"], "gres:gpu:2")
        given = sorted(path.read_text(encoding="utf-8").split()
                       for path in self.folder.glob("gpu-*"))
        self.assertEqual(len({node for node, _, _ in given}), 2, given)
        # All of the node's, of which each rank takes its own.
        self.assertEqual([(local, gpus) for _, local, gpus in given], [("0", "0,1"), ("1", "0,1")] * 2)
        self.assertEqual(self.steps(), list(range(1, 7)))

    def test_sweep(self):
        job = self.submit("sweep", "--sweep", "optim.lr=1e-3,3e-4 run.seed=5")
        self.wait(job)
        for point, rate in enumerate(("0.001", "0.0003")):
            self.assertEqual(self.steps(f"run/point-{point}"), list(range(1, 7)))
            config = (self.folder / f"run/point-{point}/config.ini").read_text(encoding="utf-8")
            self.assertIn(f"lr = {rate}\n", config)
            self.assertIn("seed = 5\n", config)
        # The folder tells of all points, from the first one on, and has a page.
        points = (self.folder / "run/points.txt").read_text(encoding="utf-8")
        self.assertEqual(points, "".join(
            f"{point}\toptim.lr={rate}\trun.seed=5\trun.folder=run/point-{point}\n"
            for point, rate in enumerate(("1e-3", "3e-4"))))
        self.assertIn("2 runs: 2 finished, 0 running, 0 others", (self.folder / "run/sweep.html").read_text())
        self.assertEqual(list((self.folder / "run").glob("*.partial")), [])

    def test_chain_goes_on_until_the_steps_are_done(self):
        # A checkpoint at each step keeps the run from being done before it is stopped twice.
        job = self.submit("chain", "--nodes", "2", "--run.steps", "160", "--time", "10",
                          "--checkpoint.every", "1", "--checkpoint.keep", "2")
        for restarts in range(2):
            before = len(self.steps())
            self.wait_until(lambda: len(self.steps()) > before + 5, "some steps")
            self.cluster.call("scancel", "--signal=USR1", job)
            self.wait_until(lambda: int(self.fields(job)[0]["Restarts"]) > restarts, "a requeue")
        told = self.wait(job)
        self.assertEqual(told[0]["Restarts"], "2")
        self.assertEqual(self.steps(), list(range(1, 161)))
        self.assertEqual(self.logs().count("stopped by SIGUSR1 (as before a job's time limit) after step"), 2)
        # Each start was queued for a while.
        events = [json.loads(line) for line in (self.folder / "run/events.jsonl").read_text().splitlines()]
        starts = [event for event in events if event["event"] == "start"]
        self.assertEqual(len({event["submitted"] for event in starts}), 3)
        self.assertTrue(all(event["submitted"] <= event["job_started"] <= event["time"] for event in starts), starts)
        self.assertRegex(self.logs().splitlines()[-1], r"\Agoodput .*\bqueue \d")

    def test_scaling(self):
        self.wait(self.submit("scaling", "--nodes", str(NODES), "--counts", "1,3",
                              "--batch.global", "12"))
        for nodes in (1, 3):
            self.assertEqual(self.steps(f"run/nodes-{nodes}"), list(range(1, 7)))
            self.assertIn(f"== {nodes} of the nodes", self.logs())
        self.assertIn("grid       3 x 1 x 1", self.logs())
        # A table of what was measured ends the log.
        table = [line.split() for line in self.logs().split("== measured\n")[1].splitlines()]
        self.assertEqual(table[0], "nodes ranks s a step tokens/s speedup efficiency".split())
        self.assertEqual([row[:2] for row in table[1:]], [["1", "1"], ["3", "3"]])
        self.assertEqual(table[1][4:], ["1.00", "1.00"])
        self.assertAlmostEqual(float(table[2][4]), 3 * float(table[2][5]), delta=0.02)
        self.assertAlmostEqual(float(table[2][3]) / float(table[1][3]), float(table[2][4]), delta=0.01)

    # bad input: a job: a step that was killed before a rank could speak | the step was killed, status 137,
    # before a rank could speak: srun: error: n2: task 1: Killed | 76
    def test_a_killed_task_is_named_and_the_job_goes_on_until_it_is_cancelled(self):
        job = self.submit("several_nodes", "--nodes", "2", "--run.steps", "1000000")
        self.wait_until(lambda: len(self.steps()) > 3, "some steps")
        ranks = subprocess.run(["pgrep", "-f", f"^{self.program} train"], capture_output=True,
                               text=True, check=False).stdout.split()
        own = [pid for pid in ranks if os.readlink(f"/proc/{pid}/cwd") == str(self.folder)]
        os.kill(int(own[0]), 9)
        self.wait_until(lambda: "\na failure (" in self.logs(), "the job to go on")
        self.assertEqual(len(re.findall(r"(?m)^trireme: .*n[123]", self.logs())), 1, self.logs())
        # Cancelled, it is gone, and not queued again.
        self.cluster.call("scancel", job)
        told = self.wait(job, "CANCELLED")
        self.assertEqual(told[0]["Restarts"], "0", self.logs())

    def test_what_sbatch_refuses_is_told_in_its_words(self):
        # bad input: `job --submit`: no `sbatch`; a job that it refuses | sbatch refused the job: sbatch:
        # error: ... | 2
        self.expect_refusal(2, "sbatch refused the job: sbatch: error: ", "job", "single_node",
                            "--config", "run.ini", "--site", self.write(
                                "other.ini", "[slurm]\npartition = none\n"), "--submit",
                            environment=self.on_cluster)

    def test_asks_slurm_what_a_node_and_a_partition_have(self):
        job = ("job", "several_nodes", "--config", "run.ini", "--site", "site.ini")
        # bad input: `job`: ranks that need more memory than a node has | memory: 2 ranks a node need about
        # 260 MiB (...), a node has 200: fewer tasks a node, ... | 2
        self.expect_refusal(2, "a node has 2000: fewer tasks a node", *job, "--model.width", "2048",
                            "--model.layers", "24", environment=self.on_cluster)
        # bad input: `job`: more nodes or CPUs than the partition has | --nodes 3: partition long has 2
        # nodes | 2
        self.expect_refusal(2, f"--nodes 4: partition batch has {NODES} nodes", *job, "--nodes", "4",
                            environment=self.on_cluster)
        self.expect_refusal(2, "3 tasks of 1 core need 3 CPUs on a node, but no node of partition urgent has more "
                            "than 2", *job, "--tasks-per-node", "3", "--partition", "urgent",
                            environment=self.on_cluster)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: templates_test.py TRIREME")
    ProgramTest.program = Path(sys.argv.pop()).resolve()
    main()
