#!/usr/bin/env python3
"""`trireme prepare` on several ranks as users start it: what is refused, a rank that dies, signals, training.

    python3 prepare_program_test.py TRIREME MPIEXEC
"""
import hashlib
import os
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
from cli_testing import ProgramTest  # noqa: E402


class PrepareOnRanks(ProgramTest):
    mpiexec = ""

    def on(self, ranks):
        return [self.mpiexec, "-n", ranks]

    def write_text(self, megabytes):
        line = "A trireme has three banks of oars, and {} rowers row it over the sea.\n"
        (self.folder / "text.txt").write_text("".join(line.format(i) for i in range(14000 * megabytes)), encoding="utf-8")

    def hashes(self, folder):
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (self.folder / folder).iterdir()}

    def test_one_summary_and_the_same_shards(self):
        self.write_text(4)
        flags = ("text.txt", "--tokenizer", "byte", "--document-separator", r"\n", "--validation", "hash:0.1",
                 "--shards", 3, "--output")
        alone = self.expect_done("prepare", *flags, "alone")
        text = self.expect_done("prepare", *flags, "together", before=self.on(3))
        self.assertEqual(self.hashes("alone"), self.hashes("together"))
        self.assertEqual(sorted(self.hashes("alone")), [*(f"train-0000{i}-of-00003.h5" for i in (1, 2, 3)), "validation.h5"])
        def counts(said):
            return [line for line in said.splitlines() if not line.startswith(("time", "tokenizer", "files"))]
        self.assertEqual(counts(alone), counts(text))
        sizes = [path.stat().st_size for path in (self.folder / "alone").glob("train-*")]
        self.assertLess(max(sizes) - min(sizes), 20000)
        self.assertEqual(self.expect_done("data", "verify", "together").count(": good,"), 4)
        # The folder is what is trained and evaluated on.
        self.expect_done("train", "--data.train", "together", "--data.validation", "together", "--run.folder", "run",
                         "--model.layers", 1, "--model.width", 16, "--model.heads", 2, "--model.context", 8,
                         "--batch.global", 4, "--batch.micro", 2, "--run.steps", 2, "--run.threads", 1, "--eval.every", 2,
                         "--eval.batches", 2)
        # One file again: the others go.
        self.expect_done("prepare", "text.txt", "--tokenizer", "byte", "--output", "together", before=self.on(2))
        self.assertEqual(list(self.hashes("together")), ["train.h5"])

    def test_refusals(self):
        self.write_text(1)
        out = ("--tokenizer", "byte", "--output", "out")
        # bad input: `prepare`: standard input on several ranks | standard input (-) is for one process, not for 2
        # ranks: name files that all of them can read | 2
        self.expect_refusal(2, "standard input (-) is for one process, not for 2 ranks", "prepare", "-", *out,
                            before=self.on(2))
        self.expect_refusal(3, "none.txt: cannot be read: No such file or directory", "prepare", "none.txt", *out,
                            before=self.on(2))
        self.expect_refusal(5, "/proc/none: cannot be made", "prepare", "text.txt", "--tokenizer", "byte",
                            "--output", "/proc/none", before=self.on(2))
        self.assertFalse((self.folder / "out").exists())
        # bad input: `prepare` on nodes that do not share the output folder | out: on n2 it is not the folder that the
        # first rank writes to: give a folder that all nodes share (rank 1) | 5
        (self.folder / "other").mkdir()
        text = self.folder / "text.txt"
        self.expect_refusal(5, "it is not the folder that the first rank writes to", "prepare", text, *out,
                            before=[self.mpiexec, "-n", 1, self.program, "prepare", text, *out, ":",
                                    "-wdir", self.folder / "other", "-n", 1],
                            environment={"TRIREME_FILE_PATIENCE": "0.3"})
        self.assertFalse((self.folder / "out").exists())
        # A full disk: a file may not grow.
        self.write_text(12)
        for output, gone in (("out", "out"), ("new/deep/", "new")):
            self.expect_refusal(5, "File too large", "prepare", "text.txt", "--tokenizer", "byte", "--output", output,
                                before=[*self.on(2), "bash", "-c", 'ulimit -f 8000; exec "$@"', "bash"])
            self.assertFalse((self.folder / gone).exists())

    def start(self, ranks, *flags):
        """The job, and its ranks' process ids, once they tokenise."""
        job = subprocess.Popen([*map(str, self.on(ranks)), str(self.program), "prepare", "text.txt", "--output", "out",
                                *flags], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(job.stdout.close)
        spool = self.folder / "out" / f"train.h5.train.rank{ranks - 1}.tokens.partial"
        until = time.monotonic() + 60
        while not spool.exists():
            self.assertIsNone(job.poll())
            self.assertLess(time.monotonic(), until)
            time.sleep(0.01)
        proxies = subprocess.run(["pgrep", "-P", str(job.pid)], check=True, text=True, capture_output=True).stdout.split()
        found = subprocess.run(["pgrep", "-P", proxies[0]], check=True, text=True, capture_output=True).stdout.split()
        self.assertEqual(len(found), ranks)
        return job, [int(process) for process in found]

    def test_a_killed_rank_leaves_nothing_half(self):
        self.write_text(12)
        slow = ("--tokenizer", "bpe:300", "--threads", "1", "--validation", "tail:1000")
        self.expect_done("prepare", "text.txt", "--output", "out", "--tokenizer", "byte")
        before = self.hashes("out")
        job, ranks = self.start(2, *slow)
        os.kill(ranks[1], signal.SIGKILL)
        self.assertNotEqual(job.wait(timeout=60), 0)
        left = self.hashes("out")
        self.assertEqual({name: left.get(name) for name in before}, before)  # the earlier shards
        self.assertNotIn("validation.h5", left)
        # The next one takes over.
        self.expect_done("prepare", "text.txt", "--output", "out", "--tokenizer", "byte", before=self.on(2))
        self.assertEqual(self.hashes("out"), before)

    def test_a_signal_takes_everything_back(self):
        self.write_text(12)
        self.expect_done("prepare", "text.txt", "--output", "out", "--tokenizer", "byte")
        before = self.hashes("out")
        for number, told in ((signal.SIGTERM, (0, 1)), (signal.SIGINT, (0, 1)), (signal.SIGINT, (1,))):
            with self.subTest(signal=number, ranks=told):
                job, ranks = self.start(2, "--tokenizer", "bpe:300", "--threads", "1")
                for rank in told:
                    os.kill(ranks[rank], number)
                said = job.communicate(timeout=60)[0]
                self.assertEqual(job.returncode, 75, said)
                self.assertIn("out is as it was before", said)
                self.assertEqual(said.count("trireme: "), 1, said)
                self.assertEqual(self.hashes("out"), before)


if __name__ == "__main__":
    ProgramTest.program, PrepareOnRanks.mpiexec = Path(sys.argv[1]), sys.argv[2]
    unittest.main(argv=sys.argv[:1], verbosity=2)
