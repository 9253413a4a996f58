#!/usr/bin/env python3
"""jobs/hybrid.sh in a short form: a few steps of a narrow model on some small pictures.

    python3 hybrid_slurm_test.py TRIREME
"""
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
import zlib
from pathlib import Path

from slurm_testing import SKIPPED, Cluster, NoCluster, clean_environment, main

SCRIPT = Path(__file__).parents[2] / "jobs/hybrid.sh"
GRIDS = ("1x1", "4x1", "1x4", "2x2")


def png(number, label):
    """32 x 32 pixels in stripes that lie in class 0 and stand in class 1."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + bytes(255 if ((x, y)[label] + number) // (2 + number % 3) % 2 else number % 100
                                  for x in range(32) for _ in range(3)) for y in range(32))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 32, 32, 8, 2, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


class Hybrid(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="trireme_slurm."))
        cls.folder.chmod(0o755)
        cls.addClassCleanup(shutil.rmtree, cls.folder, True)
        for split, count in (("train", 70), ("test", 6)):
            for label, name in enumerate(("lying", "upright")):
                folder = cls.folder / "pictures" / split / name
                folder.mkdir(parents=True)
                for i in range(count):
                    (folder / f"{i}.png").write_bytes(png(i, label))

    def hybrid(self, *arguments, status=0):
        done = subprocess.run([SCRIPT, "--program", self.program, "--folder", self.folder / "hybrid", *arguments],
                              env=clean_environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=500, check=False)
        if done.returncode == SKIPPED:
            raise NoCluster(done.stderr)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout if status == 0 else done.stderr

    def test_a_short_form(self):
        narrow = ("--", "--model.width_multiple", "0.25", "--run.device", "cpu")
        short = ("--images", self.folder / "pictures", "--epochs", "1", "--steps", "3", "--measure", "2", "--repeats",
                 "1", *narrow)
        output = self.hybrid(*short)
        self.assertIn("3 steps on 4 grids: every loss has the same bits", output)
        runs = self.folder / "hybrid/grids"
        losses = []
        for grid in GRIDS:
            lines = [json.loads(line) for line in (runs / grid / "metrics.jsonl").read_text().splitlines()]
            losses.append([line["loss"] for line in lines])
        self.assertEqual([len(loss) for loss in losses], [3] * 4)
        self.assertEqual(losses, [losses[0]] * 4)
        # One node on its own, and the same node among four, have the same share of this host.
        points = {path.parent.name: json.loads(path.read_text()) for path in
                  (self.folder / "hybrid/scale/points").glob("*/result.json")}
        self.assertEqual(sorted(points), [f"strong-{name}-r1" for name in
                                          ("n1-d1p1t1", "n4-d1p4t1", "n4-d2p2t1", "n4-d4p1t1")])
        share = float(re.search(r"each node has the time of ([\d.]+) processors\n", output)[1])
        # Less where the host's own control group has less than its processors.
        self.assertLessEqual(share, len(os.sched_getaffinity(0)) / 4 + 0.001)
        quota = min(1.0, share)
        for name, point in points.items():
            self.assertAlmostEqual(point["ran_on"]["processors"], quota * (4 if "-n4-" in name else 1), places=2, msg=name)
        report = (self.folder / "hybrid/report.md").read_text(encoding="utf-8")
        self.assertTrue(output.endswith(report))
        rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in report.splitlines() if line.startswith("|")]
        accuracy = json.loads((self.folder / "hybrid/accuracy/metrics.jsonl").read_text().splitlines()[-1])
        self.assertIn(["1", str(accuracy["step"]), f"{accuracy['eval_top1']:.4f}"], rows)
        table = {row[1]: row for row in rows if row[1] in GRIDS}
        self.assertEqual(sorted(table), sorted(GRIDS))
        for grid, row in table.items():
            self.assertEqual(len(row), 9, row)
            nodes = 1 if grid == "1x1" else 4
            name = f"strong-n{nodes}-d{grid[0]}p{grid[2]}t1-r1"
            self.assertEqual(row[:2], [str(nodes), grid])
            # It comes from a rate of six digits.
            self.assertAlmostEqual(float(row[2]), points[name]["step_s"], delta=0.002 + 1e-5 * points[name]["step_s"])
            speedup = points["strong-n1-d1p1t1-r1"]["step_s"] / points[name]["step_s"]
            self.assertAlmostEqual(float(row[3]), speedup, delta=0.01)
            self.assertRegex(row[5], r"^\d+\.\d % \(\d+\.\d{3} s\)$")
            self.assertAlmostEqual(float(row[6].split()[0]), 3907 * points[name]["step_s"], delta=2.5 * 3.907)
            self.assertEqual(len(row[7].split()), nodes, row[7])
            self.assertTrue(all(int(mib) > 5 for mib in row[7].split()), row[7])
        # The same command finds all of it done, and says the same.
        self.assertEqual(self.hybrid(*short).split("# MobileNetV2")[1], report.split("# MobileNetV2")[1])
        self.assertRegex(report, rf"(?m)^Nodes: .*; quota of a node: {share:g}$")
        # Another loss on one grid would be seen.
        path = runs / "2x2/metrics.jsonl"
        path.write_text(re.sub(r'"loss":[^,]*', '"loss":1.25', path.read_text(), count=1))
        # bad input: `hybrid.sh`: losses that differ between grids | the losses of 2x2 differ from those of 1x1:
        # compare metrics.jsonl in ... | 1
        self.assertIn("hybrid: the losses of 2x2 differ from those of 1x1: compare metrics.jsonl in ",
                      self.hybrid(*short, status=1))
        self.assertFalse((self.folder / "hybrid/equal").exists())

    def test_what_is_wrong_is_said(self):
        for arguments, status, message in (
                # bad input: `hybrid.sh`: an unknown option, one without its value, a number out of range | no option is
                # called '...'; ... needs a value; --steps must be a number of at least 0, not '...' | 2
                (("--step", "3"), 2, "no option is called '--step'; --help shows all of them"),
                (("--steps",), 2, "--steps needs a value; --help shows all options"),
                (("--steps", "-3"), 2, "--steps must be a number of at least 0, not '-3'"),
                (("--measure", "1"), 2, "--measure must be 0 or at least 2, not '1'"),
                (("--repeats", "0"), 2, "--repeats must be a number of at least 1, not '0'"),
                (("--quota", "half"), 2, "--quota must be a number of processors or none, not 'half'"),
                (("--program", "none"), 2, "there is no program none: build the target trireme, or give --program"),
                # bad input: `hybrid.sh`: no pictures | the pictures are missing: give CIFAR-10 with --images, such as
                # cifar10-jpeg.tar.xz | 3
                ((), 3, "the pictures are missing: give CIFAR-10 with --images, such as cifar10-jpeg.tar.xz"),
                (("--images", "none"), 3, "cannot read the pictures 'none'")):
            with self.subTest(arguments=arguments):
                empty = ("--folder", self.folder / "empty")
                done = subprocess.run([SCRIPT, *empty, *([] if "--program" in arguments else ["--program", self.program]),
                                       *arguments], env=clean_environment(), stdin=subprocess.DEVNULL,
                                      capture_output=True, text=True, timeout=20, check=False)
                self.assertEqual((done.returncode, done.stderr), (status, f"hybrid: {message}\n"))

    def test_an_allocation_has_its_own_nodes(self):
        done = subprocess.run([SCRIPT, "--program", self.program, "--quota", "0.5"], capture_output=True, text=True,
                              env={**clean_environment(), "SLURM_JOB_ID": "7"}, timeout=20, check=False)
        # bad input: `hybrid.sh --quota`: in a Slurm allocation | --quota is for nodes that this script makes, but it
        # runs in an allocation: leave it out | 2
        self.assertEqual((done.returncode, done.stderr), (2, "hybrid: --quota is for nodes that this script makes, but it "
                                                             "runs in an allocation: leave it out\n"))

        # bad input: `hybrid.sh`: in a Slurm allocation of fewer than four nodes | the comparison needs 4 nodes, but the
        # allocation has 2: ask for 4, or give --steps 0 --measure 0 | 2
        done = subprocess.run([SCRIPT, "--program", self.program], capture_output=True, text=True, check=False, timeout=20,
                              env={**clean_environment(), "SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2"})
        self.assertEqual((done.returncode, done.stderr), (2, "hybrid: the comparison needs 4 nodes, but the allocation has "
                                                             "2: ask for 4, or give --steps 0 --measure 0\n"))

    def test_what_makes_a_cluster_impossible_is_found_first(self):
        folder = self.folder / "impossible"
        done = subprocess.run([SCRIPT, "--program", self.program, "--folder", folder, "--images", self.folder / "pictures",
                               "--quota", "0.01"], env=clean_environment(), stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=20, check=False)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("cluster.sh: --quota must be a number of processors from 0.1 to 999, such as 0.5, not '0.01'",
                      done.stderr)
        self.assertFalse(folder.exists())

    def test_script_is_clean(self):
        if not shutil.which("shellcheck"):
            self.skipTest("shellcheck is not installed")
        done = subprocess.run(["shellcheck", SCRIPT], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)


if __name__ == "__main__":
    with Cluster("--nodes", "1", "--leaves", "1"):
        pass  # skips where none can be made
    Hybrid.program = Path(sys.argv.pop(1)).resolve()
    main()
