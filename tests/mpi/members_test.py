#!/usr/bin/env python3
"""Several jobs carry one run of a very small GPT: some start late, are killed, told to stop, and come back.

usage: members_test.py TRIREME MPIEXEC OUTER_STEP_DIFFERENCE
"""
import json
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
from cli_testing import LAUNCHER, OPENMP, ProgramTest  # noqa: E402
from made_pictures import write_folder  # noqa: E402

FLAGS = ("--model.layers 2 --model.width 32 --model.heads 2 --model.context 16 --batch.global 4 --batch.micro 2 "
         "--optim.lr 0.003 --schedule.warmup 2 --data.train data/train.h5 --data.validation data/validation.h5 "
         "--run.steps 12 --checkpoint.every 1000 --eval.every 0 --log.every 1000 --comm.timeout 60 --run.threads 1 "
         "--run.device cpu --run.folder run --sync.every 3 --sync.silence 2").split()
EVERY, SAMPLES = 3, 4  # of FLAGS: inner steps, and samples of one
LONG = ("--run.steps", 600, "--sync.every", 50)  # takes seconds


class Members(ProgramTest):
    mpiexec = ""
    difference = Path()

    def setUp(self):
        super().setUp()
        self.prepare("data", "--validation", "tail:1000")
        self.jobs = {}
        self.addCleanup(self.end_all)

    def end_all(self):
        for job in self.jobs.values():
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)
                job.wait()

    def flags(self, *more):
        last = dict(zip(FLAGS[::2], FLAGS[1::2])) | dict(zip(more[::2], more[1::2]))
        return ["train", *(str(word) for pair in last.items() if pair[1] is not None for word in pair)]

    def start(self, name, *more, ranks=1, before=()):
        launcher = [self.mpiexec, "-n", str(ranks)] if ranks > 1 else []
        own = {key: value for key, value in os.environ.items() if not key.startswith(LAUNCHER) and key not in OPENMP}
        with (self.folder / f"{name}.log").open("a", encoding="utf-8") as log:
            self.jobs[name] = subprocess.Popen(
                [*before, *launcher, str(self.program), *self.flags("--sync.member", name, *more)], cwd=self.folder,
                env=own, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True)

    def said(self, name):
        return (self.folder / f"{name}.log").read_text(encoding="utf-8")

    def ends(self, *names, status=0):
        for name in names:
            self.assertEqual(self.jobs[name].wait(timeout=80), status, self.said(name))

    def wait_for(self, what, seconds=60):
        end = time.monotonic() + seconds
        while not what():
            self.assertLess(time.monotonic(), end, "it did not come: " + "".join(map(self.said, self.jobs)))
            time.sleep(0.02)

    def path_of(self, number):
        return self.folder / f"run/outer/outer-{number:06}.json"

    def records(self):
        records = []
        while self.path_of(len(records)).exists():
            records.append(json.loads(self.path_of(len(records)).read_text(encoding="utf-8")))
        return records

    def check_chain(self):
        """Every delivery counts once, no sample is used twice, and what was counted was dealt. The records."""
        records, seen, used = self.records(), set(), set()
        for before, record in zip(records, records[1:]):
            deals = {(member["member"]["name"], deal["base"]) for member in before["members"]
                     for deal in member["deals"]}
            for settled in record["settled"]:
                delivery = settled["delivery"]
                key = delivery["member"]["name"], delivery["base"]
                self.assertIn(key, deals)
                self.assertNotIn(key, seen)
                seen.add(key)
                samples = [i for begin, end in settled["samples"] for i in range(begin, end)]
                self.assertEqual(len(samples), delivery["steps"] * SAMPLES if settled["weight"] else 0)
                self.assertTrue(used.isdisjoint(samples))
                used.update(samples)
        return records

    def check_last_step(self, rate, momentum):
        """The last state beside a plain reference in float64."""
        before, after = self.records()[-2:]
        learned = [word for settled in after["settled"] if settled["weight"] for word in
                   (self.folder / "run" / settled["delivery"]["gradient"]["file"], settled["weight"])]
        done = subprocess.run(
            [str(self.difference), *(str(self.folder / "run" / record["state"]["file"]) for record in (before, after)),
             str(rate), str(momentum), *map(str, learned)], check=True, capture_output=True, text=True)
        self.assertLess(float(done.stdout.split()[0]), 2e-6, done.stdout)
        return len(learned) // 2

    def test_members_of_other_grids_make_what_a_reference_makes(self):
        for outer, rate, momentum in (("nesterov", 0.7, 0.9), ("average", 1, 0)):
            with self.subTest(outer=outer):
                shutil.rmtree(self.folder / "run", ignore_errors=True)
                more = "--sync.outer", outer, "--sync.quorum", 3, "--eval.every", 6
                self.start("a", *more)
                self.start("b", *more, "--grid.pipeline", 2, ranks=2)
                self.start("c", *more, "--shard.stage", 2, ranks=2)
                self.ends("a", "b", "c")
                self.assertEqual(self.check_last_step(rate, momentum), 3)
                records = self.check_chain()
                self.assertEqual(records[-1]["updates"], 12 // EVERY)
                said = "".join(map(self.said, "abc"))
                self.assertRegex(said, r"\nmember a begins with outer state [01], after 0 of 12 steps of the run\n")
                self.assertEqual(said.count("step 6: evaluation loss"), 1, said)
                self.assertEqual(said.count("step 12: evaluation loss"), 1, said)
                last = said[said.index("step 12: evaluation loss"):].split()[4]
                done = self.expect_done("eval", "--checkpoint", "run", "--data", "data/validation.h5")
                loss = next(line.split()[1] for line in done.splitlines() if line.startswith("loss"))
                self.assertAlmostEqual(float(loss), float(last), delta=2e-4)
                self.assertNotIn("does not count", said)
                self.assertIn("run/checkpoints/step-00000012.h5", done)
                for log in self.folder.glob("*.log"):
                    log.unlink()

    def test_running_statistics_become_their_mean(self):
        write_folder(self.folder / "stripes/train", 40)
        write_folder(self.folder / "stripes/test", 9, first=100)
        self.expect_done("prepare", "--images", "stripes", "--output", "pictures")
        more = ("--model.family", "mobilenet_v2", "--model.image", 16, "--model.width_multiple", 0.25,
                "--data.train", "pictures/train.h5", "--data.validation", "pictures/validation.h5",
                "--batch.global", 16, "--batch.micro", 8, "--sync.quorum", 2, "--run.steps", 6)
        of_texts = {flag: None for flag in FLAGS if flag in ("--model.layers", "--model.width", "--model.heads",
                                                             "--model.context")}
        for name, grid in (("a", ()), ("b", ("--grid.pipeline", 2))):
            self.start(name, *more, *grid, *(word for pair in of_texts.items() for word in pair),
                       ranks=2 if grid else 1)
        self.ends("a", "b")
        self.assertEqual(self.check_last_step(0.7, 0.9), 2)

    def test_who_is_killed_or_told_to_stop_comes_back(self):
        for name in "abc":
            self.start(name, *LONG)
        self.wait_for(lambda: self.path_of(3).exists())
        os.killpg(self.jobs["a"].pid, signal.SIGKILL)
        os.killpg(self.jobs["b"].pid, signal.SIGTERM)
        self.ends("b", status=75)
        self.assertIn("stopped by SIGTERM", self.said("b"))
        killed_at = len(self.records())
        self.wait_for(lambda: len(self.records()) > killed_at + 1)
        self.assertEqual([member["member"]["name"] for member in self.records()[-1]["members"]], ["c"])
        self.start("b", *LONG)
        self.start("a", *LONG)
        self.ends("a", "b", "c")
        self.assertIn("going on from run/islands/b/checkpoints/", self.said("b"))
        records = self.check_chain()
        self.assertEqual(records[-1]["updates"], 12)
        self.assertEqual([member["member"]["name"] for member in records[-1]["members"]], ["a", "b", "c"])
        self.assertGreater(max(member["member"]["incarnation"] for member in records[-1]["members"]), 1)
        said = self.expect_done(*self.flags(*LONG, "--sync.member", "a"))
        self.assertIn("the run is done", said)
        for name in "abc":
            self.assertTrue(self.expect_done("top", f"run/islands/{name}").startswith(f"run/islands/{name}: finished\n"))

    def test_a_leader_killed_at_any_call_leaves_a_run_that_goes_on(self):
        if not shutil.which("strace") or subprocess.run(["strace", "-o", os.devnull, "true"], check=False,
                                                        capture_output=True).returncode:
            self.skipTest("no strace that may trace")
        # The lead's names in the order of a step: config, state, record, delivery, the next record.
        for calls, when in (("link,linkat", 2), ("link,linkat", 3), ("link,linkat", 4), ("rename,renameat2", 9),
                            ("unlink,unlinkat", 9)):
            with self.subTest(calls=calls, when=when):
                shutil.rmtree(self.folder / "run", ignore_errors=True)
                self.start("a", before=("strace", "-f", "-o", os.devnull, "-e", f"trace={calls}", "-e",
                                        f"inject={calls}:signal=SIGKILL:when={when}"))
                self.jobs["a"].wait(timeout=60)
                self.start("b")
                self.ends("b")
                self.assertEqual(self.check_chain()[-1]["updates"], 12 // EVERY)

    def refused(self, status, message, *more):
        self.expect_refusal(status, message, *self.flags(*more))

    def test_bad_input(self):
        self.start("a")
        self.ends("a")
        # bad input: `train`: a member with other settings than the run | config.ini: the run that members carry there
        # has other settings: batch.global was 4, is 8; give this job those of the run, or another run.folder
        # (run.start_from takes its weights) | 2
        self.refused(2, "run/config.ini: the run that members carry there has other settings: batch.global was 4, is 8; "
                     "give this job those of the run, or another run.folder (run.start_from takes its weights)",
                     "--sync.member", "b", "--batch.global", 8)
        self.assertFalse((self.folder / "run/islands/b").exists())
        # bad input: `train`: one job in the folder of a run of several | several jobs carry the run in this folder,
        # each under a name: give sync.member, or another run.folder | 2
        self.refused(2, "run: several jobs carry the run in this folder, each under a name: give sync.member, or another "
                     "run.folder")
        self.expect_done(*self.flags("--run.folder", "alone"))
        # bad input: `train`: a member in the folder of a run of one job | one job carries the run in this folder: leave
        # sync.member out, or give another run.folder | 2
        self.refused(2, "alone: one job carries the run in this folder: leave sync.member out, or give another run.folder",
                     "--run.folder", "alone", "--sync.member", "a")
        # bad input: `train`: a member whose name another job has | in use by another run on host | 5
        self.start("c", *LONG, "--run.folder", "other")
        self.wait_for(lambda: (self.folder / "other/outer/outer-000000.json").exists())
        self.refused(5, "other/islands/c: in use by another run on host", *LONG, "--run.folder", "other",
                     "--sync.member", "c")
        # bad input: `eval` and others: the folder of a run of several jobs that goes on | no checkpoint is there:
        # several jobs carry the run in this folder, whose last state becomes one; until then name a state in its folder
        # outer | 4
        self.expect_refusal(4, "other: no checkpoint is there: several jobs carry the run in this folder, whose last "
                            "state becomes one; until then name a state in its folder outer, as other/outer/state-",
                            "eval", "--checkpoint", "other", "--data", "data/validation.h5")


if __name__ == "__main__":
    Members.program, Members.mpiexec, Members.difference = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    unittest.main(argv=sys.argv[:1])
