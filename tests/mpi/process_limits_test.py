#!/usr/bin/env python3
"""Limits of the system on a process: each command ends with a line and a documented status, or does without.

usage: process_limits_test.py TRIREME MPIEXEC THREAD_LIMIT (the library of tests/support/thread_limit.cc)
"""
import os
import resource
import shutil
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
from cli_testing import ProgramTest  # noqa: E402

MODEL = ("--model.layers", 1, "--model.width", 16, "--model.heads", 2, "--model.context", 16, "--batch.global", 4,
         "--batch.micro", 2, "--data.train", "data/train.h5", "--data.validation", "data/validation.h5")


class ProcessLimits(ProgramTest):
    mpiexec = thread_limit = ""

    def setUp(self):
        super().setUp()
        self.prepare("data", "--validation", "tail:2000")

    def under_thread_limit(self, threads, *arguments, before=()):
        return self.run_program(*arguments, before=[*before, "env", f"LD_PRELOAD={self.thread_limit}"],
                                environment={"THREAD_LIMIT": str(threads), "OMP_NUM_THREADS": "1"})

    def test_each_thread_may_be_refused(self):
        # bad input: a limit on threads (ulimit -u, pids.max) | no thread for computing (2 a rank): Resource temporarily
        # unavailable; ulimit -u allows ... | 71
        self.expect_done("train", *MODEL, "--run.folder", "trained", "--run.steps", 1, "--run.threads", 1)
        checkpoint = ("--checkpoint", "trained")
        for arguments in (("train", *MODEL, "--run.folder", "run", "--run.steps", 2, "--run.threads", 2),
                          ("eval", *checkpoint, "--data", "data/validation.h5", "--threads", 2),
                          ("export", *checkpoint, "--output", "exported"),
                          ("bench", "comm", "--to", "1K")):
            statuses = []
            for threads in (*range(8), 12):
                for written in ("run", "exported"):
                    shutil.rmtree(self.folder / written, ignore_errors=True)
                done = self.under_thread_limit(threads, *arguments)
                with self.subTest(command=arguments[0], threads=threads):
                    # 76: OpenMP gave a thread back, did not get it again, and called exit.
                    self.assertIn(done.returncode, (0, 71, 76), done.stderr)
                    if done.returncode == 71:
                        self.assertRegex(done.stderr, r"(?m)^trireme: .*(no thread for |MPI could not start).*ulimit -u")
                    elif done.returncode == 76:
                        self.assertRegex(done.stderr, r"(?m)^trireme: .* called exit\(1\)")
                statuses.append(done.returncode)
            self.assertIn(71, statuses, arguments)
            self.assertEqual(statuses[-1], 0, arguments)

    def test_several_ranks_that_get_too_few_threads_end_together(self):
        # Each runs twice: where ranks were just gone, mpiexec returned 1 or 9 in a tenth of the runs.
        for threads in (1, 2, 3, 4) * 2:
            with self.subTest(threads=threads):
                done = self.under_thread_limit(threads, "train", *MODEL, "--run.folder", "run", "--run.steps", 2,
                                               "--run.threads", 1, before=[self.mpiexec, "-n", 2])
                self.assertEqual(done.returncode, 71, done.stderr)
                self.assertRegex(done.stderr, "no thread for |MPI could not start")

    def test_prepare_does_without_threads(self):
        with_threads = (self.folder / "data/train.h5").read_bytes()
        done = self.under_thread_limit(0, "prepare", "text.txt", "--output", "alone", "--tokenizer", "byte",
                                       "--threads", 4, "--validation", "tail:2000")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(len((self.folder / "alone/train.h5").read_bytes()), len(with_threads))
        self.expect_done("data", "verify", "alone/train.h5")

    def test_a_limit_on_the_size_of_files(self):
        # bad input: a limit on the size of files (ulimit -f) | ...: cannot be written: File too large | 5
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
        self.expect_refusal(5, "File too large", "prepare", "text.txt", "--output", "large", "--tokenizer",
                            "byte", preexec_fn=limit)

    def test_a_limit_on_addresses(self):
        # bad input: a limit on addresses (ulimit -v) that leaves too little memory | out of memory on cpu: ... | 71
        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20))
        self.expect_refusal(71, "out of memory on cpu", "bench", "ops", "--preset", "test-gpt",
                            "--batch", 1 << 16, "--repeats", 1, "--threads", 1, preexec_fn=limit)


class ControlGroups(ProgramTest):
    """Runs in control groups of the system, where this process may make some."""
    mpiexec = ""

    def setUp(self):
        super().setUp()
        self.prepare("data", "--validation", "tail:2000")

    def group(self, kind, **limits):
        """A new group with limits, by the names of their files in version 1 and 2; returns what starts a program in it."""
        old = Path("/sys/fs/cgroup") / kind
        folder = (old if old.is_dir() else Path("/sys/fs/cgroup")) / f"trireme_test_{os.getpid()}"
        try:
            folder.mkdir()
            self.addCleanup(folder.rmdir)
            for names, value in limits.values():
                file, = (folder / name for name in names if (folder / name).exists())
                file.write_text(value, encoding="utf-8")
        except (OSError, ValueError) as why:
            self.skipTest(f"no control group for {kind} can be made here: {why}")
        return ["sh", "-c", f'echo $$ > {folder}/cgroup.procs; exec "$@"', "sh"]

    def memory_group(self, mib):
        return self.group("memory", all=(("memory.limit_in_bytes", "memory.max"), str(mib << 20)))

    def train(self, width, before):
        return self.run_program("train", "--model.layers", 4, "--model.width", width, "--model.heads", 4,
                                "--model.context", 16, "--batch.global", 4, "--batch.micro", 2, "--data.train",
                                "data/train.h5", "--run.folder", "run", "--run.steps", 1, "--eval.every", 0, before=before)

    def test_a_run_that_exceeds_the_memory_is_refused(self):
        inside = self.memory_group(200)
        # bad input: a run that needs more than the limit of its control group | memory: 1 rank in a control group need
        # about 1048 MiB (...), its limit is 200 (.../memory.max): ask for more (Slurm's --mem, ...), ... | 2
        done = self.train(768, inside)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertRegex(done.stderr, r"memory: 1 rank in a control group need about \d+ MiB .*, its limit is 200 \(/sys/fs/")
        # Two that share a group need it twice; one alone has room.
        done = self.train(320, [*inside, self.mpiexec, "-n", 2])
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertRegex(done.stderr, r"memory: 2 ranks in a control group need about \d+ MiB .*, its limit is 200 \(/sys/fs/")
        done = self.train(320, inside)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("the control group's limit is 200 MiB", self.run_program("doctor", before=inside).stdout)

    def test_threads_are_those_that_the_quota_keeps_busy(self):
        inside = self.group("cpu", quota=(("cpu.cfs_quota_us", "cpu.max"), "100000"))
        done = self.train(32, inside)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("; 1 thread a rank\n", done.stdout + done.stderr)


if __name__ == "__main__":
    ProgramTest.program, ProcessLimits.mpiexec, ProcessLimits.thread_limit = sys.argv[1:4]
    ControlGroups.mpiexec = ProcessLimits.mpiexec
    unittest.main(argv=sys.argv[:1], verbosity=2)
