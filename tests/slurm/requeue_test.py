#!/usr/bin/env python3
"""A run that Slurm stops goes on by itself, with the bits of a run that was never stopped: requeue, a signal,
the time limit, preemption.

    python3 requeue_test.py TRIREME CHECKPOINT_DIFFERENCE

One cluster for all cases: n1 to n3 below one leaf switch, n4 and n5 below another. The job with the time limit has
a node of its own and runs beside the others, for Slurm knows no limit below a minute. The others are three replicas,
whose gradients make no balanced tree.
"""
import json
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from slurm_testing import Cluster, Program, main

STEPS = 250
ENDLESS = 10_000_000
# Stopped on purpose (75): requeue. Slurm's SIGTERM reaches this shell too, which must live on until the ranks
# have written their checkpoint.
SCRIPT = """#!/bin/bash
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=1
#SBATCH --mem=500
echo "start ${SLURM_RESTART_COUNT:-0} on $SLURM_JOB_NODELIST"
trap 'echo "asked to stop"; kill -USR1 "$step"' USR1
trap 'echo "being ended"' TERM
srun --mpi=pmi2 --ntasks="$SLURM_JOB_NUM_NODES" COMMAND &
step=$!
status=0
wait "$step" || status=$?
while kill -0 "$step" 2> /dev/null; do
  status=0
  wait "$step" || status=$?
done
echo "status $status"
if [[ $status -eq 75 ]]; then
  scontrol requeue "$SLURM_JOB_ID"
  sleep 60
fi
exit "$status"
"""
# A step that takes a while, so that there is time to act before the run is through.
MODEL = ("--run.steps", STEPS, "--model.width", "64", "--model.context", "32", "--batch.global", "16",
         "--checkpoint.every", "50", "--checkpoint.keep", "1000")


class Requeue(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(Cluster("--nodes", "5", "--cpus", "4"))
        cls.folder = Path(tempfile.mkdtemp(prefix="trireme_slurm."))
        cls.addClassCleanup(shutil.rmtree, cls.folder, True)
        cls.trireme = Program(cls.program, cls.folder)
        cls.limited = cls.submit("limited", "-N1", "-w", "n5", "--time=1", steps=ENDLESS)
        # Slurm itself sends this one, some time after the first twenty seconds.
        cls.asked = cls.submit("asked", "-N1", "-w", "n5", "--time=2", "--signal=USR1@100", steps=ENDLESS)
        cls.cluster.call("srun", "--mpi=pmi2", "-w", "n1,n2,n3", *cls.trireme.train("whole", *MODEL))
        cls.whole = cls.trireme.curve("whole")
        assert len(cls.whole) == STEPS

    @classmethod
    def submit(cls, run, *options, steps=STEPS, resume="auto", more=()):
        command = cls.trireme.train(run, *MODEL, "--run.steps", steps, "--run.resume", resume, *more)
        return cls.cluster.sbatch(SCRIPT.replace("COMMAND", " ".join(command)), "--job-name", run, *options)

    def wait_for_steps(self, run, job, count):
        self.cluster.wait_for(f"{count} steps of {run}", lambda: self.trireme.steps(run) >= count,
                              show=lambda: self.cluster.log(job))

    def expect_same_curve(self, run, job, restarts):
        log = self.cluster.log(job)
        self.assertEqual(self.trireme.curve(run), self.whole, log)
        self.assertEqual(log.count("\nstart ") + log.startswith("start "), restarts + 1, log)
        self.assertEqual(log.count("going on from "), restarts, log)

    def expect_same_weights(self, run, whole, steps):
        for step in steps:
            name = f"checkpoints/step-{step:08d}.h5"
            differ = subprocess.run([self.difference, "--bits", self.folder / whole / name, self.folder / run / name],
                                    check=True, capture_output=True, text=True)
            self.assertEqual(differ.stdout, "", f"{run}, step {step}")

    def drain(self, node):
        self.cluster.call("scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=test")

    def test_requeue_to_other_nodes(self):
        # The job moves from one leaf switch to two and back. The first node goes: rank 0 moves too, and with it who
        # holds the run folder. A flag is repeated, what it did is not.
        self.addCleanup(self.cluster.resume_nodes)
        self.drain("n4")
        job = self.submit("elsewhere", "-N3", "--exclude=n5", resume="never", more=("--comm.tune", "true"))
        self.wait_for_steps("elsewhere", job, 60)
        self.cluster.resume_nodes()
        self.drain("n1")
        self.cluster.call("scontrol", "requeue", job)
        self.wait_for_steps("elsewhere", job, 150)
        self.cluster.resume_nodes()
        self.drain("n4")
        self.cluster.call("scontrol", "requeue", job)
        self.cluster.wait_for_state(job, "COMPLETED")
        log = self.cluster.log(job)
        self.assertEqual(re.findall(r"(?m)^start \d on (\S+)$", log), ["n[1-3]", "n[2-4]", "n[1-3]"], log)
        self.assertIn("an earlier start of this job followed run.resume never already", log)
        self.expect_same_curve("elsewhere", job, 2)
        # The places of the grid are ordered anew, algorithms are chosen and tuned anew, and no weight differs.
        events = [json.loads(line) for line in (self.folder / "elsewhere/events.jsonl").read_text().splitlines()]
        places = [event["places"] for event in events if event["event"] == "start"]
        self.assertEqual([[node in place for node in ("n1", "n4")] for place in places],
                         [[True, False], [False, True], [True, False]], places)
        self.assertEqual({event["event"] for event in events} & {"tuned"}, {"tuned"})
        # The checkpoint of step 100 is from two leaf switches, those before and after from one.
        self.expect_same_weights("elsewhere", "whole", range(50, STEPS + 1, 50))

    def test_requeue_on_half_the_nodes(self):
        bits = ("--run.same_bits", "true")
        self.cluster.call("srun", "--mpi=pmi2", "-N4", "--exclude=n5", *self.trireme.train("four", *MODEL, *bits))
        whole = self.trireme.curve("four")
        job = self.submit("half", "-N4", "--exclude=n5", more=bits)
        self.wait_for_steps("half", job, 60)
        # Held, so that Slurm does not start it on four nodes again.
        self.cluster.call("scontrol", "requeuehold", job)
        self.cluster.wait_for_state(job, "PENDING")
        self.cluster.call("scontrol", "update", f"JobId={job}", "NumNodes=2", "NumTasks=2")
        self.cluster.call("scontrol", "release", job)
        self.cluster.wait_for_state(job, "COMPLETED")
        log = self.cluster.log(job)
        self.assertIn("grid       4 x 1 x 1", log)
        self.assertIn("grid       2 x 1 x 1", log)
        self.assertEqual(self.trireme.curve("half"), whole, log)
        self.expect_same_weights("half", "four", [STEPS])

    def test_signal(self):
        job = self.submit("signal", "-N3", "--exclude=n5")
        self.wait_for_steps("signal", job, 60)
        self.cluster.call("scancel", "--signal=USR1", job)
        self.cluster.wait_for_state(job, "COMPLETED")
        self.assertIn("stopped by SIGUSR1 (as before a job's time limit) after step", self.cluster.log(job))
        self.expect_same_curve("signal", job, 1)

    def test_preemption(self):
        job = self.submit("preempted", "-N3", "-w", "n1,n2,n3")
        self.wait_for_steps("preempted", job, 60)
        other = self.cluster.sbatch("#!/bin/sh\nsleep 1\n", "-p", "urgent", "-N3", "-w", "n1,n2,n3", "--exclusive")
        self.cluster.wait_for_state(other, "COMPLETED")
        self.cluster.wait_for_state(job, "COMPLETED")
        self.expect_same_curve("preempted", job, 1)

    def test_signal_before_the_time_limit(self):
        log = lambda: self.cluster.log(self.asked)
        self.cluster.wait_for("the restart", lambda: "going on from" in log(), 150, show=log)
        found = re.search(r"stopped by SIGUSR1 \(as before a job's time limit\) after step (\d+);", log())
        self.assertIsNotNone(found, log())
        self.assertIn(f"step-{int(found[1]):08d}.h5, step {found[1]}\n", log())
        self.cluster.call("scancel", self.asked)

    def test_time_limit(self):
        log = lambda: self.cluster.log(self.limited)
        self.cluster.wait_for("the restart", lambda: "going on from" in log(), 150, show=log)
        found = re.search(r"stopped before the job's time limit after step (\d+);", log())
        self.assertIsNotNone(found, log())
        stopped = int(found[1])
        self.assertIn(f"step-{stopped:08d}.h5, step {stopped}\n", log())
        self.wait_for_steps("limited", self.limited, stopped + 20)
        self.cluster.call("scancel", self.limited)
        # The same steps without a stop, from a checkpoint before it.
        before = (stopped - 1) // 50 * 50
        self.cluster.call("srun", "--mpi=pmi2", "-w", "n3", *self.trireme.train(
            "unlimited", *MODEL, "--run.steps", stopped + 20, "--run.resume",
            self.folder / f"limited/checkpoints/step-{before:08d}.h5"))
        self.assertEqual(self.trireme.curve("limited")[before:stopped + 20],
                         self.trireme.curve("unlimited"))


if __name__ == "__main__":
    Requeue.program = sys.argv.pop(1)
    Requeue.difference = sys.argv.pop(1)
    main()
