#!/usr/bin/env python3
"""Trains a very small GPT on data replicas whose shares of a step follow their speed, and on such stages.

usage: balance_test.py TRIREME MPIEXEC CHECKPOINT_DIFFERENCE
"""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
import unittest

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/support"))
from cli_testing import ProgramTest  # noqa: E402

FLAGS = ("--model.layers 2 --model.width 32 --model.heads 2 --model.context 16 --model.dropout 0.1 "
         "--batch.global 16 --batch.micro 2 --optim.name sgd --optim.lr 0.1 --schedule.name constant --schedule.warmup 2 "
         "--data.train data/train.h5 --run.steps 3 --checkpoint.every 0 --checkpoint.keep 100 --eval.every 0 "
         "--log.every 1000 --comm.timeout 60 --run.threads 1 --run.device cpu").split()
# Steps of about 20 ms where no replica stands still, in windows of two or three.
SLOW = ("--model.width 64 --model.context 64 --run.steps 20 --checkpoint.every 5 --batch.balance auto "
        "--log.stragglers 0.02").split()

ATTEMPTS = 4  # on a machine that others use, too, it may be the other replica that stands still


class Balance(ProgramTest):
    mpiexec = ""
    difference = Path()

    def setUp(self):
        super().setUp()
        self.prepare()

    def flags(self, run, *more):
        last = dict(zip(FLAGS[::2], FLAGS[1::2])) | dict(zip(more[::2], more[1::2]))
        return ["train", "--run.folder", run, *(word for pair in last.items() for word in pair)]

    def train(self, run, ranks, *more):
        return self.expect_done(*self.flags(run, *more), before=[self.mpiexec, "-n", ranks])

    def losses(self, run):
        lines = (self.folder / run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        return {line["step"]: (line["loss"], line["grad_norm"], line["tokens"]) for line in map(json.loads, lines)}

    def checkpoint(self, run, step):
        return self.folder / run / f"checkpoints/step-{step:08d}.h5"

    def expect_close(self, run, other, step):
        """Equal to rounding: each micro-batch was computed once, in both runs."""
        expected = self.losses(other)
        for number, (loss, norm, tokens) in self.losses(run).items():
            self.assertAlmostEqual(loss, expected[number][0], delta=1e-5)
            self.assertAlmostEqual(norm, expected[number][1], delta=1e-3)
            self.assertEqual(tokens, expected[number][2])
        done = subprocess.run([self.difference, self.checkpoint(run, step), self.checkpoint(other, step)],
                              capture_output=True, text=True, check=True)
        self.assertLess(float(done.stdout.split()[0]), 1e-5, (run, other, done.stdout))

    def test_shares_by_given_speeds(self):
        self.train("even", 2)
        told = self.train("listed", 2, "--batch.balance", "3,1", "--checkpoint.every", 1)
        self.assertIn("8 micro-batches of 2, over 2 data replicas: 6, 2\n", told)
        self.expect_close("listed", "even", 3)
        # Going on evenly, from a checkpoint between.
        for step in (2, 3):
            self.checkpoint("listed", step).unlink()
        self.assertIn("batch.balance was 3,1, is even", self.train("listed", 2, "--batch.balance", "even"))
        self.expect_close("listed", "even", 3)
        # Replicas of several stages, of which one has fewer micro-batches than stages.
        for schedule in ("1f1b", "zb-v"):
            told = self.train(schedule, 4, "--grid.pipeline", 2, "--grid.data", 2, "--grid.schedule", schedule,
                              "--batch.balance", "1e3,1", "--shard.stage", 1)
            self.assertIn("over 2 data replicas: 7, 1\n", told)
            self.expect_close(schedule, "even", 3)

    def test_stages_that_are_cut_elsewhere(self):
        """Embedding, two blocks and head; no cut changes a bit."""
        self.train("equal", 2, "--grid.pipeline", 2)
        told = self.train("listed", 2, "--grid.pipeline", 2, "--grid.cut", "1,3")
        self.assertIn("embedding | blocks.0 to head; schedule", told)
        told = self.train("rated", 2, "--grid.pipeline", 2, "--grid.cut", "auto", "--run.steps", 2)
        cut = re.search(r"(?m)^grid.cut auto: stages of (\d, \d) blocks, by [0-9.]+ to [0-9.]+ GFLOP/s in products$", told)
        self.assertTrue(cut, told)
        told = self.train("rated", 2, "--grid.pipeline", 2, "--grid.cut", "auto")
        self.assertIn(f"grid.cut auto: stages of {cut[1]} blocks, as before\n", told)
        self.assertNotIn("grid.cut was", told)
        for run in ("listed", "rated"):
            done = subprocess.run([self.difference, "--bits", self.checkpoint(run, 3), self.checkpoint("equal", 3)],
                                  capture_output=True, text=True, check=True)
            self.assertEqual(done.stdout, "", run)
        self.expect_refusal(2, "grid.cut lists 3 numbers, but there are 2 stages",
                            *self.flags("none", "--grid.pipeline", 2, "--grid.cut", "1,2,1"),
                            before=[self.mpiexec, "-n", 2])

    def slowed(self, run, *more):
        """A run whose second replica stands still for nine of ten parts of the time."""
        command = [str(word) for word in (self.program, *self.flags(run, *SLOW, *more))]
        report = 'echo $$ > slow.pid; exec "$@"'
        with subprocess.Popen([self.mpiexec, "-n", "1", *command, ":", "-n", "1", "sh", "-c", report, "sh", *command],
                              cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as job:
            pid = self.folder / "slow.pid"
            try:
                while job.poll() is None:
                    time.sleep(0.004)
                    if not pid.exists() or not pid.read_text(encoding="utf-8").strip():
                        continue
                    rank = int(pid.read_text(encoding="utf-8"))
                    os.kill(rank, signal.SIGSTOP)
                    time.sleep(0.04)
                    os.kill(rank, signal.SIGCONT)
            except ProcessLookupError:  # it has ended
                pass
            told = job.stdout.read()
        self.assertEqual(job.returncode, 0, told)
        pid.unlink()
        return told

    def test_shares_by_measured_speed(self):
        for _ in range(ATTEMPTS):
            shutil.rmtree(self.folder / "auto", ignore_errors=True)
            told = self.slowed("auto")
            self.assertIn("batch.balance auto: even shares at first\n", told)
            first = re.search(r"(?m)^batch.balance: shares of (\d+), (\d+) micro-batches in place of 4, 4: ", told)
            if first and int(first[1]) > int(first[2]):
                break
        self.assertTrue(first, told)
        self.assertGreater(int(first[1]), int(first[2]), told)
        events = [json.loads(line) for line in (self.folder / "auto/events.jsonl").read_text().splitlines()]
        changes = [event for event in events if event["event"] == "balance"]
        self.assertEqual(changes[0]["step"] % 5, 0)
        # A checkpoint has the shares that the next step has, also at a start.
        shares = {event["step"]: re.search(r"of (.*?) micro", event["detail"])[1] for event in changes}
        step = changes[0]["step"]
        for path in (self.folder / "auto/checkpoints").iterdir():
            if path != self.checkpoint("auto", step):
                path.unlink()
        told = self.train("auto", 2, *SLOW, "--log.stragglers", 100)
        self.assertIn(f"batch.balance auto: shares of {shares[step]} micro-batches, as before\n", told)
        self.assertNotIn("changed settings", told)
        # One of other replicas begins evenly.
        self.train("even", 1, *SLOW, "--batch.balance", "even", "--checkpoint.every", 0)
        self.expect_close("auto", "even", 20)
        self.checkpoint("auto", 20).rename(self.folder / "last.h5")
        told = self.train("fewer", 1, *SLOW, "--run.resume", "last.h5", "--run.steps", 21)
        self.assertIn("batch.balance auto: one data replica has nothing to balance\n", told)


if __name__ == "__main__":
    Balance.difference = Path(sys.argv.pop(3)).resolve()
    Balance.mpiexec = sys.argv.pop(2)
    ProgramTest.program = Path(sys.argv.pop(1)).resolve()
    unittest.main()
