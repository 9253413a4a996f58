#!/usr/bin/env python3
"""Trains a very small model, and runs `trireme eval` and `trireme generate` on it.

    python3 cli_inference_test.py TRIREME MPIEXEC
"""
import re
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
from cli_testing import ProgramTest  # noqa: E402


class Inference(ProgramTest):
    mpiexec = ""

    def test_on_ranks(self):
        data = self.prepare() / "train.h5"
        self.expect_done("train", "--model.preset", "test-gpt", "--model.vocabulary", 257,
                         "--data.train", data, "--run.steps", 4, "--batch.global", 4)
        two = [self.mpiexec, "-n", 2]
        losses = set()
        for grid in ((), ("--grid.tensor", 2), ("--grid.pipeline", 2)):
            text = self.expect_done("eval", "--checkpoint", "run", "--data", data, *grid,
                                    before=two)
            losses.add(round(float(re.search(r"(?m)^loss +(\S+)$", text)[1]), 4))
        self.assertEqual(len(losses), 1)

        generate = ("generate", "--checkpoint", "run", "--tokens", 5, "--temperature", 0)
        alone = self.run_program(*generate, "--prompt", "Line", environment={})
        self.assertEqual(alone.returncode, 0, alone.stderr)
        self.assertTrue(alone.stdout.startswith("Line"), alone.stdout)
        for grid in ("--grid.tensor", "--grid.pipeline"):
            self.assertEqual(self.run_program(*generate, "--prompt", "Line", grid, 2,
                                              before=two).stdout, alone.stdout)
        self.assertEqual(self.run_program(*generate, before=two, text=b"Line\nLine\n").stdout,
                         2 * alone.stdout)

        self.expect_refusal(4, "nothing: there is no such file or folder", "eval", "--checkpoint",
                            "nothing", before=two)
        self.expect_refusal(2, "grid.data is 2, but there is 1 prompt", *generate, "--prompt", "a",
                            before=two)
        self.expect_refusal(2, "--prompt is empty", *generate, "--prompt", "")
        self.expect_refusal(2, "line 1 of standard input is empty", *generate, text=b"\na\n")
        self.expect_refusal(2, "standard input holds no prompt", *generate)
        self.expect_done("prepare", "text.txt", "--output", "other", "--tokenizer", "bpe:300")
        self.expect_refusal(3, "other/train.h5 has a vocabulary of 300 tokens, the model of",
                            "eval", "--checkpoint", "run", "--data", "other/train.h5", before=two)


if __name__ == "__main__":
    ProgramTest.program = Path(sys.argv.pop(1)).resolve()
    Inference.mpiexec = sys.argv.pop(1)
    unittest.main()
