#!/usr/bin/env python3
"""A checkpoint on a slow disk is no hang.

usage: slow_disk_test.py TRIREME MPIEXEC SLOW_DISK (the library of tests/support/slow_disk.cc)
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TRIREME, MPIEXEC, SLOW_DISK = sys.argv[1:4]
TIMEOUT = 3  # seconds, of comm.timeout
# 12.7 million parameters, 152 MB a checkpoint: at the 50 MB/s that are assumed of a file system
# that nobody has measured, four times its time are 12 s more.
MODEL = ("--model.layers 1 --model.width 1024 --model.heads 8 --model.context 16 --batch.global 2 --batch.micro 1 "
         f"--threads 1 --run.steps 1 --eval.every 0 --comm.timeout {TIMEOUT}").split()


class SlowDisk(unittest.TestCase):
    def test_a_checkpoint_may_take_longer_than_comm_timeout(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "text.txt").write_text("A trireme has three banks of oars.\n" * 200)
            subprocess.run([TRIREME, "prepare", "--input", folder / "text.txt", "--output", folder / "data",
                            "--tokenizer", "byte"], check=True, capture_output=True)
            done = subprocess.run([MPIEXEC, "-n", "2", TRIREME, "train", "--data.train", folder / "data/train.h5",
                                   "--run.folder", folder / "run", *MODEL],
                                  capture_output=True, text=True, timeout=100,
                                  env={**os.environ, "LD_PRELOAD": SLOW_DISK,
                                       "SLOW_DISK_SECONDS": str(TIMEOUT + 1)})
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertTrue((folder / "run/checkpoints/step-00000001.h5").exists())
            events = [json.loads(line) for line in (folder / "run/events.jsonl").read_text().splitlines()]
            seconds = [event["seconds"] for event in events if event["event"] == "checkpoint"]
            self.assertGreater(seconds[0], TIMEOUT)  # the disk was slow indeed


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
