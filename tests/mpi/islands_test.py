#!/usr/bin/env python3
"""Trains a very small GPT on islands that meet every few steps, and does with the run what people do.

usage: islands_test.py TRIREME MPIEXEC CHECKPOINT_DIFFERENCE
"""
import json
import math
import os
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
         "--batch.global 4 --batch.micro 2 --optim.lr 0.003 --schedule.name constant --schedule.warmup 2 "
         "--data.train data/train.h5 --data.validation data/validation.h5 --run.steps 7 --checkpoint.every 1 "
         "--checkpoint.keep 100 --eval.every 0 --log.every 1000 --comm.timeout 60 --run.threads 1 "
         "--run.device cpu --grid.islands 2 --sync.every 3").split()
# Meetings are after steps 3 and 6. Of two fragments one is on its way from 3 to 4 and from 6, the other from 4 to 5.
MEETINGS = {"nesterov": (), "average": ("--sync.outer", "average"),
            "fragments": ("--sync.fragments", 2, "--sync.delay", 1), "first": ("--sync.first", 3)}


class Islands(ProgramTest):
    mpiexec = ""
    difference = Path()

    def setUp(self):
        super().setUp()
        words = [a + b for a in ("ro", "sa", "mi", "te", "lu") for b in ("wing", "ls", "st", "r")]
        text = " ".join(words[(i * i + i // 7) % len(words)] for i in range(3000))
        (self.folder / "text.txt").write_text(text, encoding="utf-8")
        self.expect_done("prepare", "text.txt", "--output", "data", "--tokenizer", "byte", "--validation", "tail:1000")

    def on(self, ranks):
        return [self.mpiexec, "-n", ranks] if ranks > 1 else ()

    def flags(self, run, *more):
        last = dict(zip(FLAGS[::2], FLAGS[1::2])) | dict(zip(more[::2], more[1::2]))
        return ["train", "--run.folder", run, *(word for pair in last.items() if pair[1] is not None for word in pair)]

    def train(self, run, *more, ranks=2):
        return self.expect_done(*self.flags(run, *more), before=self.on(ranks))

    def refused(self, status, message, *more, ranks=2):
        self.expect_refusal(status, message, *self.flags("refused", *more), before=self.on(ranks))
        self.assertFalse((self.folder / "refused").exists())

    def metrics(self, run):
        lines = (self.folder / run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    def losses(self, run):
        return [(line["loss"], line.get("island_losses")) for line in self.metrics(run)]

    def checkpoint(self, run, step=7):
        return self.folder / run / f"checkpoints/step-{step:08d}.h5"

    def back_to(self, run, step, of):
        """A copy of a whole run whose newest checkpoint is that of `step`."""
        shutil.rmtree(self.folder / run, ignore_errors=True)
        shutil.copytree(self.folder / of, self.folder / run)
        for path in (self.folder / run / "checkpoints").iterdir():
            if path != self.checkpoint(run, step):
                path.unlink()

    def expect_equal(self, one, other, step=7):
        done = subprocess.run([self.difference, "--bits", self.checkpoint(one, step), self.checkpoint(other, step)],
                              capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout), (0, ""), (one, other, step))

    def test_starts_again_at_each_step(self):
        for name, more in MEETINGS.items():
            self.train(name, *more)
            losses = self.losses(name)
            for step in (2, 3, 4) if name == "fragments" else (3, 4):
                self.back_to("again", step, of=name)
                self.assertIn("going on from", self.train("again", *more, "--checkpoint.every", 0))
                self.expect_equal(name, "again")
                self.assertEqual(self.losses("again"), losses, (name, step))
        # One island that looks back at what it was.
        self.train("one", "--grid.islands", 1, ranks=1)
        self.back_to("again", 4, of="one")
        self.train("again", "--grid.islands", 1, ranks=1)
        self.expect_equal("one", "again")
        # One that is its own mean is a run without islands.
        for run, more in (("mean", ("--sync.outer", "average")), ("plain", ("--sync.every", None))):
            self.train(run, *more, "--checkpoint.every", 0, "--grid.islands", 1, ranks=1)
        self.expect_equal("plain", "mean")
        self.what_people_do("fragments")
        self.other_numbers("nesterov", "one")

    def what_people_do(self, run):
        """With a checkpoint between meetings."""
        for line in self.metrics(run):
            one, other = line["island_losses"]
            self.assertNotEqual(one, other)
            self.assertAlmostEqual(line["loss"], (one + other) / 2, delta=1e-9)
        self.assertEqual([line["tokens"] for line in self.metrics(run)], [step * 2 * 4 * 16 for step in range(1, 8)])
        between = self.checkpoint(run, 4)
        self.assertIn("good", self.expect_done("checkpoint", "verify", run))
        self.assertRegex(self.expect_done("checkpoint", "inspect", between), r"(?m)^outer +\d+ tensors")
        self.assertIn("perplexity", self.expect_done("eval", "--checkpoint", between, "--threads", 1))
        self.assertEqual(self.run_program("generate", "--checkpoint", between, "--prompt", "ro", "--tokens", 2).returncode, 0)
        self.expect_done("export", "--checkpoint", between, "--output", "exported")
        self.assertRegex(self.expect_done("top", "--once", run), r"(?m)^islands +\d\.\d{4} \d\.\d{4}$")
        # The run's own evaluation has the same weights.
        self.back_to("again", 3, of=run)
        told = self.train("again", *MEETINGS[run], "--run.steps", 7, "--eval.every", 4)
        self.expect_equal(run, "again")
        for row in ("grid       1 x 1 x 1 (data x pipeline x tensor) of each island; 1 thread a rank",
                    "islands    2, which meet every 3 steps: outer step 0.7, momentum 0.9; 2 fragments, 1 step on the way",
                    "batch      4 sequences of 16 = 64 tokens a step of each island: 2 micro-batches of 2"):
            self.assertIn(row, told)
        self.assertIn("2 islands of grid 1 x 1 x 1", (self.folder / "again/events.jsonl").read_text(encoding="utf-8"))
        evaluated = [line["eval_loss"] for line in self.metrics("again") if "eval_loss" in line][0]
        self.assertRegex(self.expect_done("eval", "--checkpoint", between, "--threads", 1, "--batch.micro", 2),
                         rf"(?m)^loss +{evaluated:.6f}$", told)
        self.assertIn("starting from the weights", self.train("from", "--run.start_from", between, "--run.steps", 2))

    def other_numbers(self, run, one):
        """Goes on with another number of islands."""
        self.back_to("other", 4, of="fragments")
        self.assertIn("what islands had learned and was on its way is dropped",
                      self.train("other", "--sync.every", None, "--grid.islands", 1, ranks=1))
        for of, ranks, line in ((run, 1, "going on with 1 island in place of 2: each with the outer weights, and the "
                                 "mean of the islands' optimizer states"),
                                (run, 4, "going on with 4 islands in place of 2: each with"),
                                (run, -2, "going on with 2 islands that have equal weights up to sync.first: each with"),
                                (one, 2, "each of the 2 islands begins with these weights and this optimizer state")):
            self.back_to("other", 4, of=of)
            more = ("--sync.first", 18) if ranks < 0 else ()
            told = self.train("other", "--run.steps", 20, "--checkpoint.every", 0, "--grid.islands", abs(ranks), *more,
                              ranks=abs(ranks))
            self.assertEqual(told.count(line), 1, told)
            losses = [loss for loss, _ in self.losses("other")]
            self.assertTrue(all(map(math.isfinite, losses)))
            self.assertLess(losses[-1], losses[3] - 0.3)

    def test_same_bits_on_any_grid_of_the_islands(self):
        late, first = MEETINGS["fragments"], MEETINGS["first"]
        for name, more, grid in (("late", late, ("--grid.pipeline", 2)), ("first", first, ()),
                                 ("late", late, ("--grid.data", 2, "--shard.stage", 3))):
            same = (*more, "--run.same_bits", "true", "--run.steps", 5)
            if not (self.folder / name).exists():
                self.train(name, *same)
            # What is under way goes on elsewhere.
            self.back_to("grid", 2, of=name)
            self.train("grid", *same, *grid, ranks=4)
            for step in (3, 4, 5):
                self.expect_equal(name, "grid", step)
            self.assertEqual(self.losses("grid"), self.losses(name), grid)

    def rank(self, number):
        """The process of that rank, which runs in this test's folder."""
        for process in Path("/proc").iterdir():
            try:
                if process.name.isdigit() and (process / "cwd").resolve() == self.folder.resolve() and \
                        f"PMI_RANK={number}".encode() in (process / "environ").read_bytes().split(b"\0"):
                    return int(process.name)
            except OSError:
                continue
        raise AssertionError(f"no rank {number}")

    def started(self, run, *more):
        """A run of two islands of two ranks that does not end by itself, after some steps."""
        process = subprocess.Popen([*map(str, self.on(4)), str(self.program), *map(str, self.flags(
            run, *more, "--run.steps", 100000, "--checkpoint.every", 0, "--grid.pipeline", 2))], cwd=self.folder,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        metrics = self.folder / run / "metrics.jsonl"
        for _ in range(1200):
            if metrics.exists() and len(metrics.read_text(encoding="utf-8").splitlines()) >= 4:
                return process
            self.assertIsNone(process.poll())
            time.sleep(0.05)
        raise AssertionError("no steps")

    def test_a_signal_to_one_island(self):
        process = self.started("stopped", *MEETINGS["fragments"])
        os.kill(self.rank(3), signal.SIGTERM)
        told, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 75, told + errors)
        stopped = self.metrics("stopped")[-1]["step"]
        self.assertTrue(self.checkpoint("stopped", stopped).exists())
        more = (*MEETINGS["fragments"], "--run.steps", stopped + 3, "--checkpoint.every", 0, "--grid.pipeline", 2)
        self.train("stopped", *more, ranks=4)
        self.train("whole", *more, ranks=4)
        self.expect_equal("whole", "stopped", stopped + 3)
        self.assertEqual(self.losses("stopped"), self.losses("whole"))

    def test_bad_input(self):
        # bad input: `grid.islands` does not divide the ranks | grid.islands is 2, which does not divide 3 ranks into
        # equal islands; 1 would | 2
        self.refused(2, "grid.islands is 2, which does not divide 3 ranks into equal islands; 1 would", ranks=3)
        # bad input: islands that never meet | --sync.every 0: must be at least 1 and at most 1000000000 | 2
        self.refused(2, "--sync.every 0: must be at least 1 and at most 1000000000", "--sync.every", 0)
        # bad input: `sync.*` where nothing meets | sync.momentum is 0.5, but there is one island (grid.islands) and no
        # sync.every: leave it out | 2
        self.refused(2, "sync.momentum is 0.5, but there is one island (grid.islands) and no sync.every: leave it out",
                     "--grid.islands", 1, "--sync.every", None, "--sync.momentum", 0.5)
        # bad input: `sync.delay` of a whole round | sync.delay is 3, but a fragment meets again after 3 steps
        # (sync.every): give fewer | 2
        self.refused(2, "sync.delay is 3, but a fragment meets again after 3 steps (sync.every): give fewer",
                     "--sync.delay", 3)
        # bad input: more fragments than steps between meetings | sync.fragments is 4, but at most one meets after each
        # of the 3 steps of sync.every | 2
        self.refused(2, "sync.fragments is 4, but at most one meets after each of the 3 steps of sync.every",
                     "--sync.fragments", 4)
        # bad input: more fragments than blocks | sync.fragments is 9, but the model has 4 blocks | 2
        self.refused(2, "sync.fragments is 9, but the model has 4 blocks", "--sync.every", 30, "--sync.fragments", 9)
        # bad input: `sync.first` with captured steps | cuda.graphs captures one kind of step, and the first sync.first
        # steps are of another: leave one out | 2
        self.refused(2, "cuda.graphs captures one kind of step, and the first sync.first steps are of another: leave "
                     "one out", "--sync.first", 3, "--cuda.graphs", "true")
        # bad input: `comm.tune` with islands | comm.tune tries algorithms in the steps of all ranks, which islands
        # (grid.islands) do not have: leave it out | 2
        self.refused(2, "comm.tune tries algorithms in the steps of all ranks, which islands (grid.islands) do not "
                     "have: leave it out", "--comm.tune", "true")
        # bad input: a rate of meetings that average | sync.momentum is 0.5, but sync.outer is average: leave it out | 2
        self.refused(2, "sync.momentum is 0.5, but sync.outer is average: leave it out", "--sync.outer", "average",
                     "--sync.momentum", 0.5)


if __name__ == "__main__":
    ProgramTest.program = Path(sys.argv.pop(1)).resolve()
    Islands.mpiexec = sys.argv.pop(1)
    Islands.difference = Path(sys.argv.pop(1)).resolve()
    unittest.main()
