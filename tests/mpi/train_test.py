#!/usr/bin/env python3
"""`trireme train` as a user starts it: the same bits twice, across stop and resume, and after a kill; the
same losses on another grid; the documented statuses.

usage: train_test.py TRIREME MPIEXEC CHECKPOINT_WITHOUT CHECKPOINT_DIFFERENCE
"""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from cli_testing import network_rates  # noqa: E402

if len(sys.argv) < 5 or any(argument.startswith("-") for argument in sys.argv[1:5]):
    sys.exit(__doc__.splitlines()[-1])
PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve()
MPIEXEC = sys.argv.pop(1)
WITHOUT = pathlib.Path(sys.argv.pop(1)).resolve()
DIFFERENCE = pathlib.Path(sys.argv.pop(1)).resolve()
STEPS = 60
MODEL = ("--model.layers 2 --model.width 32 --model.heads 4 --model.context 16 --batch.global 12 "
         "--batch.micro 2 --model.dropout 0.1 --optim.lr 3e-3 --checkpoint.every 20 --log.every 1000 "
         "--eval.every 30 --comm.timeout 60 --threads 1").split()


def launch(ranks, *arguments):
    return [MPIEXEC, "-n", str(ranks), str(PROGRAM), *arguments]


class Train(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp())
        words = [f"{a}{b}" for a in ("ro", "sa", "mi", "te", "lu") for b in ("wing", "ls", "st", "r")]
        text = " ".join(words[(i * i + i // 7) % len(words)] for i in range(6000))
        (cls.folder / "text.txt").write_text(text)
        subprocess.run([PROGRAM, "prepare", "--input", cls.folder / "text.txt", "--output",
                        cls.folder / "data", "--tokenizer", "byte", "--validation", "tail:2000"],
                       check=True, capture_output=True)
        cls.whole = cls.train("whole", 2, "--grid.data", "2")

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder, ignore_errors=True)

    @classmethod
    def arguments(cls, run, *more):
        flags = ["--data.train", str(cls.folder / "data/train.h5"), "--data.validation",
                 str(cls.folder / "data/validation.h5"), "--run.folder", str(cls.folder / run),
                 "--run.steps", str(STEPS), *MODEL, *more]
        last = dict(zip(flags[::2], flags[1::2]))  # a flag may be given once only
        return ["train", *(word for pair in last.items() for word in pair)]

    @classmethod
    def train(cls, run, ranks, *more, status=0):
        done = subprocess.run(launch(ranks, *cls.arguments(run, *more)), capture_output=True, text=True,
                              timeout=120)
        assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
        cls.output = done.stdout + done.stderr
        return cls.metrics(run)

    @classmethod
    def metrics(cls, run):
        """What does not depend on the clock, by step."""
        keys = ("step", "loss", "eval_loss", "eval_weights", "grad_norm", "lr", "tokens", "loss_scale")
        lines = (cls.folder / run / "metrics.jsonl").read_text().splitlines()
        return [{k: v for k, v in json.loads(line).items() if k in keys} for line in lines]

    def checkpoint(self, run, step):
        return self.folder / run / "checkpoints" / f"step-{step:08d}.h5"

    def start_over_from(self, run, step, of="whole"):
        """A copy of a whole run whose newest checkpoint is that of `step`."""
        shutil.copytree(self.folder / of, self.folder / run)
        for path in (self.folder / run / "checkpoints").iterdir():
            if path != self.checkpoint(run, step):
                path.unlink()

    def remove(self, run, step, name, *how):
        subprocess.run([WITHOUT, name, self.checkpoint(run, step), *how], check=True, capture_output=True, timeout=60)

    def test_a_part_of_the_held_out_data_was_its_beginning(self):
        few = ("--eval.every", "2", "--checkpoint.every", "0")
        said = "eval.batches 1 now reads samples from everywhere in the held-out data: losses of evaluations up to step 4"
        self.train("some", 1, "--run.steps", "4", "--eval.batches", "1", *few)
        self.remove("some", 4, "evaluation_samples")
        for steps, times in ((5, 1), (7, 0)):
            self.train("some", 1, "--run.steps", str(steps), "--eval.batches", "1", *few)
            self.assertEqual(self.output.count(said), times, self.output)
        events = (self.folder / "some/events.jsonl").read_text()
        self.assertEqual(events.count(said), 1, events)
        # An evaluation of all of them is what it was.
        self.train("all", 1, "--run.steps", "4", *few)
        self.remove("all", 4, "evaluation_samples")
        self.train("all", 1, "--run.steps", "6", *few, "--eval.batches", "1")
        self.assertNotIn("now reads samples", self.output)

    def test_watching_the_ranks_changes_no_bit(self):
        self.assertEqual(self.train("watched", 2, "--grid.data", "2", "--log.stragglers", "0.001"), self.whole)
        ranks = json.loads((self.folder / "watched/ranks.json").read_text())
        self.assertEqual(ranks["last_step"], STEPS)
        self.assertEqual([row[:5] for row in ranks["ranks"]], [[0, 0, 0, 0, 3], [0, 1, 0, 0, 3]])
        times = [dict(zip(ranks["columns"], row)) for row in ranks["ranks"]]
        self.assertTrue(all(rank["compute_s"] > 0 and rank["memory_bytes"] > 1e6 for rank in times), times)
        # Each of the two is the other's only peer.
        self.assertAlmostEqual(times[0]["times_peers"] * times[1]["times_peers"], 1, delta=0.01)
        self.assertFalse((self.folder / "whole/ranks.json").exists())
        # It says nothing of a start whose first window does not end.
        self.train("watched", 1, "--run.steps", str(STEPS + 1))
        self.assertFalse((self.folder / "watched/ranks.json").exists())

    def test_memory_says_what_the_ranks_of_a_run_hold(self):
        said = self.folder / "memory.json"
        subprocess.run([PROGRAM, "memory", "--json", said, "--data.train", self.folder / "data/train.h5",
                        "--grid.data", "2", *MODEL], check=True, capture_output=True)
        (kind,) = json.loads(said.read_text())["kinds"]
        lines = map(json.loads, (self.folder / "whole/metrics.jsonl").read_text().splitlines())
        held = [line["memory"] for line in lines if "memory" in line][-1]
        for use in ("parameters", "gradients", "optimizer"):
            self.assertEqual(kind["peaks"][use], held[use])
        for use in ("activations", "workspace"):
            self.assertAlmostEqual(kind["peaks"][use] / held[use], 1, delta=0.03)

    def test_a_run_goes_on_where_ranks_json_cannot_be_written(self):
        for name in ("checkpoints", "ranks.json.partial"):
            (self.folder / "unwatched" / name).mkdir(parents=True)
        self.train("unwatched", 2, "--grid.data", "2", "--run.steps", "8", "--log.stragglers", "0.001")
        # bad input: `train`: `ranks.json` cannot be written | ...: cannot be opened: Is a directory; the
        # run goes on without it | 0
        self.assertEqual(self.output.count("unwatched/ranks.json.partial: cannot be opened: Is a directory; the run "
                                           "goes on without it"), 1, self.output)

    def test_planned_communicators_change_no_bit(self):
        host = socket.gethostname()
        rates = self.folder / "rates.json"
        rates.write_text(json.dumps(network_rates([host])))
        planned = self.train("planned", 2, "--grid.data", "2", "--comm.network", str(rates))
        self.assertEqual(planned, self.whole)
        self.assertRegex(self.output, r"network +.*rates.json, measured 2026-.*\n")
        table = json.loads((self.folder / "planned/communication.json").read_text())
        self.assertIn("rates.json", table["source"])
        self.assertEqual([(one["name"], one["ranks"], one["nodes"]) for one in table["communicators"]],
                         [("world", 2, 1), ("grid", 2, 1), ("data", 2, 1)])
        reduced = [one for one in table["collectives"] if (one["communicator"], one["collective"]) == ("data", "all_reduce")]
        self.assertTrue(reduced, table)
        for one in reduced:
            self.assertIn(one["algorithm"], table["communicators"][2]["table"])
            for key in ("predicted_s", "measured_s", "link_s", "busbw_bytes_per_s"):
                self.assertGreater(one[key], 0, one)
        page = (self.folder / "planned/report.html").read_text()
        self.assertIn("<h2>Communication</h2>", page)
        self.assertIn("node of rank 0", page)
        start = json.loads((self.folder / "planned/events.jsonl").read_text().splitlines()[0])
        self.assertRegex(start["detail"], r"collectives for .*rates.json.*; data: all_reduce ")
        # Without a network the default stays.
        table = json.loads((self.folder / "whole/communication.json").read_text())
        self.assertEqual(table["source"], "")
        self.assertNotRegex((self.folder / "whole/events.jsonl").read_text(), "collectives for")

    def test_rates_that_do_not_suit_the_job(self):
        rates = self.folder / "stale.json"
        rates.write_text(json.dumps(network_rates(["elsewhere"])))
        # bad input: `train`: `comm.network` names rates that were measured on other nodes | comm.network: FILE: measured
        # without n[5-6]; not used, run trireme topo probe on these nodes | 0
        self.assertEqual(self.train("stale", 2, "--grid.data", "2", "--run.steps", "8", "--comm.network", str(rates)),
                         self.train("plain", 2, "--grid.data", "2", "--run.steps", "8"))
        self.train("stale", 2, "--grid.data", "2", "--run.steps", "12", "--comm.network", str(rates))
        self.assertEqual(self.output.count(f"trireme: comm.network: {rates}: measured without {socket.gethostname()}; "
                                           "not used, run trireme topo probe on these nodes\n"), 1, self.output)
        rates.write_text("{}")
        # bad input: `train`: `comm.network` names a damaged file, or another one | FILE: not a file of network rates:
        # WHAT; trireme topo probe writes one | 2
        done = subprocess.run(launch(2, *self.arguments("damaged_rates", "--grid.data", "2", "--comm.network", str(rates))),
                              capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertRegex(done.stderr, r"\Atrireme: \S*stale.json: not a file of network rates: .*\n\Z")
        self.assertFalse((self.folder / "damaged_rates").exists())

    def losses_agree(self, metrics, first_step, tolerance):
        mine = {(m["step"], "eval_loss" in m): m.get("loss", m.get("eval_loss")) for m in metrics}
        for expected in self.whole:
            if expected["step"] < first_step:
                continue
            got = mine[(expected["step"], "eval_loss" in expected)]
            want = expected.get("loss", expected.get("eval_loss"))
            self.assertLessEqual(abs(got / want - 1), tolerance, expected)

    def test_learns_and_reports(self):
        steps = [m for m in self.whole if "loss" in m]
        self.assertEqual([m["step"] for m in steps], list(range(1, STEPS + 1)))
        self.assertLess(steps[-1]["loss"], 0.6 * steps[0]["loss"])
        self.assertEqual(steps[-1]["tokens"], STEPS * 12 * 16)
        self.assertEqual([m["step"] for m in self.whole if "eval_loss" in m], [30, 60])
        first = json.loads((self.folder / "whole/metrics.jsonl").read_text().splitlines()[0])
        for key in ("step", "loss", "lr", "grad_norm", "tokens", "tokens_per_s", "step_s", "wait_data_s",
                    "comm_s", "memory_bytes"):
            self.assertIn(key, first)

    def test_same_run_twice_has_the_same_bits(self):
        self.assertEqual(self.train("twice", 2, "--grid.data", "2"), self.whole)

    def test_resume_has_the_same_bits(self):
        self.start_over_from("resumed", 20)
        self.assertEqual(self.train("resumed", 2, "--grid.data", "2"), self.whole)
        self.assertIn("going on from", self.output)

    def test_micro_batches_that_a_run_settles_and_keeps(self):
        flags = ["--batch.global", "24", "--batch.micro", "auto", "--checkpoint.every", "2", "--eval.every", "0",
                 "--schedule.name", "constant", "--schedule.warmup", "2"]

        def recorded(run):
            (number,) = re.findall(r"(?m)^micro = (.*)$", (self.folder / run / "config.ini").read_text())
            return number

        whole = self.train("micro", 2, *flags, "--run.steps", "4")
        self.assertIn("batch.micro auto: 12: all that a replica computes in a step\n", self.output)
        self.assertIn("2 micro-batches of 12, over 2 data replicas", self.output)
        self.assertEqual(recorded("micro"), "auto 12")
        self.assertIn("micro-batches of 12", (self.folder / "micro/report.html").read_text())
        self.assertEqual(self.train("micro-given", 2, *flags, "--batch.micro", "12", "--run.steps", "4"), whole)
        self.assertNotIn("batch.micro auto", self.output)
        self.train("micro-on", 2, *flags, "--run.steps", "2")
        self.assertEqual(self.train("micro-on", 2, *flags, "--run.steps", "4"), whole)
        self.assertIn("batch.micro auto: 12, as before\n", self.output)
        self.assertNotIn("to rounding", self.output)
        # On another grid it is the nearest that is not above it, and the next start keeps that.
        self.train("micro-on", 3, *flags, "--run.steps", "6")
        self.assertIn("batch.micro auto: 8 in place of 12: all that a replica computes in a step\n", self.output)
        self.assertIn("batch.micro was auto 12, is auto 8", self.output)
        self.train("micro-on", 1, *flags, "--run.steps", "8")
        self.assertIn("batch.micro auto: 8, as before\n", self.output)
        self.assertEqual(recorded("micro-on"), "auto 8")
        # So does a run that had another number: given, or the default of earlier versions.
        self.train("micro-4", 1, *flags, "--batch.micro", "4", "--run.steps", "2")
        self.train("micro-4", 1, *flags, "--run.steps", "4")
        self.assertIn("batch.micro auto: 4, as before\n", self.output)
        # The settings that a run had are those of another grid too.
        told = subprocess.run([PROGRAM, "memory", "--config", self.folder / "micro/config.ini", "--grid.data", "8"],
                              capture_output=True, text=True, timeout=60)
        self.assertIn("batch.micro auto: 3: all that a replica computes in a step\n", told.stdout + told.stderr)
        # A start that follows no earlier one settles it anew.
        self.train("micro-4", 1, *flags, "--run.steps", "2", "--run.resume", "never")
        self.assertIn("batch.micro auto: 24: all that a replica computes in a step\n", self.output)

    def test_same_bits_on_other_grids(self):
        flags = ["--run.same_bits", "true", "--batch.global", "16", "--batch.micro", "2", "--schedule.name",
                 "constant", "--schedule.warmup", "2", "--checkpoint.every", "6", "--optim.clip", "0.5",
                 "--eval.every", "0"]
        whole = self.train("bits", 4, *flags, "--run.steps", "12", "--grid.data", "4")
        self.assertIn("8 runs of 1 micro-batch; each data replica adds up 2 and reduces once", self.output)
        for ranks, grid in ((1, []), (2, ["--grid.pipeline", "2"])):
            run = f"bits-{ranks}"
            with self.subTest(ranks=ranks):
                self.assertEqual(self.train(run, ranks, *flags, "--run.steps", "12", *grid), whole)
        # On fewer ranks the run takes a grid that keeps the bits, if grid.* leaves it one.
        self.train("bits-requeued", 4, *flags, "--run.steps", "6")
        self.assertEqual(self.train("bits-requeued", 3, *flags, "--run.steps", "12"), whole)
        self.assertIn("run.same_bits: grid 1 x 3 x 1 (data x pipeline x tensor) in place of 3 x 1 x 1, whose 3 data "
                      "replicas do not divide 8 runs", self.output)
        self.assertNotIn("agree to rounding", self.output)
        self.train("bits-parted", 4, *flags, "--run.steps", "6")
        self.assertNotEqual(self.train("bits-parted", 3, *flags, "--run.steps", "12", "--grid.pipeline", "1"), whole)
        self.assertIn("the bits part here: 3 data replicas do not divide 8 runs of micro-batches", self.output)
        events = (self.folder / "bits-parted/events.jsonl").read_text()
        self.assertIn("the bits part here", events)
        # The next requeue knows that they did: it is not refused either.
        self.train("bits-parted", 3, *flags, "--run.steps", "13", "--grid.pipeline", "1")
        self.assertIn("the bits part here", self.output)
        # And so does the next requeue of a run whose bits changed before its first checkpoint.
        self.train("bits-lost", 4, *flags, "--run.steps", "6")
        for path in (self.folder / "bits-lost/checkpoints").iterdir():
            path.unlink()
        parting = [*flags, "--checkpoint.every", "0", "--grid.pipeline", "1"]
        for steps in ("4", "5"):
            self.train("bits-lost", 3, *parting, "--run.steps", steps)
            self.assertIn("the bits part here: 3 data replicas do not divide 8 runs of micro-batches", self.output)
            self.assertTrue(json.loads((self.folder / "bits-lost/branch.json").read_text())["bits_parted"])
            for path in (self.folder / "bits-lost/checkpoints").iterdir():
                path.unlink()
        events = (self.folder / "bits-lost/events.jsonl").read_text()
        self.assertEqual(events.count("the bits part here"), 2)
        # From the beginning on a grid that holds the promise no bits have changed.
        self.assertEqual(self.train("bits-lost", 2, *flags, "--run.steps", "12"), whole)
        self.assertNotIn("bits_parted", (self.folder / "bits-lost/branch.json").read_text())
        # A requeue goes on, though the job's script says run.resume never.
        with unittest.mock.patch.dict(os.environ, TRIREME_JOB="bits"):
            self.train("bits-never", 4, *flags, "--run.steps", "6", "--run.resume", "never")
            self.assertEqual(self.train("bits-never", 3, *flags, "--run.steps", "12", "--run.resume", "never"), whole)
        self.assertIn("run.same_bits: grid 1 x 3 x 1", self.output)
        # And so does one of a start that has written no checkpoint, with the bits of the first steps.
        for path in (self.folder / "bits-requeued/checkpoints").iterdir():
            path.unlink()
        self.assertEqual(self.train("bits-requeued", 3, *flags, "--run.steps", "12"), whole)
        self.assertIn("run.same_bits: grid 1 x 3 x 1", self.output)

    def test_same_bits_of_whole_parameters_on_other_grids(self):
        """Muon's matrices are dealt to other ranks there, and sums over whole parameters have other parts; a checkpoint
        holds states whole."""
        flags = ["--run.same_bits", "true", "--batch.global", "16", "--batch.micro", "2", "--schedule.name",
                 "constant", "--schedule.warmup", "2", "--checkpoint.every", "4", "--eval.every", "0",
                 "--optim.name", "muon", "--optim.clip_each", "0.5", "--optim.clip_value", "0.05",
                 "--optim.groups", "*.down.weight: lion lr=0.1; *.up.weight: adafactor; *.query.weight: lamb; "
                 "*.key.weight: lars; *.bias: adafactor"]
        whole = self.train("matrices", 4, *flags, "--run.steps", "8", "--grid.data", "4")
        self.assertEqual(self.train("matrices-alone", 1, *flags, "--run.steps", "8"), whole)
        self.train("matrices-parted", 4, *flags, "--run.steps", "4", "--shard.stage", "3", "--shard.group", "2")
        for ranks, steps, grid in ((2, "6", ["--grid.pipeline", "2"]), (2, "8", ["--shard.stage", "1"])):
            trained = self.train("matrices-parted", ranks, *flags, "--run.steps", steps, *grid)
        self.assertEqual(trained, whole)
        self.assertNotIn("begins anew", self.output)

    def test_averages_of_weights(self):
        few = ["--run.same_bits", "true", "--batch.global", "16", "--batch.micro", "2", "--schedule.name", "constant",
               "--schedule.warmup", "2", "--checkpoint.every", "4", "--eval.every", "4"]
        average = ["--optim.average", "swa", "--optim.average_from", "2", "--eval.weights", "average"]
        plain = self.train("no-average", 1, *few, "--run.steps", "8")
        averaged = self.train("average", 1, *few, *average, "--run.steps", "8")
        self.assertRegex(self.output, r"step 8: evaluation loss .*, of the averaged weights \(")
        self.assertEqual({m.get("eval_weights") for m in averaged if "eval_loss" in m}, {"average"})
        self.assertEqual({m.get("eval_weights") for m in plain if "eval_loss" in m}, {None})

        def steps(metrics):
            return [m for m in metrics if "loss" in m]

        def evaluation(run, *more):
            done = subprocess.run([PROGRAM, "eval", "--checkpoint", self.folder / run, "--data",
                                   self.folder / "data/validation.h5", *more], text=True, capture_output=True, timeout=60)
            return done.returncode, done.stdout + done.stderr

        # Steps are those of a run without an average, evaluations are not.
        self.assertEqual(steps(averaged), steps(plain))
        of_average, of_last = ([m for m in run if m["step"] == 8 and "eval_loss" in m][0]["eval_loss"]
                               for run in (averaged, plain))
        self.assertNotEqual(of_average, of_last)
        for weights, loss in (("average", of_average), ("last", of_last)):
            status, said = evaluation("average", "--weights", weights)
            self.assertEqual(status, 0, said)
            self.assertAlmostEqual(float(re.search(r"loss +([\d.]+)", said)[1]), loss, places=3)
        exported = {}
        for weights in ("average", "last"):
            subprocess.run([PROGRAM, "export", "--checkpoint", self.folder / "average", "--weights", weights, "--output",
                            self.folder / f"exported-{weights}"], check=True, capture_output=True, timeout=60)
            exported[weights] = (self.folder / f"exported-{weights}/model.safetensors").read_bytes()
        self.assertEqual(len(exported["average"]), len(exported["last"]))
        self.assertNotEqual(exported["average"], exported["last"])
        # bad input: `eval`, `export`: `--weights average` of a checkpoint without an average | ...: holds no average of
        # the weights: its run had optim.average none | 4
        status, said = evaluation("no-average", "--weights", "average")
        self.assertEqual(status, 4)
        self.assertIn("holds no average of the weights: its run had optim.average none", said)
        # bad input: `eval`, `export`: `--weights average` of a run with `schedule_free` | ...: holds no average of the
        # weights: its run had schedule_free, whose weights are an average themselves: leave --weights out | 4
        self.train("schedule-free", 1, *few, "--run.steps", "2", "--optim.name", "schedule_free")
        status, said = evaluation("schedule-free", "--weights", "average")
        self.assertEqual(status, 4)
        self.assertIn("its run had schedule_free, whose weights are an average themselves: leave --weights out", said)
        # A switch of what is evaluated is told, and so is an average that no step will reach.
        late = ["--optim.average_from", "20", "--run.steps", "10", "--eval.weights", "last"]
        self.train("average", 1, *few, *average, *late)
        self.assertIn("eval.weights was average, is last", self.output)
        self.assertIn("optim.average_from 20: no step up to run.steps 10 is in the average", self.output)
        # The average goes on, on any grid.
        self.train("average-parted", 4, *few, *average, "--run.steps", "4", "--shard.stage", "3", "--shard.group", "2")
        self.assertEqual(self.train("average-parted", 2, *few, *average, "--run.steps", "8", "--grid.pipeline", "2"),
                         averaged)
        self.assertNotIn("the average of the weights", self.output)
        self.train("average-parted", 1, *few, "--run.steps", "9", "--run.accept_changes", "true")
        self.assertIn("the average of the weights is dropped (optim.average none)\n", self.output)
        self.train("average-parted", 1, *few, *average, "--run.steps", "10", "--run.accept_changes", "true")
        self.assertIn("the average of the weights begins with these\n", self.output)

    def test_same_bits_that_are_new_to_a_run(self):
        flags = ["--batch.global", "16", "--batch.micro", "2", "--checkpoint.every", "6", "--eval.every", "0"]
        self.train("bits-new", 3, *flags, "--run.steps", "6")
        bits = ("--run.same_bits", "true")
        # It is as at a fresh start: nobody lost a node.
        self.train("bits-new", 3, *flags, "--run.steps", "12", *bits, status=2)
        self.assertIn("run.same_bits: 3 data replicas do not divide 8 runs of micro-batches; with 3 ranks grid 1 x 3 x 1",
                      self.output)
        self.train("bits-new", 2, *flags, "--run.steps", "8", *bits)
        self.train("bits-new", 3, *flags, "--run.steps", "12", *bits)
        self.assertIn("run.same_bits: grid 1 x 3 x 1", self.output)

    def test_shards_have_the_bits_of_copies(self):
        # They have them from a fresh start, and from checkpoints of and for another stage.
        self.assertEqual(self.train("stage-1", 2, "--grid.data", "2", "--shard.stage", "1"), self.whole)
        runs = ["--batch.runs", "2"]
        whole = self.train("two-runs", 2, "--grid.data", "2", *runs)
        self.assertEqual(self.train("stage-2", 2, "--grid.data", "2", "--shard.stage", "2", *runs), whole)
        self.assertIn("whole gradients stay, since a run has several micro-batches", self.output)
        self.start_over_from("to-shards", 20, of="two-runs")
        self.assertEqual(self.train("to-shards", 2, "--shard.stage", "3", "--run.steps", "60", *runs), whole)
        self.assertRegex(self.output, "(?m)^shards +")
        self.assertNotIn("batch_runs was", self.output)
        for path in (self.folder / "to-shards/checkpoints").iterdir():
            if path != self.checkpoint("to-shards", 40):
                path.unlink()
        self.assertEqual(self.train("to-shards", 2, *runs), whole)

    def test_gradients_are_divided_by_default_where_replicas_are_a_power_of_two(self):
        # Among this many blocks those that compute hold little.
        deep = ("--model.layers", "12", "--batch.micro", "3", "--run.steps", "12", "--checkpoint.every", "6")
        runs = self.train("runs", 2, "--grid.data", "2", *deep, "--batch.runs", "4")
        for stage, held in ((2, ""), (3, "weights, ")):
            with self.subTest(stage=stage):
                self.assertEqual(self.train(f"runs-{stage}", 2, "--grid.data", "2", *deep, "--shard.stage", str(stage)),
                                 runs)
                self.assertRegex(self.output, "(?m)^gradients +4 runs of 1 micro-batch; 2 reductions a step$")
                self.assertIn(f"each rank holds 1/2 of {held}gradients, master weights and optimizer state; ",
                              self.output)
                self.assertNotIn("whole gradients stay", self.output)
        self.train("other-runs", 2, "--grid.data", "2", *deep)
        for path in (self.folder / "other-runs/checkpoints").iterdir():
            if path != self.checkpoint("other-runs", 6):
                path.unlink()
        self.train("other-runs", 2, *deep, "--shard.stage", "2")
        self.assertRegex(self.output, "(?m)^results will agree to rounding, not to the bit: .*batch_runs was 2, is 4$")
        self.assertEqual(self.train("many", 2, "--grid.data", "2", "--shard.stage", "2"), self.whole)
        self.assertRegex(self.output, r"; whole gradients stay, since gradients that are reduced after each micro-batch "
                         r"would take no less \([\d.]+ KiB, not [\d.]+ KiB\)\n")
        self.train("three", 3, "--shard.stage", "2", "--run.steps", "2")
        self.assertIn("; whole gradients stay, since 3 data replicas are no power of two that divides 6 micro-batches\n",
                      self.output)
        self.train("three-runs", 3, "--shard.stage", "2", "--batch.runs", "6", "--run.steps", "2")
        self.assertIn("; whole gradients stay, since a data replica adds up its runs before it reduces them\n",
                      self.output)

    def test_a_version_that_changes_bits_is_told(self):
        """The table in modules/CHANGES.md; what touches this machine is told where a checkpoint is of before it."""
        self.start_over_from("this-version", 20)
        self.train("this-version", 2)
        self.assertNotIn("arithmetic was", self.output)
        self.start_over_from("earlier-version", 20)
        self.remove("earlier-version", 20, "arithmetic")
        self.losses_agree(self.train("earlier-version", 2), 21, 2e-5)
        by_shape = "oneDNN" in subprocess.run([PROGRAM, "version"], check=True, capture_output=True, text=True,
                                              timeout=60).stdout.split("fp32 products")[1].splitlines()[0]
        page = (pathlib.Path(__file__).resolve().parents[2] / "modules/CHANGES.md").read_text(encoding="utf-8")
        now = re.findall(r"(?m)^\| (\d+) \| .+ \|$", page.split("## Versions that change bits")[1])[-1]
        said = (f"results will agree to rounding, not to the bit: arithmetic was 1, is {now} (products in fp32 on CPUs "
                "with AVX-512 go by sgemm or own kernels where these are faster)\n")
        (self.assertIn if by_shape else self.assertNotIn)(said, self.output)

    def test_shards_go_on_on_other_grids(self):
        for ranks, flags in ((4, ["--grid.tensor", "2", "--shard.stage", "3", "--shard.prefetch", "2"]),
                             (4, ["--grid.pipeline", "2", "--shard.stage", "3", "--shard.prefetch", "0"]),
                             (4, ["--shard.stage", "3", "--shard.group", "2", "--recompute.mode", "full"]),
                             (2, ["--grid.pipeline", "2", "--recompute.mode", "full", "--recompute.blocks", "1"]),
                             (3, ["--shard.stage", "2"])):
            with self.subTest(flags=flags):
                run = f"shards-{ranks}{''.join(flags)}"
                self.start_over_from(run, 20)
                self.losses_agree(self.train(run, ranks, *flags), 21, 2e-5)

    def test_resume_on_other_grids(self):
        for ranks, grid in ((1, []), (2, ["--grid.tensor", "2"]), (2, ["--grid.pipeline", "2"]),
                            (4, ["--grid.tensor", "2", "--grid.pipeline", "2"])):
            run = "grid-" + "".join(grid).replace("--grid.", "") + str(ranks)
            with self.subTest(grid=grid):
                self.start_over_from(run, 20)
                self.losses_agree(self.train(run, ranks, *grid), 21, 2e-5)
                self.assertIn("agree to rounding", self.output)

    # A checkpoint knows nothing of the parts of the model that a stage holds.
    def test_resume_with_other_chunks(self):
        stages = ["--grid.pipeline", "2", "--grid.schedule"]
        self.start_over_from("chunks", 20)
        self.losses_agree(self.train("chunks", 2, *stages, "zb-v"), 21, 2e-5)
        self.assertRegex(self.output, r"(?m)^stages .*embedding and head \| .*; schedule zb-v, by FLOPs idle \d+ %")
        for left, ranks, more in ((20, 2, [*stages, "interleaved"]), (40, 1, [])):
            for step in range(left + 20, STEPS + 1, 20):
                self.checkpoint("chunks", step).unlink()
            self.losses_agree(self.train("chunks", ranks, *more), left + 1, 2e-5)

    def test_tf32_is_fp32_on_a_cpu(self):
        self.assertEqual(self.train("tf32", 2, "--grid.data", "2", "--run.precision", "tf32"), self.whole)
        self.assertRegex(self.output, r"compute +fp32 \(tf32 is for GPUs\), ")

    def test_fp16_resumes_with_its_loss_scale(self):
        more = ["--grid.data", "2", "--run.precision", "fp16", "--optim.loss_scale_interval", "15"]
        half = self.train("half", 2, *more)
        self.losses_agree(half, 1, 2e-2)
        steps = [m for m in half if "loss" in m]
        self.assertEqual([m["loss_scale"] for m in steps[:30]], [1024] * 14 + [2048] * 15 + [4096])
        for step in (40, 60):
            self.checkpoint("half", step).unlink()
        self.assertEqual(self.train("half", 2, *more), half)
        self.assertIn("step 20", self.output)
        # A new scale begins after a checkpoint of another precision, which has none.
        self.start_over_from("to-half", 20)
        metrics = self.train("to-half", 2, *more)
        scales = [m.get("loss_scale") for m in metrics if "loss" in m]
        self.assertEqual(scales[:35], [None] * 20 + [1024] * 14 + [2048])
        fixed = self.train("fixed", 2, *more[:-2], "--optim.loss_scale", "512", "--run.steps", "3")
        self.assertEqual([m["loss_scale"] for m in fixed if "loss" in m], [512] * 3)

    # AdamW counts updates. They are fewer than steps where steps were skipped.
    def test_updates_are_counted_across_a_start(self):
        # The scale doubles until it is too large, and again after each step that is not skipped.
        more = ["--grid.data", "2", "--run.precision", "fp16", "--optim.loss_scale_interval", "1"]
        skips = self.train("skips", 2, *more)
        lines = (self.folder / "skips/metrics.jsonl").read_text().splitlines()[:20]
        self.assertGreaterEqual(sum(json.loads(line).get("skipped", False) for line in lines), 3)
        self.start_over_from("skips-on", 20, of="skips")
        self.assertEqual(self.train("skips-on", 2, *more), skips)
        self.assertIn("step-00000020.h5, step 20", self.output)
        differ = subprocess.run([DIFFERENCE, "--bits", self.checkpoint("skips", STEPS),
                                 self.checkpoint("skips-on", STEPS)], check=True, capture_output=True, timeout=60)
        self.assertEqual(differ.stdout, b"")
        # A checkpoint of a version that stored no count starts from its step.
        self.start_over_from("uncounted", 20)
        self.remove("uncounted", 20, "state/updates")
        self.assertEqual(self.train("uncounted", 2, "--grid.data", "2"), self.whole)
        self.start_over_from("uncounted-skips", 20, of="skips")
        self.remove("uncounted-skips", 20, "state/updates")
        metrics = self.train("uncounted-skips", 2, *more)
        self.assertEqual([m["step"] for m in metrics if "loss" in m], list(range(1, STEPS + 1)))
        self.assertNotEqual(metrics, skips)

    def test_fp16_skips_what_overflows_and_ends_where_no_scale_helps(self):
        flags = ("--grid.data", "2", "--run.precision", "fp16", "--optim.lr", "1e30", "--optim.clip", "0")
        # The first start sees the scale reach 1, and 5 steps of that. The next one goes on counting.
        self.train("overflows", 2, *flags, "--run.steps", "15")
        self.assertIn("the last 14 steps were skipped: their gradients were not finite\n", self.output)
        self.train("overflows", 2, *flags, status=6)
        self.assertIn("the last 10 steps had non-finite gradients (loss ", self.output)
        self.assertIn("SKIPPED: gradients overflow fp16; loss scale 1\n", self.output)
        steps = [json.loads(line) for line in (self.folder / "overflows/metrics.jsonl").read_text().splitlines()]
        skipped = [m["loss_scale"] for m in steps if m.get("skipped")]
        self.assertEqual(skipped, [2.0 ** n for n in range(9, 0, -1)] + [1] * 10)

    def test_epochs_become_steps(self):
        flags = ("--run.steps", "0.1ep", "--checkpoint.every", "0.05ep")
        steps = len([line for line in self.train("epochs", 1, *flags) if "loss" in line])
        self.assertIn("the run reads 0.10 epochs", self.output)
        config = (self.folder / "epochs/config.ini").read_text()
        self.assertIn(f"\nsteps = {steps}\n", config)
        self.assertNotIn("ep\n", config)
        self.assertTrue(self.checkpoint("epochs", (steps + 1) // 2).exists())
        self.train("epochs", 1, *flags)
        self.assertIn(f"all {steps} steps are done", self.output)

    def test_done_already(self):
        self.start_over_from("done", 60)
        self.assertEqual(self.train("done", 2, "--grid.data", "2"), self.whole)
        self.assertIn("nothing to train", self.output)

    def test_a_start_without_steps_changes_no_record(self):
        self.copy_of_whole("no_steps")
        folder = self.folder / "no_steps"

        def records():
            return {path.name: path.read_bytes() for path in folder.iterdir()
                    if path.is_file() and not path.name.startswith("lease")}

        def top():
            return subprocess.run([PROGRAM, "top", "--once", folder], text=True, capture_output=True, check=True,
                                  timeout=60).stdout
        # It is as if the last start had promised the same bits in vain.
        branch = json.loads((folder / "branch.json").read_text()) | {"bits_parted": True}
        (folder / "branch.json").write_text(json.dumps(branch))
        before = records()
        self.assertIn("all 30 steps are done: nothing to train",
                      self.alone("no_steps", "--run.steps", "30", "--optim.lr", "5"))
        self.assertEqual(records(), before)
        self.assertRegex(top(), r"(?m)^step +60 of 60 .* 100\.0 %$")
        # Earlier versions left it so.
        (folder / "config.ini").write_bytes(before["config.ini"].replace(b"\nsteps = 60\n", b"\nsteps = 30\n"))
        self.assertRegex(top(), r"(?m)^step +60 of 60 .* 100\.0 %$")

    def test_the_config_of_a_run_means_that_run(self):
        here, there = self.folder / "own", self.folder / "own/there"
        there.mkdir(parents=True)
        (here / "data").symlink_to(self.folder / "data")

        def train(cwd, *given, ranks=0):
            command = launch(ranks, "train", *given) if ranks else [PROGRAM, "train", *given]
            done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            return done.stdout + done.stderr
        train(here, "--data.train", "data/train.h5", "--data.validation", "data/validation.h5", "--run.folder", "run",
              "--run.resume", "never", "--run.accept_changes", "true", *MODEL, "--run.steps", "3")
        config = (here / "run/config.ini").read_text()
        for line in ("folder = {}/run", "train = {}/data/train.h5", "validation = {}/data/validation.h5"):
            self.assertIn("\n" + line.format(here.resolve()) + "\n", config)
        self.assertNotIn("resume", config)
        self.assertNotIn("accept_changes", config)
        # Earlier versions wrote it so.
        old = config.replace(f"folder = {here.resolve()}/run", "folder = run\nresume = never")
        (here / "run/config.ini").write_text(old)
        text = train(there, "--config", "../run/config.ini", "--run.steps", "4")
        self.assertIn("../run/config.ini:3: run.resume = never was for an earlier start and is ignored", text)
        self.assertIn("going on from ../run/checkpoints/step-00000003.h5, step 3", text)
        self.assertEqual(list(there.iterdir()), [])
        # A copy goes on by itself, on several ranks too.
        shutil.copytree(here / "run", there / "copy")
        text = train(here, "--config", "there/copy/config.ini", "--run.steps", "5", "--grid.data", "2", ranks=2)
        self.assertIn("going on from there/copy/checkpoints/step-00000004.h5, step 4", text)
        self.assertIn("nothing to train", train(here, "--config", "run/config.ini"))
        self.assertEqual(self.steps_of("own/run"), [3, 4])
        self.assertEqual(self.steps_of("own/there/copy"), [3, 4, 5])
        self.assertIn(f"\nfolder = {there.resolve()}/copy\n", (there / "copy/config.ini").read_text())

    def wait_for_steps(self, run, process, count):
        path = self.folder / run / "metrics.jsonl"
        while not path.exists() or path.read_text().count("\n") < count:
            self.assertIsNone(process.poll(), "training ended early")
            time.sleep(0.005)

    def ranks_of(self, process):
        """Process ids of the ranks below mpiexec."""
        below = {}
        for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rsplit(")", 1)
            except OSError:
                continue
            below.setdefault(int(fields[1].split()[1]), []).append(
                (int(fields[0].split()[0]), fields[0].split("(")[1]))
        found, queue = [], [process.pid]
        while queue:
            for pid, name in below.get(queue.pop(), []):
                queue.append(pid)
                if name == PROGRAM.name:
                    found.append(pid)
        return sorted(found)

    def test_signal_on_one_rank_stops_all_with_a_checkpoint(self):
        for number, name in ((signal.SIGTERM, "term"), (signal.SIGUSR1, "usr1"), (signal.SIGINT, "int"),
                             (signal.SIGUSR2, "usr2"), (signal.SIGXCPU, "xcpu")):
            with self.subTest(signal=name):
                # Enough steps that it cannot end first; the curve of the learning rate stays the same.
                more = ["--grid.data", "2", "--run.steps", "100000", "--schedule.name", "constant",
                        "--schedule.warmup", "5"]
                process = subprocess.Popen(launch(2, *self.arguments(name, *more)),
                                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                self.addCleanup(process.kill)
                self.wait_for_steps(name, process, 5)
                os.kill(self.ranks_of(process)[-1], number)
                output, errors = process.communicate(timeout=60)
                self.assertEqual(process.returncode, 75, output + errors)
                stopped = self.metrics(name)[-1]["step"]
                self.assertIn(f"stopped by {signal.Signals(number).name} (as ", output)
                self.assertIn(f") after step {stopped}; the same command goes on", output)
                self.assertTrue(self.checkpoint(name, stopped).exists())

    def start_alone(self, name, *more, interrupt=signal.SIG_DFL):
        """A run of one rank without a launcher, which begins with that disposition of SIGINT."""
        process = subprocess.Popen([PROGRAM, *self.arguments(name, *more)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, preexec_fn=lambda: signal.signal(signal.SIGINT, interrupt))
        self.addCleanup(process.kill)
        return process

    def test_a_start_takes_a_checkpoint_for_as_long_as_the_last_one(self):
        """A job with a day left goes on to the end, but stops at once where checkpoints take longer than that."""
        self.train("slow", 1, "--run.steps", "4")
        events = self.folder / "slow" / "events.jsonl"
        with events.open("a", encoding="utf-8") as file:
            file.write('{"time": 1, "step": 4, "event": "checkpoint", "seconds": 1e6}\n')
        environment = {**os.environ, "SLURM_JOB_ID": "1", "SLURM_JOB_END_TIME": str(int(time.time()) + 86400)}
        # The checkpoint of the stop is a quick one.
        for status, last in ((75, 5), (0, STEPS)):
            done = subprocess.run([PROGRAM, *self.arguments("slow")], env=environment, capture_output=True,
                                  text=True, timeout=120, check=False)
            self.assertEqual(done.returncode, status, done.stdout + done.stderr)
            self.assertEqual(self.metrics("slow")[-1]["step"], last)

    def test_signal_that_was_ignored_at_the_start_stays_ignored(self):
        process = self.start_alone("ignored", "--run.steps", "100000", "--schedule.name", "constant", "--schedule.warmup",
                                   "5", interrupt=signal.SIG_IGN)
        self.wait_for_steps("ignored", process, 5)
        process.send_signal(signal.SIGINT)
        self.wait_for_steps("ignored", process, len(self.metrics("ignored")) + 20)
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 75, output + errors)

    def test_second_interrupt_ends_the_run_at_once(self):
        process = self.start_alone("interrupts", "--batch.global", "800000")  # a step takes longer than this test
        while "start" not in (self.text_of("interrupts/events.jsonl")):
            self.assertIsNone(process.poll())
            time.sleep(0.05)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)  # as a launcher may pass it on twice
        time.sleep(1.2)
        self.assertIsNone(process.poll())
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, output + errors)
        self.assertIn("SIGINT: stops after this step; a second one ends the run at once\n", output)

    def text_of(self, name):
        path = self.folder / name
        return path.read_text() if path.exists() else ""

    def test_kill_loses_nothing_before_the_last_checkpoint(self):
        process = subprocess.Popen(launch(2, *self.arguments("killed", "--grid.data", "2")),
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(process.kill)
        self.wait_for_steps("killed", process, 25)
        os.kill(self.ranks_of(process)[-1], signal.SIGKILL)
        self.assertNotEqual(process.wait(timeout=60), 0)
        done = len([line for line in self.metrics("killed") if "loss" in line])
        self.assertEqual(self.train("killed", 2, "--grid.data", "2"), self.whole)
        # What was lost is told: the steps that were repeated, and the time of the failure.
        discarded, = [event for event in self.events("killed") if event["event"] == "discard"]
        self.assertRegex(discarded["detail"], rf"\Asteps? {discarded['step'] + 1}\D.*\b{done}\b")
        self.assertGreater(discarded["seconds"], 0)
        self.assertRegex(self.output.splitlines()[-1], r"\Agoodput \d+\.\d % of .*failures \d.*")
        self.assertIn("steps not kept", self.output.splitlines()[-1])

    def test_divergence_ends_with_6(self):
        self.train("diverged", 2, "--grid.data", "2", "--optim.lr", "1e30", "--optim.clip", "0", status=6)
        # bad input: `train`: gradients that stay non-finite | the last 10 steps had non-finite gradients |
        # 6
        self.assertIn("non-finite gradients", self.output)
        event = self.events("diverged")[-1]
        self.assertEqual(event["event"], "failure")
        self.assertIn("non-finite gradients", event["detail"])
        self.assertIn("failed: the last 10 steps had", (self.folder / "diverged/report.html").read_text())
        # Step 1 was taken, but has no checkpoint.
        self.assertIn("; no checkpoint from before is left: begin anew (--run.resume never) with a lower", self.output)

    def way_back(self, run, step):
        path = self.checkpoint(run, step)
        return f"; go on from {path.name} (--run.resume {path}) with a lower optim.lr\n"

    def test_the_checkpoint_from_before_the_skipped_steps_stays(self):
        for ranks in (1, 2):
            run = f"astray-{ranks}"
            flags = ["--grid.data", str(ranks), "--checkpoint.every", "4", "--checkpoint.keep", "1", "--eval.every", "0",
                     "--schedule.name", "constant", "--schedule.warmup", "0"]
            far = [*flags, "--optim.lr", "1e30", "--optim.clip", "0"]
            self.train(run, ranks, *flags, "--run.steps", "10")
            self.assertEqual(self.steps_of(run), [10])
            # Step 11 is taken, to weights that are finite, but so large that no step after it can be.
            self.train(run, ranks, *far, "--run.steps", "17")
            self.assertIn("the last 6 steps were skipped: their gradients were not finite\n", self.output)
            self.assertEqual(self.steps_of(run), [10, 17])
            # The next start knows of them.
            # bad input: `train`: steps that are all skipped | the last 10 steps had non-finite gradients (loss ...); go
            # on from step-00000010.h5 (--run.resume ...) with a lower optim.lr | 6
            self.train(run, ranks, *far, status=6)
            self.assertIn("the last 6 steps were skipped: their gradients were not finite\n", self.output)
            self.assertIn("the last 10 steps had non-finite gradients (loss ", self.output)
            self.assertIn(self.way_back(run, 10), self.output)
            self.assertEqual(self.events(run)[-1]["step"], 21)
            self.assertEqual(self.steps_of(run), [10, 20])
            self.train(run, ranks, *flags, "--run.resume", str(self.checkpoint(run, 10)), "--run.steps", "13")
            self.assertNotIn("skipped", self.output)
            self.assertEqual(self.steps_of(run), [13])

    def test_weights_that_are_not_finite_get_no_checkpoint(self):
        for ranks in (1, 2):
            run = f"infinite-{ranks}"
            flags = ["--grid.data", str(ranks), "--checkpoint.every", "5", "--checkpoint.keep", "2", "--eval.every", "0",
                     "--schedule.name", "constant", "--schedule.warmup", "0"]
            far = [*flags, "--optim.lr", "1e30", "--optim.weight_decay", "1e30"]
            self.train(run, ranks, *flags, "--run.steps", "10")
            # They become infinite in step 11.
            # bad input: `train`: weights that are NaN or infinite after a skipped step | the last 2 steps were skipped:
            # their gradients were not finite; 40064 weights are NaN or infinite, ...; go on from ... | 6
            # bad input: `train`: weights that are NaN or infinite after the last step | 40064 weights are NaN or
            # infinite, ...; go on from ... | 6
            for steps, last, skipped in (("11", 11, ""), ("13", 13, "the last 2 steps were skipped: their gradients were "
                                                                    "not finite; "),
                                         ("60", 15, "the last 4 steps were skipped: their gradients were not finite; ")):
                self.train(run, ranks, *far, "--run.steps", steps, status=6)
                self.assertRegex(self.output, rf"(?m)^[^;]*{skipped}\d+ weights are NaN or infinite, the first in "
                                              r"parameters/[^ ;]+; go on from")
                self.assertIn(self.way_back(run, 10), self.output)
                self.assertEqual(self.steps_of(run), [5, 10])
                event = self.events(run)[-1]
                self.assertEqual((event["event"], event["step"]), ("failure", last))
            # An earlier version has looked after skipped steps alone. A start leaves such a folder as it is.
            # bad input: `train`: goes on from weights that are NaN or infinite | ...: 40064 weights are NaN or infinite,
            # the first in parameters/..., so nothing can be learned from there: go on from step-00000010.h5 ... | 4
            self.train(run, ranks, *flags, "--run.steps", "11")
            self.remove(run, 11, "parameters/norm.weight", "infinite")
            for steps in ("11", "60"):
                self.train(run, ranks, *flags, "--run.steps", steps, status=4)
                self.assertRegex(self.output, r"/step-00000011\.h5: 32 weights are NaN or infinite, the first in "
                                              r"parameters/norm.weight, so nothing can be learned from there: go on from")
                self.assertIn(self.way_back(run, 10)[2:], self.output)
            self.train(run, ranks, *flags, "--run.resume", str(self.checkpoint(run, 10)), "--run.steps", "12")
            self.assertEqual(self.steps_of(run), [10, 12])

    def refused(self, ranks, *more, status=2):
        done = subprocess.run(launch(ranks, *self.arguments("refused", *more)), capture_output=True,
                              text=True, timeout=60)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        self.assertFalse((self.folder / "refused").exists(), "a refused run left a folder behind")
        lines = done.stderr.strip().splitlines()
        self.assertEqual(len(lines), 1, done.stderr)
        return lines[0]

    def test_refusals(self):
        for ranks, more, status, words in (
                # bad input: `train`: a grid that the ranks do not fill | grid 3 x 1 x 1 needs 3 ranks, and
                # there are 4: ... would fit | 2
                (4, ["--grid.data", "3", "--grid.tensor", "1", "--grid.pipeline", "1"], 2, "needs 3 ranks"),
                # bad input: `train`: heads that the tensor ranks cannot split | ... heads cannot be split
                # over ... tensor ranks | 2
                (4, ["--grid.tensor", "4", "--model.heads", "2"], 2, "heads"),
                # bad input: `train --run.precision fp8`: positions of a micro-batch that are no whole blocks |
                # run.precision fp8 multiplies blocks of 128 positions, but a micro-batch has 32 (batch.micro 2 x 16 of a
                # sample): make batch.micro a multiple of 8, or give run.precision bf16 | 2
                (2, ["--run.precision", "fp8"], 2,
                 "run.precision fp8 multiplies blocks of 128 positions, but a micro-batch has 32 (batch.micro 2 x 16 of a "
                 "sample): make batch.micro a multiple of 8, or give run.precision bf16"),
                # bad input: `train --run.precision fp8`: layers that are no whole blocks on a rank | run.precision fp8
                # multiplies blocks of 128 x 128, but ... 192 x 128 on a rank: make the model's widths, divided by
                # grid.tensor, multiples of 128, or give run.precision bf16 | 2
                (2, ["--run.precision", "fp8", "--grid.tensor", "2", "--model.width", "128", "--model.context", "64"], 2,
                 "but blocks.0.attention.query.weight and what is packed with it are 192 x 128 on a rank: make the model's "
                 "widths, divided by grid.tensor, multiples of 128, or give run.precision bf16"),
                # bad input: `train`: more stages than blocks | more stages than blocks: ... | 2
                (4, ["--grid.pipeline", "4", "--model.layers", "1"], 2, "more stages than blocks"),
                # bad input: `train`: more chunks than blocks | more parts than blocks: ... | 2
                (2, ["--grid.pipeline", "2", "--grid.schedule", "interleaved", "--grid.chunks", "4"], 2,
                 "more parts than blocks: grid.pipeline is 2 and each stage has 4 chunks"),
                # bad input: `train`: interleaved micro-batches that the stages do not divide | ... takes
                # micro-batches in groups of one for each of the ... stages ...: a batch.global of ... or
                # ... would be whole groups | 2
                (2, ["--grid.pipeline", "2", "--grid.schedule", "interleaved", "--batch.global", "6",
                     "--batch.micro", "2"], 2, "a batch.global of 4 or 8 would be whole groups"),
                (2, ["--batch.micro", "auto", "--run.same_bits", "true"], 2,
                 "batch.micro is auto, but the bits of run.same_bits depend on it: give a number, or leave it out for 4"),
                (4, ["--grid.data", "4", "--batch.global", "3", "--batch.micro", "auto"], 2, "replicas"),
                (2, ["--grid.pipeline", "2", "--grid.chunks", "2"], 2, "grid.chunks is 2, but grid.schedule 1f1b"),
                # bad input: `train`: a vocabulary that is not the data's | model.vocabulary is ..., but the
                # data has ... tokens | 2
                (2, ["--model.vocabulary", "60"], 2, "model.vocabulary is 60"),
                # bad input: `train`: fewer micro-batches than replicas | ... micro-batches a step ... are
                # fewer than ... data replicas | 2
                (4, ["--grid.data", "4", "--batch.global", "6", "--batch.micro", "2"], 2, "replicas"),
                # bad input: `train`: batch.runs that micro-batches or replicas do not divide | batch.runs is ...,
                # but ... micro-batches a step (batch.global / batch.micro) on ... data replicas can be ... runs | 2
                (2, ["--grid.data", "2", "--batch.global", "16", "--batch.micro", "2", "--batch.runs", "3"], 2,
                 "batch.runs is 3, but 8 micro-batches a step (batch.global / batch.micro) on 2 data replicas can be "
                 "one of 2, 4, 8 runs"),
                # bad input: `train`: `shard.group` that does not divide the data replicas | shard.group 3 does not divide
                # the 4 data replicas: 2, 4 do | 2
                (4, ["--shard.stage", "1", "--shard.group", "3"], 2,
                 "shard.group 3 does not divide the 4 data replicas: 2, 4 do"),
                # bad input: `train`: `shard.stage` 3 with one data replica | shard.stage 3 divides the weights among data
                # replicas, but grid.data is 1: start more ranks, or leave shard.stage out | 2
                (2, ["--shard.stage", "3", "--grid.tensor", "2"], 2,
                 "shard.stage 3 divides the weights among data replicas, but grid.data is 1: start more ranks, or "
                 "leave shard.stage out"),
                # bad input: `train`: `run.same_bits` with data replicas that do not divide the runs | run.same_bits:
                # 3 data replicas do not divide 8 runs of micro-batches; with 3 ranks grid 1 x 3 x 1 would | 2
                (3, ["--grid.data", "3", "--batch.global", "16", "--batch.micro", "2", "--run.same_bits", "true"], 2,
                 "run.same_bits: 3 data replicas do not divide 8 runs of micro-batches; with 3 ranks grid 1 x 3 x 1 "
                 "would"),
                # bad input: `train`: a pattern of `optim.freeze` that matches no parameter | optim.freeze block.*: no
                # parameter of the model has such a name; there are embedding.weight, ... | 2
                (2, ["--optim.freeze", "embedding.*,block.*"], 2, "optim.freeze block.*: no parameter of the model has "
                 "such a name; there are embedding.weight, positions.weight, blocks.*.norm1.weight, "),
                # bad input: `train`: `optim.freeze` takes all parameters | optim.freeze *: takes all parameters, so
                # nothing would train | 2
                (2, ["--optim.freeze", "*"], 2, "optim.freeze *: takes all parameters, so nothing would train"),
                # bad input: `train`: `optim.freeze` takes query without key and value | optim.freeze takes NAME but not
                # NAME: they lie together in memory, so freeze both or none | 2
                (2, ["--optim.freeze", "*.query.*"], 2, "optim.freeze takes blocks.0.attention.query.weight but not "
                 "blocks.0.attention.key.weight: they lie together in memory"),
                # bad input: `train`: global batch not divisible by the micro-batch | batch.global ... | 2
                (2, ["--batch.global", "7"], 2, "batch.global"),
                # bad input: `train`: data that is missing, or no HDF5 file | names the file | 3
                (2, ["--data.train", str(self.folder / "no.h5")], 3, "no.h5"),
                (2, ["--data.train", str(self.folder / "text.txt")], 3, "text.txt"),
                # bad input: `train`: `--device cuda` in a build without CUDA | run.device is cuda, but this
                # program was built without CUDA: use cpu or auto | 2
                (2, ["--device", "cuda"], 2, "run.device is cuda, but "),
                # bad input: `train`: a model or a micro-batch that the node, or the GPU, cannot hold | memory: 2 ranks a
                # node need about ... MiB (...), a node has ...: ... | 2
                (2, ["--model.width", "1048576"], 2, "memory: 2 ranks "),
                # bad input: `train`: a step of more than 2^32 tokens | batch.global ... x model.context ... are ...
                # tokens a step: at most 4294967296 can be | 2
                (2, ["--batch.global", "16777216", "--model.context", "512"], 2, "tokens a step: at most 4294967296 can be"),
                # bad input: `train`: a negative size; an unknown key | names the key; the nearest one | 2
                (2, ["--model.width", "-3"], 2, "model.width"),
                (2, ["--modle.width", "3"], 2, "model.width")):
            with self.subTest(arguments=more):
                self.assertIn(words, self.refused(ranks, *more, status=status))

    def test_a_flipped_token_ends_the_run(self):
        # One rank reads it, in the middle of an epoch; all end.
        whole = (self.folder / "data/train.h5").read_bytes()
        first = "".join(chr(byte) + "\0" for byte in (self.folder / "text.txt").read_bytes()[:8]).encode()
        at = whole.index(first) + 2 * 9000
        damaged = self.folder / "flipped.h5"
        damaged.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1:])
        done = subprocess.run(launch(2, *self.arguments("flipped", "--grid.data", "2", "--data.train",
                                                        str(damaged), "--run.steps", "200")),
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
        lines = [line for line in done.stderr.splitlines() if line.startswith("trireme: ")]
        self.assertEqual(len(lines), 1, done.stderr)
        self.assertRegex(lines[0], r"flipped.h5: damaged: tokens 8192 to 10239 \(block 4\) do not match")

    def test_changed_settings_are_listed(self):
        self.start_over_from("changed", 20)
        self.train("changed", 2, "--grid.data", "2", "--run.steps", "30", "--optim.lr", "1e-3", "--batch.micro", "3",
                   "--log.every", "500")
        changes = ("run.steps was 60, is 30; optim.lr was 0.003, is 0.001; schedule.warmup was 6, is 3; "
                   "schedule.decay was 54, is 27")
        self.assertIn(f"changed settings: {changes}\n", self.output)
        self.assertIn("results would otherwise agree to rounding, not to the bit: batch.micro was 2, is 3\n",
                      self.output)
        events = self.events("changed")
        self.assertEqual([event["detail"] for event in events if event["event"] == "changed"], [changes])
        # A start draws initial values only where no checkpoint brings them.
        drawn = [event["detail"].split("; ")[1] for event in events if event["event"] == "start"]
        self.assertEqual(drawn, ["33312 initial values drawn", "0 initial values drawn"])

    def events(self, run):
        return [json.loads(line) for line in (self.folder / run / "events.jsonl").read_text().splitlines()]

    def test_a_checkpoint_of_another_run_needs_consent(self):
        self.start_over_from("other", 20)
        (self.folder / "other.txt").write_text("".join(f"line {i * i % 97}\n" for i in range(900)))
        subprocess.run([PROGRAM, "prepare", "--input", self.folder / "other.txt", "--output", self.folder / "other-data",
                        "--tokenizer", "byte"], check=True, capture_output=True)
        more = ["--grid.data", "2", "--run.seed", "9", "--batch.global", "24", "--model.dropout", "0", "--optim.clip",
                "2", "--run.steps", "22", "--data.train", str(self.folder / "other-data/train.h5")]
        others = (r"run\.seed was 1, is 9; model\.dropout was 0\.1\d*, is 0; batch\.global was 12, is 24; "
                  r"data\.train was \(weight 1, shards 1, tokens ")
        before = self.metrics("other")
        self.assertEqual(self.train("other", 2, *more, status=2), before)
        line = [line for line in self.output.splitlines() if line.startswith("trireme: ")]
        self.assertEqual(len(line), 1, self.output)
        # bad input: `train`: checkpoint of other data, `batch.global`, seed, or model keys that change no
        # shape | ... is of another run: run.seed was 1, is 9; ...; also changed: ...;
        # --run.accept_changes true goes on from it all the same, ... | 2
        self.assertRegex(line[0], f"step-00000020.h5 is of another run: {others}")
        self.assertIn("; also changed: run.steps was 60, is 22; optim.clip was 1, is 2; ", line[0])
        self.assertIn("--run.accept_changes true goes on from it all the same", line[0])
        self.train("other", 2, *more, "--run.accept_changes", "true")
        self.assertIn("changed settings: run.steps was 60, is 22; run.seed was 1, is 9; ", self.output)
        # It is the run of the new settings from here on.
        self.train("other", 2, *more, "--run.steps", "23")
        self.assertIn("changed settings: run.steps was 22, is 23; ", self.output)
        self.assertNotIn("run.seed was", self.output)

    # What the data hold counts, however many tokens they are and whatever their files are called.
    def test_other_text_of_the_same_length_needs_consent(self):
        text = (self.folder / "text.txt").read_text()
        (self.folder / "same-length.txt").write_text(text.replace("wing", "ring"))
        subprocess.run([PROGRAM, "prepare", "--input", self.folder / "same-length.txt", "--output",
                        self.folder / "same-length", "--tokenizer", "byte", "--validation", "tail:2000"],
                       check=True, capture_output=True)
        self.start_over_from("text", 20)
        self.train("text", 2, "--grid.data", "2", "--data.train", str(self.folder / "same-length/train.h5"), status=2)
        data = r"\(weight 1, shards 1, (tokens \d+, documents \d+), xxh64:(\w+)\)"
        was = re.search(f"is of another run: data.train was {data}, is {data};", self.output)
        self.assertTrue(was, self.output)
        self.assertEqual(was[1], was[3])
        self.assertNotEqual(was[2], was[4])

    def test_other_weights_of_a_mixture_need_consent(self):
        def mixture(weight):
            return ["--data.train", f"{self.folder / 'data/train.h5'}={weight},{self.folder / 'data/validation.h5'}",
                    "--run.steps", "2"]
        self.alone("mixture", *mixture(3))
        self.assertIn("nothing to train", self.alone("mixture", *mixture(3)))
        self.alone("mixture", *mixture(2), status=2)
        self.assertRegex(self.output, r"step-00000002\.h5 is of another run: data\.train was \(weight 3, shards 1, "
                         r"(tokens \d+, documents \d+, xxh64:\w+)\), is \(weight 2, shards 1, \1\)")

    def test_data_may_move(self):
        shutil.copytree(self.folder / "data", self.folder / "moved-data")
        self.start_over_from("moved", 40)
        self.assertEqual(self.train("moved", 2, "--grid.data", "2", "--data.train", str(self.folder / "moved-data"),
                                    "--data.validation", str(self.folder / "moved-data")), self.whole)
        self.assertNotIn("changed settings", self.output)

    def test_a_checkpoint_of_other_shapes_is_refused(self):
        self.start_over_from("shapes", 20)
        path, config = self.checkpoint("shapes", 20), self.folder / "shapes/config.ini"
        for more, words in ((["--model.width", "64"], "model.width was 32, is 64"),
                            (["--model.layers", "1"], "model.layers was 2, is 1")):
            with self.subTest(more):
                # bad input: `train`: checkpoint of another model | ... is of another run: model.width was
                # 32, is 64; --config RUN/config.ini takes the settings that the run had, and --run.start_from ...
                # begins another run with its weights | 4
                self.train("shapes", 2, "--grid.data", "2", "--run.accept_changes", "true", *more, status=4)
                self.assertRegex(self.output, rf"{path} is of another run: {words}.*; --config {config} takes the settings "
                                              f"that the run had, and --run.start_from {path} begins another run")

    def test_another_optimizer_begins_with_a_state_of_its_own(self):
        all_of_it = "the optimizer's state is of another rule, and begins anew\n"
        some = "the optimizer's state of parameters that another rule updates now begins anew\n"
        for rule, said in (("lion", all_of_it), ("sgd", all_of_it), ("muon", some), ("adafactor", all_of_it), ("adam", None)):
            with self.subTest(rule):
                self.start_over_from(rule, 20)
                self.train(rule, 2, "--grid.data", "2", "--run.accept_changes", "true", "--optim.name", rule,
                           "--run.steps", "22")
                self.assertIn(f"optim.name was adamw, is {rule}", self.output)
                self.assertEqual([line for line in (all_of_it, some) if line in self.output], [said] if said else [])
                self.train(rule, 2, "--grid.tensor", "2", "--optim.name", rule, "--run.steps", "23")
                self.assertNotIn("begins anew", self.output)
                if rule == "muon":  # what it left to AdamW begins anew with what comes back to it
                    self.train(rule, 1, "--run.steps", "24")
                    self.assertIn(some, self.output)
                    self.assertIn("the rest of Adam's averages begins anew with it, since one count", self.output)

    def changed_tensors(self, run, step, later):
        """The names of the tensors that differ between two checkpoints."""
        done = subprocess.run([DIFFERENCE, "--bits", self.checkpoint(run, step), self.checkpoint(run, later)], check=True,
                              capture_output=True, text=True, timeout=60)
        return done.stdout.split()

    def test_frozen_parameters(self):
        freeze = "embedding.*,positions.*,blocks.0.*"
        few = ("--run.steps", "4", "--checkpoint.every", "2", "--eval.every", "4")
        self.train("frozen", 2, "--grid.data", "2", "--optim.freeze", freeze, *few)
        self.assertRegex(self.output, r"parameters, of which [\d.]+ k train \(optim\.freeze\)")
        self.assertNotIn("rounded", self.output)
        start = [e for e in self.events("frozen") if e["event"] == "start"][0]
        self.assertRegex(start["detail"], r"\d+ of \d+ parameters train")
        changed = self.changed_tensors("frozen", 2, 4)
        trained = [name for name in changed if name.startswith("parameters/")]
        self.assertTrue(trained)
        for name in changed:
            self.assertNotRegex(name, r"^(parameters|optimizer)/(embedding|positions|blocks\.0)\.")
        # Other grids and shards have the same losses, to rounding.
        losses = [line["loss"] for line in self.metrics("frozen") if "loss" in line]
        for name, ranks, *grid in (("stages", 2, "--grid.pipeline", "2"), ("tensor", 2, "--grid.tensor", "2"),
                                   ("shards", 2, "--grid.data", "2", "--shard.stage", "3")):
            with self.subTest(name):
                self.start_over_from(f"frozen {name}", 2, of="frozen")
                self.train(f"frozen {name}", ranks, "--optim.freeze", freeze, *few, *grid)
                self.assertNotIn("begins anew", self.output)
                others = [line["loss"] for line in self.metrics(f"frozen {name}") if "loss" in line]
                for a, b in zip(losses, others, strict=True):
                    self.assertAlmostEqual(a, b, delta=1e-4)
        # What is frozen stays; with another list, states begin anew or are dropped.
        self.start_over_from("thawed", 4, of="frozen")
        self.train("thawed", 1, "--optim.freeze", "norm.weight", "--run.steps", "5")
        self.assertIn(f"optim.freeze was {freeze}, is norm.weight", self.output)
        self.assertRegex(self.output, r"the optimizer's state of \d+ parameters that were frozen begins anew\n")
        self.assertIn("the optimizer's state of 1 parameter that is frozen now is dropped\n", self.output)
        rest = "the rest of Adam's averages begins anew with it, since one count of updates corrects all\n"
        self.assertIn(rest, self.output)
        self.train("thawed", 1, "--optim.freeze", "norm.weight", "--run.steps", "6")
        self.assertNotIn("begins anew", self.output)
        self.assertNotIn("dropped", self.output)

    def test_fp8(self):
        more = ("--model.width", "128", "--model.heads", "2", "--model.context", "64", "--batch.global", "4",
                "--run.steps", "4", "--checkpoint.every", "2", "--eval.every", "4", "--batch.runs", "2")
        fp8 = (*more, "--run.precision", "fp8")
        alone = self.train("fp8", 1, *fp8)
        self.assertRegex(self.output, r"compute +bf16, .*; in training those of blocks of e4m3, by .*, e4m3 converted to bf16")
        in_bf16 = self.train("fp8-bf16", 1, *more, "--run.precision", "bf16")
        for narrow, wide in zip(alone, in_bf16):
            if "loss" in narrow:
                self.assertNotEqual(narrow["loss"], wide["loss"])
                self.assertLess(abs(narrow["loss"] / wide["loss"] - 1), 0.01)
        self.assertEqual(self.train("fp8-data", 2, *fp8, "--shard.stage", "3"), alone)
        self.assertEqual(self.train("fp8-stages", 2, *fp8, "--grid.pipeline", "2", "--recompute.mode", "selective"), alone)
        for split, whole in zip(self.train("fp8-split", 2, *fp8, "--optim.masters", "split"), alone):
            if "loss" in whole:  # the weights differ at ties
                self.assertLess(abs(split["loss"] / whole["loss"] - 1), 1e-3)
        self.start_over_from("fp8-resumed", 2, of="fp8")
        self.assertEqual(self.train("fp8-resumed", 1, *fp8, "--recompute.mode", "full"), alone)
        # Evaluations are in bf16.
        told = subprocess.run([PROGRAM, "eval", "--checkpoint", self.folder / "fp8", "--data",
                               self.folder / "data/validation.h5", "--threads", "1"], capture_output=True, text=True)
        self.assertEqual(told.returncode, 0, told.stderr)
        loss = float(re.search(r"(?m)^loss +([\d.]+)$", told.stdout)[1])
        self.assertAlmostEqual(loss, alone[-1]["eval_loss"], delta=1e-4)

    def test_frozen_parameters_that_bf16_rounds(self):
        freeze = ("--optim.freeze", "embedding.*,blocks.*.norm1.*", "--run.steps", "2", "--run.precision", "bf16")
        said = r"optim\.freeze: 1 of 5 frozen parameters \(embedding\.weight\) is rounded to bf16"
        self.train("rounded", 2, "--grid.tensor", "2", *freeze)
        self.assertRegex(self.output, said)
        # What was rounded once is not rounded again.
        self.train("rounded", 2, "--grid.data", "2", *freeze[:2], "--run.steps", "4", *freeze[4:])
        self.assertNotIn("rounded to", self.output)
        self.train("from whole", 1, *freeze, "--run.start_from", str(self.checkpoint("whole", 60)))
        self.assertRegex(self.output, r"optim\.freeze: 5 of 5 frozen parameters \(embedding\.weight, \.\.\.\) are rounded")

    def test_a_longer_run_says_that_its_learning_rate_leaps(self):
        self.start_over_from("longer", 20)
        self.train("longer", 2, "--grid.data", "2", "--run.steps", "22")
        leap = (r"the learning rate goes from [\d.e-]+ at step {} to [\d.e-]+ at step {}: its curve followed run\.steps, "
                r"which was {};{} --schedule\.decay \d+ keeps the old curve\n")
        self.assertRegex(self.output, leap.format(20, 21, 60, r" --schedule\.warmup 6"))
        self.start_over_from("still longer", 22, of="longer")
        self.train("still longer", 2, "--grid.data", "2", "--run.steps", "24")
        self.assertRegex(self.output, leap.format(22, 23, 22, ""))
        decay = re.search(r"--schedule\.decay \d+", self.output)[0].split()
        self.train("longer", 2, "--grid.data", "2", "--run.steps", "24", *decay)
        self.assertNotIn("the learning rate goes", self.output)

    def test_a_table_of_learning_rates(self):
        table = self.folder / "parts.txt"
        table.write_text("0 0\n10 1  # the peak\n20 0.5\n")
        given = ("--grid.data", "2", "--checkpoint.every", "10", "--schedule.name", "table", "--schedule.file")
        steps = self.train("table", 2, *given, str(table), "--run.steps", "20")
        rates = [m["lr"] for m in steps if "loss" in m]
        self.assertEqual(len(rates), 20)
        for n, rate in enumerate(rates, 1):
            self.assertAlmostEqual(rate, 3e-3 * (n / 10 if n <= 10 else 1.5 - n / 20), delta=1e-9)
        # What the file holds counts, not where it lies.
        other = self.folder / "other parts.txt"
        other.write_text("0 0\n10 1.0\n20 0.50\n")
        self.train("table", 2, *given, str(other), "--run.steps", "22")
        self.assertNotIn("schedule.file", self.output)
        other.write_text("0 0\n10 1\n20 0.5\n30 0\n")
        steps = self.train("table", 2, *given, str(other), "--run.steps", "24")
        self.assertIn("changed settings: run.steps was 22, is 24; schedule.file was (), is (30 0)\n", self.output)
        self.assertAlmostEqual([m["lr"] for m in steps if "loss" in m][-1], 3e-3 * 0.3, delta=1e-9)
        # bad input: `train`: `schedule.file` that is not there | schedule.file FILE: cannot be read: No such file or
        # directory | 2
        other.write_text("0 0\n10 1\n20 half\n")
        for path, words in ((other, "schedule.file {}, line 3: part half: is not a number\n"),
                            (self.folder / "none.txt", "schedule.file {}: cannot be read: No such file or directory\n")):
            done = subprocess.run(launch(2, *self.arguments("no table", *given, str(path))), capture_output=True,
                                  text=True, timeout=60, check=False)
            self.assertEqual((done.returncode, done.stderr), (2, "trireme: " + words.format(path)), done.stdout)
            self.assertFalse((self.folder / "no table").exists())

    def test_damaged_checkpoint_is_passed_over(self):
        self.copy_of_whole("damaged")
        path = self.checkpoint("damaged", 60)
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
        # bad input: `train`: a damaged newest checkpoint | the one before is used, and the line says so | 0
        self.assertEqual(self.train("damaged", 2, "--grid.data", "2"), self.whole)
        self.assertIn("step-00000060.h5", self.output)
        self.assertIn("step-00000040.h5, step 40", self.output)
        moved = self.superseded("damaged")
        self.assertIn(f"the run goes on after step 40: 1 checkpoint (step 60), with metrics, moved to {moved}\n",
                      self.output)
        self.assertEqual((moved / "checkpoints/step-00000060.h5").read_bytes(), content)

    # A run has one history: whatever is no ancestor of a start leaves it, and nothing is lost.

    def copy_of_whole(self, run):
        shutil.copytree(self.folder / "whole", self.folder / run)

    def alone(self, run, *more, job=None, status=0, **environment):
        """Trains on one rank without a launcher, as a start of a job where one is named."""
        if job:
            environment["TRIREME_JOB"] = job
        done = subprocess.run([PROGRAM, *self.arguments(run, *more)], capture_output=True, text=True, timeout=120,
                              check=False, env=os.environ | environment)
        self.output = done.stdout + done.stderr
        self.assertEqual(done.returncode, status, self.output)
        return self.output

    def steps_of(self, folder):
        return [int(path.name[5:13]) for path in sorted((self.folder / folder / "checkpoints").glob("step-*.h5"))]

    def superseded(self, run, count=1):
        """The newest of so many folders in superseded/."""
        folders = sorted((self.folder / run / "superseded").iterdir(), key=lambda path: int(path.name))
        self.assertEqual(len(folders), count, folders)
        return folders[-1]

    def branches(self, run):
        events = map(json.loads, (self.folder / run / "events.jsonl").read_text().splitlines())
        return [(event["step"], event["detail"]) for event in events if event["event"] == "branch"]

    def expect_whole_in(self, folder, steps):
        """What the run `whole` held stands there, byte for byte."""
        self.assertEqual(self.steps_of(folder), steps)
        for step in steps:
            self.assertEqual((folder / f"checkpoints/step-{step:08d}.h5").read_bytes(),
                             self.checkpoint("whole", step).read_bytes())
        for name in ("metrics.jsonl", "config.ini"):
            self.assertEqual((folder / name).read_bytes(), (self.folder / "whole" / name).read_bytes())

    def test_never_begins_a_branch(self):
        self.copy_of_whole("anew")
        os.link(self.folder / "anew/config.ini", self.folder / "anew-config")
        short = ["--run.steps", "25", "--checkpoint.keep", "2"]
        self.alone("anew", "--run.resume", "never", *short)
        moved = self.superseded("anew")
        line = f"a new branch begins at step 0: 3 checkpoints (steps 20 to 60), with metrics, moved to {moved}"
        self.assertIn(line + "\n", self.output)
        self.assertEqual(self.branches("anew"), [(0, line)])
        self.expect_whole_in(moved, [20, 40, 60])
        self.assertEqual((self.folder / "anew-config").read_bytes(),
                         (self.folder / "whole/config.ini").read_bytes())  # replaced, not written over
        # Who looks sees this branch alone, and it is this one that goes on.
        self.assertEqual(self.steps_of("anew"), [20, 25])
        self.assertEqual([m["step"] for m in self.metrics("anew") if "loss" in m], list(range(1, 26)))
        evaluated = subprocess.run([PROGRAM, "eval", "--checkpoint", self.folder / "anew"], text=True,
                                   capture_output=True, check=True, timeout=60)
        self.assertIn("step-00000025.h5, step 25", evaluated.stdout)
        self.assertIn("nothing to train", self.alone("anew", *short))
        self.assertEqual(len(self.branches("anew")), 1)
        # Every start outside of a job takes the flag literally.
        self.alone("anew", "--run.resume", "never", *short, "--run.steps", "2")
        self.assertEqual(self.steps_of(self.superseded("anew", 2)), [20, 25])
        done = subprocess.run([PROGRAM, "checkpoint", "prune", "--superseded", self.folder / "anew"], text=True,
                              capture_output=True, check=True, timeout=60)
        self.assertIn(f"{moved}: removed, 3 checkpoints, ", done.stdout)
        self.assertEqual(list((self.folder / "anew/superseded").iterdir()), [])
        self.assertEqual(self.steps_of("anew"), [2])

    def test_an_earlier_checkpoint_keeps_its_ancestors(self):
        self.copy_of_whole("back")
        again = ["--grid.data", "2", "--run.resume", str(self.checkpoint("back", 40))]
        self.assertEqual(self.train("back", 2, *again), self.whole)
        moved = self.superseded("back")
        line = f"a new branch begins after step 40: 1 checkpoint (step 60), with metrics, moved to {moved}"
        self.assertIn(line + "\n", self.output)
        self.expect_whole_in(moved, [60])
        self.assertEqual(self.steps_of("back"), [20, 40, 60])
        self.assertEqual(self.branches("back"), [(40, line)])
        # The newest one's path continues it.
        self.train("back", 2, "--grid.data", "2", "--run.resume", str(self.checkpoint("back", 60)))
        self.assertIn("nothing to train", self.output)
        self.assertEqual(len(self.branches("back")), 1)

    def test_a_checkpoint_from_elsewhere(self):
        flags = ["--run.resume", str(self.checkpoint("whole", 20)), "--grid.data", "2"]
        process = subprocess.Popen(launch(2, *self.arguments("tuned", *flags)), env=os.environ | {"TRIREME_JOB": "7"},
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(process.kill)
        self.wait_for_steps("tuned", process, 3)
        os.kill(self.ranks_of(process)[-1], signal.SIGKILL)
        self.assertNotEqual(process.wait(timeout=60), 0)
        self.assertEqual(self.steps_of("tuned"), [])
        # It has no checkpoint of its own yet: the run is still the one that began with that of another.
        self.assertEqual(self.train("tuned", 2, "--grid.data", "2"), [m for m in self.whole if m["step"] > 20])
        self.assertIn("step-00000020.h5, step 20\n", self.output)
        self.assertFalse((self.folder / "tuned/superseded").exists())
        # A retry or the next link of a chain repeats the flag, not what it began.
        self.alone("tuned", *flags[:2], job="7")
        self.assertIn("an earlier start of this job followed run.resume ", self.output)
        self.assertIn("nothing to train", self.output)
        # One of superseded/ is from elsewhere too.
        self.alone("tuned", *flags[:2], "--run.steps", "21", job="8")
        self.assertEqual(self.steps_of(self.superseded("tuned")), [40, 60])
        old = self.superseded("tuned") / "checkpoints/step-00000040.h5"
        self.alone("tuned", "--run.resume", str(old), "--run.steps", "41")
        self.assertEqual(self.steps_of("tuned"), [41])
        self.assertEqual(self.steps_of(self.superseded("tuned", 2)), [21])
        # Its origin may be gone, and nothing of its own there: that is no reason to begin anew in silence.
        self.checkpoint("tuned", 41).unlink()
        old.unlink()
        # bad input: `train`: the checkpoint that the branch began with is gone, and it has none of its own
        # | ...: the run began with this checkpoint and has no good one of its own; give it back, or begin
        # anew ... | 4
        self.alone("tuned", "--run.steps", "41", status=4)
        self.assertIn("step-00000040.h5", self.output)
        self.assertIn("begin anew with --run.resume never", self.output)

    def test_the_flag_holds_for_the_first_start_of_a_job(self):
        short = ["--run.steps", "4", "--run.resume", "never", "--checkpoint.every", "2"]
        first = {"SLURM_JOB_ID": "991", "SLURM_RESTART_COUNT": "0"}
        self.alone("job", *short, **first)
        self.alone("job", *short, **first | {"SLURM_RESTART_COUNT": "1"})
        self.assertIn("an earlier start of this job followed run.resume never already: its branch goes on\n",
                      self.output)
        self.assertIn("nothing to train", self.output)
        self.alone("job", *short, **first)  # another command in the same allocation
        self.assertEqual(self.steps_of(self.superseded("job")), [2, 4])
        self.assertNotIn("nothing to train", self.output)
        # A job that names the newest checkpoint is followed too, when that is not the newest any more.
        newest = ["--run.steps", "6", "--checkpoint.every", "2", "--run.resume", str(self.checkpoint("job", 4))]
        for _ in range(2):
            self.alone("job", *newest, job="chain")
        self.assertIn("nothing to train", self.output)
        self.assertEqual(len(self.branches("job")), 1)

    def test_an_interrupted_move_is_completed(self):
        self.copy_of_whole("interrupted")
        (self.folder / "interrupted/branch.json").write_text(json.dumps(
            {"generation": 9, "origin": "", "jobs": [], "unfinished": {"generation": 9, "after_step": 40}}))
        listed = subprocess.run([PROGRAM, "checkpoint", "list", self.folder / "interrupted"], text=True,
                                capture_output=True, check=True, timeout=60)
        self.assertNotIn("step-00000060.h5", listed.stdout)
        pruned = subprocess.run([PROGRAM, "checkpoint", "prune", "--superseded", self.folder / "interrupted"],
                                text=True, capture_output=True, check=False, timeout=60)
        self.assertEqual(pruned.returncode, 5)
        # bad input: `checkpoint prune`: a folder that is not there; a move that is not complete | ...; the
        # next start of the run completes that, prune afterwards | 5
        self.assertIn("the next start of the run completes that", pruned.stderr)
        self.assertEqual(self.train("interrupted", 2, "--grid.data", "2"), self.whole)
        self.assertIn("what an interrupted start had begun is complete: 1 checkpoint (step 60)", self.output)
        self.expect_whole_in(self.folder / "interrupted/superseded/9", [60])

    def test_a_folder_of_an_earlier_version(self):
        self.copy_of_whole("legacy")
        (self.folder / "legacy/branch.json").unlink()
        path = self.folder / "legacy/metrics.jsonl"
        path.write_text("".join(path.read_text().splitlines(True)[:30]))
        self.train("legacy", 2, "--grid.data", "2")
        # bad input: `train`: a folder of an earlier version whose checkpoints go beyond its metrics | ...
        # is beyond the steps of metrics.jsonl, which end with 30: an earlier version may have left it ... |
        # 0
        self.assertIn("step-00000060.h5 is beyond the steps of metrics.jsonl, which end with 30", self.output)
        self.assertIn("nothing to train", self.output)
        self.assertEqual(self.steps_of("legacy"), [20, 40, 60])
        self.train("legacy", 2, "--grid.data", "2")
        self.assertNotIn("beyond", self.output)

    def test_a_record_that_is_none(self):
        self.copy_of_whole("garbled")
        (self.folder / "garbled/branch.json").write_text("{")
        # bad input: `train`: a `branch.json` that is none | .../branch.json: not a record of a branch;
        # remove it, and the folder is one branch | 5
        self.assertIn("garbled/branch.json: not a record of a branch", self.alone("garbled", status=5))

    def test_a_folder_that_is_removed_under_a_run(self):
        for run, gone in (("half-gone", "half-gone/checkpoints"), ("gone", "gone")):
            process = subprocess.Popen(launch(2, *self.arguments(run, "--grid.data", "2", "--run.steps", "100000",
                                                                "--comm.timeout", "5")),
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self.addCleanup(process.kill)
            self.wait_for_steps(run, process, 3)
            (self.folder / gone).rename(self.folder / f"was-{run}")
            output, errors = process.communicate(timeout=100)
            self.assertEqual(process.returncode, 5, output + errors)
            self.assertIn(f"/{gone}: somebody removed it while this run wrote there; ending\n", errors)


if __name__ == "__main__":
    unittest.main()
