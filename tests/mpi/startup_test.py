#!/usr/bin/env python3
"""What the start of the program costs as ranks are added: which rank opens which file, and how many messages
each rank sends.

usage: startup_test.py TRIREME MPIEXEC RECORDER (the library of tests/support/startup_recorder.cc)
"""
import math
import shutil
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
from cli_testing import ProgramTest  # noqa: E402

CONFIGURATION = """[model]
layers = 1
width = 16
heads = 2
context = 16
[batch]
global = 32
micro = 1
[data]
train = data/train.h5
validation = data/validation.h5
[run]
folder = run
steps = 2
threads = 1
[job]
nodes = 7
"""


class Startup(ProgramTest):
    mpiexec = recorder = ""

    def setUp(self):
        super().setUp()
        self.prepare("data", "--validation", "tail:2000")
        (self.folder / "run.ini").write_text(CONFIGURATION, encoding="utf-8")

    def record(self, ranks, *arguments, status=0):
        """What each rank did: [{"open": paths, "hdf5": paths, "sends": n, "collectives": n}]."""
        folder = self.folder / "record"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        done = self.run_program(*arguments, before=[self.mpiexec, "-n", ranks, "env", f"LD_PRELOAD={self.recorder}"],
                                environment={"STARTUP_RECORD": str(folder), "OMP_NUM_THREADS": "1"})
        self.assertEqual(done.returncode, status, done.stderr)
        result = []
        for rank in range(ranks):
            one = {"open": [], "hdf5": [], "sends": 0, "collectives": 0}
            for line in (folder / str(rank)).read_text(encoding="utf-8").splitlines():
                kind, what = line.split(" ", 1)
                if kind in ("sends", "collectives"):
                    one[kind] = max(one[kind], int(what))
                elif self.is_ours(what):
                    one[kind].append(what)
            result.append(one)
        return result

    def is_ours(self, path):
        """Libraries look for files of their own elsewhere, and for some that are not there."""
        whole = (self.folder / path).resolve()
        return whole.is_relative_to(self.folder.resolve()) and whole.is_file()

    def check_files(self, expected_of_first, *arguments):
        first, *others = self.record(4, *arguments)
        for name in expected_of_first:
            self.assertTrue(any(path.endswith(name) for path in first["open"]), (name, first["open"]))
        self.assertTrue(first["hdf5"])
        for rank, other in enumerate(others, 1):
            with self.subTest(arguments=arguments[0], rank=rank):
                # Rows of data and tensors are each rank's own; what describes them is read once.
                self.assertEqual([path for path in other["open"] if not path.endswith(".h5")], [])
                self.assertEqual(other["hdf5"], [])

    def test_one_rank_reads_what_all_need(self):
        train = ["train", "--config", "run.ini"]
        self.expect_done(*train)
        self.check_files(["run.ini", "train.h5", "step-00000002.h5", "lease.lock"], *train)
        self.check_files(["run.ini", "train.h5"], *train, "--run.steps", "3", "--checkpoint.every", "0")
        self.check_files(["step-00000003.h5"], "eval", "--checkpoint", "run", "--threads", "1")
        self.check_files(["step-00000003.h5"], "generate", "--checkpoint", "run", "--prompt", "a text", "--tokens", "2",
                         "--threads", "1", "--grid.data", "1", "--grid.tensor", "2")
        self.expect_done("scale", "--output", "study", "--nodes", "4", "--repeats", "1", "--steps", "2",
                         "--launcher", "mpiexec", "--config", "run.ini")
        self.check_files(["config.ini", "train.h5"], "scale", "--point", "study/points/strong-n4-d4p1t1-r1")

    def test_messages_grow_with_the_logarithm_of_the_ranks(self):
        # All steps are done, so what is left is the start: grid, data, model, run folder, checkpoint.
        train = ["train", "--config", "run.ini"]
        self.expect_done(*train)
        two = None
        for ranks in (2, 4, 8, 16, 32):
            done = self.record(ranks, *train)
            most = max(rank["sends"] for rank in done)
            made = {rank["collectives"] for rank in done}
            print(f"{ranks} ranks: {most} messages at most, {max(made)} of MPI's collectives", flush=True)
            two = two or (most, made)
            self.assertGreater(most, 0)
            self.assertLessEqual(most, 3 * math.log2(ranks) * two[0], f"{ranks} ranks")
            self.assertEqual(made, two[1], f"{ranks} ranks")

    def test_a_fault_in_the_file_is_told_once(self):
        before = [self.mpiexec, "-n", 4]
        self.expect_refusal(2, "--config nowhere.ini: cannot be read: No such file", "train", "--config",
                            "nowhere.ini", before=before)
        self.expect_refusal(2, "did you mean --model.width?", "train", "--config", "nowhere.ini", "--model.widht",
                            "3", before=before)
        self.expect_refusal(2, "--run.steps 0: must be", "train", "--config", "run.ini", "--run.steps", "0",
                            before=before)
        (self.folder / "run.ini").write_text("[model]\nwidht = 3\n", encoding="utf-8")
        self.expect_refusal(2, "run.ini:2: unknown key model.widht", "train", "--config", "run.ini", before=before)
        (self.folder / "run.ini").write_text("[model]\nwidth = 16\n", encoding="utf-8")
        self.expect_refusal(2, "data.train is missing", "train", "--config", "run.ini", before=before)
        self.expect_refusal(2, "--point none: no point of a study is there", "scale", "--point", "none",
                            before=before)


if __name__ == "__main__":
    Startup.recorder = sys.argv.pop()
    Startup.mpiexec = sys.argv.pop()
    ProgramTest.program = Path(sys.argv.pop()).resolve()
    unittest.main()
