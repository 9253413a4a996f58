#!/usr/bin/env python3
"""Trains a very small GPT whose gradients travel in few bits, and does with the run what people do.

usage: compress_test.py TRIREME MPIEXEC CHECKPOINT_DIFFERENCE
"""
import json
import shutil
import subprocess
import sys
from pathlib import Path
import unittest

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/support"))
from cli_testing import ProgramTest  # noqa: E402

FLAGS = ("--model.layers 2 --model.width 32 --model.heads 2 --model.context 16 --batch.global 8 --batch.micro 2 "
         "--optim.lr 0.003 --schedule.name constant --schedule.warmup 2 --data.train data/train.h5 --run.steps 6 "
         "--checkpoint.every 3 --eval.every 0 --check.copies 1 --log.every 1000 --comm.timeout 60 --run.threads 1 "
         "--run.device cpu --comm.compress int8").split()
ROUNDS = "results will agree to rounding, not to the bit: "
NAMES_MEAN = "each data replica goes on with the mean of what comm.compress has lost on all of them"


class Compress(ProgramTest):
    mpiexec = ""
    difference = Path()

    def setUp(self):
        super().setUp()
        text = " ".join(str(i * i % 997) for i in range(2000))
        (self.folder / "text.txt").write_text(text, encoding="utf-8")
        self.expect_done("prepare", "text.txt", "--output", "data", "--tokenizer", "byte")

    def train(self, run, *more, ranks=2):
        last = dict(zip(FLAGS[::2], FLAGS[1::2])) | dict(zip(more[::2], more[1::2]))
        before = [self.mpiexec, "-n", ranks] if ranks > 1 else ()
        return self.expect_done("train", "--run.folder", run, *(word for pair in last.items() for word in pair),
                                before=before)

    def loss(self, run):
        lines = (self.folder / run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        return json.loads(lines[-1])["loss"]

    def from_step_3(self, run, of="run"):
        shutil.copytree(self.folder / of, self.folder / run)
        (self.folder / run / "checkpoints/step-00000006.h5").unlink()
        return run

    def expect_equal(self, one, other):
        paths = [self.folder / run / "checkpoints/step-00000006.h5" for run in (one, other)]
        done = subprocess.run([self.difference, "--bits", *paths], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout), (0, ""), (one, other))

    def test_goes_on(self):
        said = self.train("run")
        self.assertIn("as int8 between data replicas, with error feedback", said)
        self.train("shards", "--shard.stage", 1)
        self.expect_equal("run", "shards")
        said = self.train(self.from_step_3("again"))
        self.assertIn(ROUNDS + NAMES_MEAN, said)
        self.assertAlmostEqual(self.loss("again"), self.loss("run"), delta=2e-3)
        said = self.train(self.from_step_3("four"), ranks=4)
        self.assertIn(NAMES_MEAN, said)
        self.assertAlmostEqual(self.loss("four"), self.loss("run"), delta=2e-3)
        said = self.train(self.from_step_3("alone"), ranks=1)
        self.assertIn("comm.compress does nothing: there is one data replica", said)
        self.assertIn("what comm.compress has lost of gradients so far is dropped", said)
        said = self.train("alone", "--run.steps", 8)
        self.assertIn("what comm.compress has lost so far is not known: it begins with nothing", said)

    def test_works_on_grids(self):
        for name, *more in (("tensor", "--grid.tensor", 2, "--grid.sequence_parallel", "true"),
                            ("stages", "--grid.pipeline", 2, "--shard.stage", 1),
                            ("islands", "--grid.islands", 2, "--sync.every", 2)):
            self.train("run" + name, *more, ranks=4)
            if name == "stages":  # goes on as the others
                continue
            self.assertIn(NAMES_MEAN, self.train(self.from_step_3(name, "run" + name), *more, ranks=4))
            self.assertAlmostEqual(self.loss(name), self.loss("run" + name), delta=5e-3)


if __name__ == "__main__":
    ProgramTest.program = Path(sys.argv.pop(1)).resolve()
    Compress.mpiexec = sys.argv.pop(1)
    Compress.difference = Path(sys.argv.pop(1)).resolve()
    unittest.main()
