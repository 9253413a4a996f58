#!/usr/bin/env python3
"""`trireme scale` as a user starts it, through mpiexec: a study and what it leaves; going on after an
interruption and after a fault; --dry-run; what it refuses.

usage: scale_test.py TRIREME
"""
import csv
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import unittest
import xml.etree.ElementTree as ElementTree
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
from cli_testing import ProgramTest  # noqa: E402

MODEL = ("--model.layers 1 --model.width 16 --model.heads 2 --model.context 16 --batch.global 8 "
         "--batch.micro 2 --threads 1 --steps 6 --warmup 2").split()
# At one node strong and weak scaling are the same.
NAMES = ("strong-n1-d1p1t1", "strong-n2-d2p1t1", "weak-n2-d2p1t1")


class Scale(ProgramTest):
    def setUp(self):
        super().setUp()
        self.prepare()
        self.study = self.folder / "study"

    def arguments(self, *more):
        flags = ["--data.train", "data/train.h5", "--output", "study", "--nodes", "1,2", "--launcher", "mpiexec",
                 *MODEL, *more]
        last = dict(zip(flags[::2], flags[1::2]))  # a flag may be given once only
        return ["scale", *(word for pair in last.items() for word in pair)]

    def results(self):
        return {path.parent.name: path.stat().st_mtime_ns for path in self.study.glob("points/*/result.json")}

    def table(self, name):
        with open(self.study / name, encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    def test_a_study(self):
        output = self.expect_done(*self.arguments("--mode", "strong,weak", "--repeats", "2"))
        self.assertEqual(set(self.results()), {f"{name}-r{r}" for name in NAMES for r in (1, 2)})
        # Rounds through all points, not one point after the other.
        order = [line.split()[1].rstrip(":") for line in output.splitlines() if "/6 " in line]
        self.assertEqual(order, [f"{name}-r{r}" for r in (1, 2) for name in NAMES])
        for words in ("strong, pipeline 1 x tensor 1", "weak, pipeline 1 x tensor 1", "report.html"):
            self.assertIn(words, output)
        self.assertRegex(output, r"Amdahl's law: |no law is fitted, because")  # as the machine is calm or not
        self.assertRegex(output, r"\nverdict, strong, pipeline 1 x tensor 1: [^\n]* node-hours per billion tokens "
                                 r"[^\n]*\nverdict, weak, pipeline 1 x tensor 1: [^\n]*\nreport: ")
        points = self.table("points.csv")
        self.assertEqual([(p["mode"], p["point"]) for p in points],
                         [(mode, f"{name}-r{r}") for r in (1, 2) for mode, name in zip(("both", "strong", "weak"), NAMES)])
        host = socket.gethostname()
        for point in points:
            self.assertEqual((point["steps"], point["job"], point["hosts"]), ("4", "", host))
            for key in ("tokens_per_s", "step_s", "checkpoint_s", "memory_bytes_per_s"):
                self.assertGreater(float(point[key]), 0, key)
            batch = 8 * (int(point["nodes"]) if point["mode"] == "weak" else 1)
            self.assertAlmostEqual(float(point["tokens_per_s"]) * float(point["step_s"]) / (batch * 16), 1,
                                   places=3)
        summary = self.table("summary.csv")
        self.assertEqual([(row["mode"], row["nodes"], row["repeats"]) for row in summary],
                         [("strong", "1", "2"), ("strong", "2", "2"), ("weak", "1", "2"), ("weak", "2", "2")])
        for row in summary:
            shares = sum(float(row[key]) for key in ("computation", "communication", "data", "checkpoint"))
            self.assertAlmostEqual(shares, 1, places=3)
            self.assertAlmostEqual(float(row["efficiency"]) * int(row["nodes"]), float(row["speedup"]), places=4)
        # What was measured at one node counts in both modes.
        for row, first in zip(summary, (0, 1, 0, 2)):
            mean = sum(float(p["tokens_per_s"]) for p in points[first::3]) / 2
            self.assertAlmostEqual(float(row["tokens_per_s"]) / mean, 1, places=4)
            self.assertAlmostEqual(float(row["node_hours_per_billion_tokens"]) * mean * 3600 / 1e9 / int(row["nodes"]), 1,
                                   places=4)
        page = self.page()
        self.assertIn("6 of 6 points", page)
        version = self.expect_done("version")
        for words in (version.splitlines()[0], re.search(r"^MPI +(.*)$", version, re.M)[1], f"hosts{host}\n", "jobsnone\n",
                      f"run bympiexec on {host} alone, whose processors stand for all nodes"):
            self.assertIn(words, page)
        # It ends with the verdict.
        self.assertRegex(page, r"points are measured\nVerdict\nstrong, [^\n]* node-hours per billion tokens [^\n]*\nweak, [^\n]*\n\nmodel")
        self.assertEqual([], list(self.study.glob("points/*/run/checkpoints")))
        # Once more: all is done, so nothing runs; more repeats run only what is new.
        before = self.results()
        for share, words in (("0.01", "efficient (at least 1 %) up to 2 nodes"), ("1", "efficient (at least 100 %)")):
            self.assertIn(words, self.expect_done(*self.arguments("--mode", "strong,weak", "--repeats", "2",
                                                                  "--efficiency", share)))
        self.assertEqual(self.results(), before)
        self.predictions()
        self.expect_done(*self.arguments("--mode", "strong", "--repeats", "3"))
        after = self.results()
        self.assertEqual({name: after[name] for name in before}, before)
        self.assertEqual(set(after) - set(before), {"strong-n1-d1p1t1-r3", "strong-n2-d2p1t1-r3"})

    def predictions(self):
        """A study that is done shows what a planner says of it, also when it is shown once more."""
        flags = ("--mode", "strong,weak", "--repeats", "2")
        self.assertTrue(all(row["predicted_tokens_per_s"] == "" for row in self.table("summary.csv")))
        for more in (("--plan", "t4"), ()):
            output = self.expect_done(*self.arguments(*flags, *more))
            lines = re.findall(r"\npredicted: (\d+) \([-+][\d.]+ %\) on 1 node, (\d+) \([-+][\d.]+ %\) on 2 nodes\n", output)
            self.assertEqual(len(lines), 2, output)
            self.assertEqual(lines[0][0], lines[1][0])  # at one node strong and weak scaling are the same
            rows = self.table("summary.csv")
            for row, said in zip(rows, (word for line in lines for word in line)):
                self.assertEqual(f"{float(row['predicted_tokens_per_s']):.0f}", said)
                self.assertLess(float(row["predicted_low"]), float(row["predicted_tokens_per_s"]))
                self.assertLess(float(row["predicted_tokens_per_s"]), float(row["predicted_high"]))
            page = self.page()
            self.assertIn("predicted forNVIDIA T4", page)
            self.assertIn("tokens/s predicted, ", page)
        # bad input: `scale --plan`: a machine that is not known | the nearest name | 2
        self.expect_refusal(2, "did you mean", *self.arguments(*flags, "--plan", "t5"))
        # bad input: `scale`: a damaged `predicted.json` | the file, and that `--plan` writes it anew | 5
        (self.study / "predicted.json").write_text("{", encoding="utf-8")
        self.expect_refusal(5, "predicted.json: damaged", *self.arguments(*flags))
        self.expect_done(*self.arguments(*flags, "--plan", "t4"))

    def page(self):
        root = ElementTree.fromstring((self.study / "report.html").read_text(encoding="utf-8"))
        return "".join(root.itertext())

    def test_a_folder_of_an_earlier_version(self):
        """It measured the point at one node twice, and recorded nothing about the machine."""
        both = ("--mode", "strong,weak", "--repeats", "1")
        self.expect_done(*self.arguments(*both))
        old = self.study / "points/weak-n1-d1p1t1-r1"
        shutil.copytree(self.study / "points/strong-n1-d1p1t1-r1", old)
        result = json.loads((old / "result.json").read_text(encoding="utf-8"))
        rate = result["tokens_per_s"]
        result["tokens_per_s"] *= 3
        del result["ran_on"]
        (old / "result.json").write_text(json.dumps(result), encoding="utf-8")
        before = self.results()
        self.expect_done(*self.arguments(*both))
        self.assertEqual(self.results(), before)
        for row in self.table("summary.csv"):
            self.assertEqual(row["repeats"], "2" if row["nodes"] == "1" else "1")
            if row["nodes"] == "1":
                self.assertAlmostEqual(float(row["tokens_per_s"]) / (2 * rate), 1, places=4)
        self.assertIn("not recorded", self.page())
        # A study of weak scaling alone goes on with what strong scaling has measured.
        self.expect_done(*self.arguments("--mode", "weak", "--repeats", "1"))
        self.assertEqual(self.results(), before)

    def test_a_login_node(self):
        """It has sbatch, but no allocation: nobody wants the study's processes there by accident."""
        (self.folder / "sbatch").write_text("#!/bin/sh\ntouch started\n", encoding="utf-8")
        (self.folder / "sbatch").chmod(0o755)
        login = {"PATH": f"{self.folder}:{os.environ['PATH']}"}
        given = self.arguments("--repeats", "1")
        where = given.index("--launcher")
        unsaid = given[:where] + given[where + 2:]
        # bad input: `scale` without `--launcher` where there is `sbatch` but no allocation | this host has
        # sbatch but is in no allocation: choose with --launcher sbatch ... | 2
        self.expect_refusal(2, "this host has sbatch but is in no allocation: choose with --launcher sbatch",
                            *unsaid, environment=login)
        self.assertFalse(self.study.exists())
        self.assertIn("strong-n2-d2p1t1-r1: 2 nodes, 2 ranks", self.expect_done(*unsaid, "--dry-run", environment=login))
        self.assertFalse(self.study.exists())
        # In an allocation there is a launcher, and a study that is done can be read everywhere.
        job = {**login, "SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "1"}
        self.expect_refusal(2, "--nodes asks for 2 nodes, but the allocation has 1", *unsaid, environment=job)
        self.expect_done(*given, environment=login)
        self.assertIn("verdict", self.expect_done(*unsaid, environment=login))
        self.assertEqual(unsaid[-2:], ["--repeats", "1"])
        self.expect_refusal(2, "is in no allocation", *unsaid[:-1], "2", environment=login)
        self.assertFalse((self.folder / "started").exists())

    def test_a_damaged_point(self):
        self.expect_done(*self.arguments("--repeats", "1", "--nodes", "1"))
        point = self.study / "points/strong-n1-d1p1t1-r1"
        (point / "point.json").write_text('{"warmup": 2', encoding="utf-8")
        # bad input: `scale --point`: a `point.json` that is damaged | FOLDER/point.json: damaged (...): the
        # trireme scale command of this study writes it anew and measures the point again | 5
        self.expect_refusal(5, f"{point}/point.json: damaged (", "scale", "--point", point)
        (point / "result.json").unlink()
        self.expect_done(*self.arguments("--repeats", "1", "--nodes", "1"))
        self.assertEqual(json.loads((point / "point.json").read_text(encoding="utf-8"))["warmup"], 2)

    def test_grids(self):
        # A configuration that says what job to make of it, too.
        (self.folder / "run.ini").write_text("[job]\nnodes = 7\n", encoding="utf-8")
        self.expect_done(*self.arguments("--config", "run.ini", "--nodes", "2", "--grids", "1x1,1x2,2x1", "--repeats", "1",
                                         "--model.layers", "2"))
        self.assertEqual(set(self.results()), {f"strong-n2-{grid}-r1" for grid in ("d2p1t1", "d1p1t2", "d1p2t1")})

    def test_a_grid_that_one_node_cannot_hold(self):
        # Two nodes that share two processors, or one.
        output = self.expect_done(*self.arguments("--nodes", "1,2", "--grids", "2x1,1x2", "--repeats", "1", "--mode", "strong,weak",
                                                  "--run.device", "cpu"))
        names = ["strong-n1-d1p1t1-r1", "strong-n2-d1p2t1-r1", "strong-n2-d1p1t2-r1", "weak-n2-d1p2t1-r1", "weak-n2-d1p1t2-r1"]
        self.assertEqual([p["point"] for p in self.table("points.csv")], names)
        rows = {(row["mode"], row["pipeline"], row["tensor"], row["nodes"]): row for row in self.table("summary.csv")}
        for mode in ("strong", "weak"):
            alone = rows[mode, "1", "1", "1"]
            for pipeline, tensor in (("2", "1"), ("1", "2")):
                first, both = rows[mode, pipeline, tensor, "1"], rows[mode, pipeline, tensor, "2"]
                self.assertEqual(first["tokens_per_s"], alone["tokens_per_s"])
                self.assertAlmostEqual(float(both["speedup"]), float(both["tokens_per_s"]) / float(alone["tokens_per_s"]), places=4)
        self.assertIn("1 node cannot hold this grid: speedup and efficiency are relative to 1x1x1 there", output)
        points = [json.loads((self.study / f"points/{name}/result.json").read_text()) for name in names[:2]]
        one, two = (point["ran_on"]["processors"] for point in points)
        # A control group around the test may have less than the machine.
        self.assertTrue(0 < one <= 1 and one <= two <= min(2, os.cpu_count(), 2 * one), (one, two))
        self.assertEqual("the ceiling of the speedup is " in output, two <= 0.99 * 2 * one, output)

    def test_interrupted_and_continued(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(signal=number):
                output = f"study{number}"
                # With so many steps the second point cannot end before the signal.
                more = ["--output", output, "--repeats", "1", "--steps", "1000000"]
                self.study = self.folder / output
                process = subprocess.Popen([self.program, *self.arguments(*more)], cwd=self.folder,
                                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                self.addCleanup(process.kill)
                metrics = self.study / "points/strong-n1-d1p1t1-r1/run/metrics.jsonl"
                while not metrics.exists() or not metrics.read_text():
                    self.assertIsNone(process.poll(), "the study ended early")
                    time.sleep(0.01)
                os.kill(process.pid, number)
                said, errors = process.communicate(timeout=60)
                self.assertEqual((process.returncode, errors), (75, ""))
                # bad input: `scale`: SIGTERM or SIGINT | stopped by a signal; the same command goes on | 75
                self.assertIn("stopped by a signal", said)
                self.assertEqual(self.results(), {})
                # bad input: `scale`: the folder of another study | --output study: another study was begun
                # there: steps is 6, it was 1000000; ... | 2
                self.expect_refusal(2, "steps is 6, it was 1000000", *self.arguments("--output", output))

    def test_goes_on_at_the_first_point_without_a_result(self):
        self.expect_done(*self.arguments("--repeats", "1"))
        (self.study / "points/strong-n2-d2p1t1-r1/result.json").write_text('{"tokens_per_s": 12')  # half a file
        before = self.results()
        # A version that knew fewer keys began the study.
        begun = (self.study / "study.json").read_text(encoding="utf-8")
        self.assertIn("crop = centre\\n", begun)
        (self.study / "study.json").write_text(begun.replace("crop = centre\\n", ""), encoding="utf-8")
        self.expect_done(*self.arguments("--repeats", "1"))
        changed = {name for name, moment in self.results().items() if moment != before[name]}
        self.assertEqual(changed, {"strong-n2-d2p1t1-r1"})
        json.loads((self.study / "points/strong-n2-d2p1t1-r1/result.json").read_text())

    def test_a_result_that_cannot_be_read_is_kept(self):
        arguments = self.arguments("--repeats", "1", "--nodes", "1")
        self.expect_done(*arguments)
        point = self.study / "points/strong-n1-d1p1t1-r1"
        result = point / "result.json"
        result.rename(point / "measured.json")
        result.symlink_to(result.name)  # a link to itself
        # bad input: `scale`: a result that cannot be read | .../result.json: cannot be read: Too many levels
        # of symbolic links | 5
        self.expect_refusal(5, "result.json: cannot be read: Too many levels of symbolic links", *arguments)
        self.assertTrue((point / "measured.json").exists())
        result.unlink()
        (point / "measured.json").rename(result)
        before = self.results()
        self.expect_done(*arguments)
        self.assertEqual(self.results(), before)
        (self.study / "study.json").unlink()
        (self.study / "study.json").mkdir()
        self.expect_refusal(5, "study.json: cannot be read: Is a directory", *arguments)

    def test_a_point_that_fails(self):
        more = ("--repeats", "1", "--optim.lr", "1e30", "--optim.clip", "0", "--steps", "40")
        done = self.run_program(*self.arguments(*more))
        self.assertEqual(done.returncode, 6, done.stderr)
        # bad input: `scale`: a point that fails | point strong-n1-d1p1t1-r1 ended with status 6: the last
        # 10 steps had non-finite gradients ...; the same command goes on there | that of the point
        self.assertRegex(done.stderr, r"\Atrireme: point strong-n1-d1p1t1-r1 ended with status 6: the last 10 "
                                      r"steps had non-finite gradients[^\n]*\n\Z")

    def test_dry_run(self):
        output = self.expect_done(*self.arguments("--mode", "weak"), "--dry-run")
        self.assertIn("6 points of 6 steps", output)
        self.assertIn("weak-n2-d2p1t1-r3: ", output)
        self.assertRegex(output, r"mpiexec\S* -n 2 \S+ scale --point \S+/study/points/weak-n2-d2p1t1-r1")
        self.assertFalse(self.study.exists())

    def test_a_node_s_memory_is_what_sinfo_says(self):
        sinfo = self.folder / "sinfo"
        sinfo.write_text('#!/bin/sh\necho "$@" > asked\nprintf "long|3|4|64000\\nlong|1|4|100\\n"\n', encoding="utf-8")
        sinfo.chmod(0o755)
        (self.folder / "site.ini").write_text("[slurm]\npartition = long\n", encoding="utf-8")
        path = {"PATH": f"{self.folder}:{os.environ['PATH']}"}
        flags = self.arguments("--launcher", "sbatch", "--site", "site.ini")
        # bad input: `scale --launcher sbatch`: a point that needs more memory than the site file, or else
        # `sinfo`, gives a node | ..., a node has 100: fewer tasks a node ... | 2
        self.expect_refusal(2, "a node has 100", *flags, "--dry-run", environment=path)
        self.assertIn("--partition=long", (self.folder / "asked").read_text(encoding="utf-8"))
        with open(self.folder / "site.ini", "a", encoding="utf-8") as site:
            site.write("memory = 64000\n")
        self.expect_done(*flags, "--dry-run", environment=path)
        # Where no job is made of a point, nobody asks.
        self.expect_done(*self.arguments("--launcher", "mpiexec"), "--dry-run", environment=path)

    def test_two_at_once(self):
        process = subprocess.Popen([self.program, *self.arguments("--steps", "1000000")], cwd=self.folder,
                                   stdout=subprocess.DEVNULL)
        self.addCleanup(process.kill)
        while not list(self.study.glob("points/*/log")):
            self.assertIsNone(process.poll())
            time.sleep(0.01)
        # bad input: `scale`: a study that is under way | ...: in use by another trireme scale | 5
        self.expect_refusal(5, "in use by another trireme scale", *self.arguments("--steps", "1000000"))
        process.terminate()
        self.assertEqual(process.wait(timeout=60), 75)

    def test_refusals(self):
        for words, more in (
                ("--nodes 1,x: expected counts", ["--nodes", "1,x"]),
                ("--nodes 0: expected counts", ["--nodes", "0"]),
                ("--mode strongly: expected strong", ["--mode", "strongly"]),
                # bad input: `scale --efficiency`: a value that is no share | --efficiency 80: must be at least
                # 0.01 and at most 1 | 2
                ("--efficiency 80: must be at least 0.01 and at most 1", ["--efficiency", "80"]),
                # bad input: `scale`: node counts, modes or grids that are none | --grids 2: expected
                # PIPELINExTENSOR, as in 1x1,1x2,2x1; ... | 2
                ("--grids 2: expected PIPELINExTENSOR", ["--grids", "2"]),
                # bad input: `scale`: a grid, batch or model that does not fit a number of nodes | --grids
                # 1x2 needs a multiple of 2 ranks, but 1 nodes have 1: ... | 2
                ("--grids 1x2 needs a multiple of 2 ranks, but 3 nodes have 3", ["--grids", "1x2", "--nodes", "1,3"]),
                ("--grids 1x2 needs a multiple of 2 ranks, but 1 nodes have 1", ["--grids", "1x2", "--nodes", "1"]),
                ("--grids 1x4 needs a multiple of 4 ranks, but 2 nodes have 2", ["--grids", "1x4"]),
                # bad input: `scale`: `grid.data`, no step left to measure, no folder | --warmup 6 leaves
                # none of --steps 6 to measure | 2
                # bad input: `scale`: points, ranks or sequences beyond all use | the study has more than 10000 points | 2
                ("the study has more than 10000 points", ["--nodes", ",".join(map(str, range(1, 200))), "--repeats", "1000",
                                                          "--batch.global", "800"]),
                ("1048576 nodes of 65536 ranks: at most 1048576 ranks can be", ["--nodes", "1048576", "--ranks-per-node", "65536"]),
                ("--warmup 6 leaves none of --steps 6", ["--warmup", "6"]),
                ("grid.data is 2, but in a study", ["--grid.data", "2"]),
                # bad input: `scale`: islands | grid.islands is 2, but a study measures grids whose replicas
                # meet at every step: leave it out | 2
                ("grid.islands is 2, but a study measures grids", ["--grid.islands", "2"]),
                # bad input: `scale`: meetings | sync.every is 4, but a study measures steps without meetings: leave it
                # out | 2
                ("sync.every is 4, but a study measures steps", ["--sync.every", "4"]),
                ("4 micro-batches a step", ["--nodes", "8"]),
                ("does not grow to whole micro-batches", ["--nodes", "3,4", "--mode", "weak"]),
                ("--launcher slurm: is not one of", ["--launcher", "slurm"]),
                # bad input: `scale`: `srun` outside of an allocation, or for more nodes than it has |
                # --nodes asks for 2 nodes, but the allocation has 1 | 2
                ("--launcher srun needs an allocation", ["--launcher", "srun"]),
                ("--site none.ini: cannot be read: No such file", ["--site", "none.ini"]),
                ("heads", ["--nodes", "4", "--grids", "1x4"]),
                ("--point none: no point of a study is there", ["--point", "none"]),
                ("batch.global is 7", ["--batch.global", "7"])):
            with self.subTest(more):
                self.expect_refusal(2, words, *self.arguments(*more))
                self.assertFalse(self.study.exists(), "a refused study left a folder behind")
        self.expect_refusal(2, "--output FOLDER", "scale", "--data.train", "data/train.h5")
        self.expect_refusal(2, "data.train is missing", "scale", "--output", "study")


if __name__ == "__main__":
    Scale.program = Path(sys.argv.pop(1)).resolve()
    unittest.main()
