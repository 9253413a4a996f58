#!/usr/bin/env python3
"""The lines of README.md under "What you see" work when they are copied, one after another, from the files that the
lines before them made. Only steps are fewer: flags that follow others win.

    python3 readme_lines_test.py TRIREME REPOSITORY MPIEXEC
"""
import random
import re
import shlex
import struct
import subprocess
import sys
import tempfile
import unittest
import zlib
from pathlib import Path

PROGRAM, REPOSITORY, MPIEXEC = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
FEWER = {"trireme train": "--run.steps 2 --eval.batches 1", "trireme generate": "--tokens 4"}


def lines_to_copy():
    page = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    section = page[page.index("## What you see"):page.index("## What it is")]
    blocks = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    return [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]


def noise(draws, size):
    """A PNG file of size x size pixels."""
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    rows = b"".join(b"\0" + draws.randbytes(3 * size) for _ in range(size))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


class ReadmeLines(unittest.TestCase):
    def setUp(self):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.folder = Path(made.name)
        draws = random.Random(1)
        words = ["".join(draws.choices("abcdefghijklmnoprstuvw", k=draws.randint(2, 9))) for _ in range(6000)]
        text = "\n".join(" ".join(draws.choices(words, k=12)) for _ in range(9000))
        (self.folder / "book.txt").write_text(text, encoding="utf-8")
        for name in ("cat", "dog"):
            (self.folder / "pets" / name).mkdir(parents=True)
            for i in range(80):
                (self.folder / f"pets/{name}/{i}.png").write_bytes(noise(draws, 36))
        (self.folder / "cat.jpg").write_bytes(noise(draws, 36))
        # The programs by their usual names, and a Slurm that takes every job.
        tools = self.folder / "tools"
        tools.mkdir()
        (tools / "trireme").symlink_to(PROGRAM.resolve())
        (tools / "mpiexec").write_text(f'#!/bin/sh\nexec {MPIEXEC} "$@"\n', encoding="utf-8")
        (tools / "sbatch").write_text("#!/bin/sh\ncat > sbatch.in\necho Submitted batch job 7\n", encoding="utf-8")
        for name in ("mpiexec", "sbatch"):
            (tools / name).chmod(0o755)

    def test_every_line(self):
        lines = lines_to_copy()
        self.assertGreater(len(lines), 10)
        for line in lines:
            command = line.split(" #")[0].rstrip()
            for beginning, flags in FEWER.items():
                if beginning in command:
                    command += " " + flags
            with self.subTest(command):
                done = subprocess.run(["bash", "-c", f"PATH={shlex.quote(str(self.folder / 'tools'))}:$PATH; {command}"],
                                      cwd=self.folder, capture_output=True, text=True, timeout=120, check=False,
                                      stdin=subprocess.DEVNULL)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("Submitted batch job 7", done.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
