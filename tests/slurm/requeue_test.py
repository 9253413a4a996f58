#!/usr/bin/env python3
"""A run that Slurm stops goes on by itself, with the bits of a run that was never stopped: requeue, a signal,
the time limit, preemption.

    python3 requeue_test.py TRIREME

One cluster for all cases. The job with the time limit has a node of its own and runs beside the others, for
Slurm knows no limit below a minute.
"""
import shutil
import sys
import tempfile
import unittest
from pathlib import Path

from slurm_testing import Cluster, Program

STEPS = 600
# Stops on purpose (75): requeue. Slurm's SIGTERM also reaches srun, which would kill the step at once, and this
# shell: so srun runs where Slurm's signals to the batch script do not reach it.
SCRIPT = """#!/bin/bash
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=1
#SBATCH --mem=500
echo "start ${SLURM_RESTART_COUNT:-0} on $SLURM_JOB_NODELIST"
trap 'echo "asked to stop"; kill -USR1 "$step"' USR1
trap 'echo "being ended"' TERM
srun --mpi=pmi2 COMMAND &
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
         "--checkpoint.every", "50", "--eval.every", "0")


class Requeue(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(Cluster("--nodes", "4", "--cpus", "4"))
        cls.folder = Path(tempfile.mkdtemp(prefix="trireme_slurm."))
        cls.addClassCleanup(shutil.rmtree, cls.folder, True)
        cls.trireme = Program(cls.program, cls.folder)
        cls.limited = cls.submit("limited", "-N1", "-w", "n4", "--time=1", STEPS=10_000_000)
        cls.cluster.call("srun", "--mpi=pmi2", "-w", "n1,n2", *cls.trireme.train("whole", *MODEL))
        cls.whole = cls.trireme.curve("whole")
        assert len(cls.whole) == STEPS

    @classmethod
    def submit(cls, run, *options, STEPS=STEPS):
        command = cls.trireme.train(run, *MODEL, "--run.steps", STEPS)
        return cls.cluster.sbatch(SCRIPT.replace("COMMAND", " ".join(command)), "--job-name", run, *options)

    def wait_for_steps(self, run, job, count):
        self.cluster.wait_for(f"{count} steps of {run}", lambda: self.trireme.steps(run) >= count,
                              show=lambda: self.cluster.log(job))

    def expect_same_curve(self, run, job, restarts):
        log = self.cluster.log(job)
        self.assertEqual(self.trireme.curve(run), self.whole, log)
        self.assertEqual(log.count("\nstart ") + log.startswith("start "), restarts + 1, log)
        self.assertEqual(log.count("going on from "), restarts, log)

    def test_requeue_by_hand(self):
        job = self.submit("by_hand", "-N2", "--exclude=n4")
        self.wait_for_steps("by_hand", job, 120)
        self.cluster.call("scontrol", "requeue", job)
        self.cluster.wait_for_state(job, "COMPLETED")
        print(self.cluster.log(job))
        self.expect_same_curve("by_hand", job, 1)

    def test_signal(self):
        job = self.submit("signal", "-N2", "--exclude=n4")
        self.wait_for_steps("signal", job, 120)
        self.cluster.call("scancel", "--signal=USR1", job)
        self.cluster.wait_for_state(job, "COMPLETED")
        print(self.cluster.log(job))
        self.expect_same_curve("signal", job, 1)

    def test_preemption(self):
        job = self.submit("preempted", "-N2", "-w", "n1,n2")
        self.wait_for_steps("preempted", job, 120)
        other = self.cluster.sbatch("#!/bin/sh\nsleep 1\n", "-p", "urgent", "-N2", "-w", "n1,n2", "--exclusive")
        self.cluster.wait_for_state(other, "COMPLETED")
        self.cluster.wait_for_state(job, "COMPLETED")
        print(self.cluster.log(job))
        self.expect_same_curve("preempted", job, 1)

    def test_time_limit(self):
        log = lambda: self.cluster.log(self.limited)
        self.cluster.wait_for("the restart", lambda: "going on from" in log(), show=log)
        self.cluster.call("scancel", self.limited)
        print(self.cluster.log(self.limited))
        self.assertRegex(log(), r"stopped before the job's time limit after step (\d+)")


if __name__ == "__main__":
    Requeue.program = sys.argv.pop(1)
    unittest.main()
