#!/usr/bin/env python3
"""`trireme train --log.trace`: one file, all ranks, in the trace event format, consistent in itself.

usage: trace_test.py TRIREME MPIEXEC
"""

import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve()
MPIEXEC = sys.argv.pop(1)
RANKS = 4
MICRO_BATCHES = 4


class Trace(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.made = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.made.name)
        (cls.folder / "text.txt").write_text("a trireme has three banks of oars. " * 300)
        subprocess.run([PROGRAM, "prepare", "--input", cls.folder / "text.txt", "--output",
                        cls.folder / "data", "--tokenizer", "byte"], check=True, capture_output=True)

    @classmethod
    def tearDownClass(cls):
        cls.made.cleanup()

    def train(self, run, *more, status=0, environment=None):
        done = subprocess.run(
            [MPIEXEC, "-n", str(RANKS), PROGRAM, "train", "--data.train", self.folder / "data/train.h5",
             "--run.folder", self.folder / run, "--model.preset", "test-gpt", "--batch.global", "8",
             "--batch.micro", "2", "--threads", "1", "--eval.every", "0", *more],
            capture_output=True, text=True, timeout=100, env={**os.environ, **(environment or {})})
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def trace(self, run):
        with open(self.folder / run / "trace.json") as file:
            return json.load(file)["traceEvents"]

    def check_tracks(self, events):
        """On a track, events follow each other or lie one inside the other."""
        tracks = collections.defaultdict(list)
        for event in events:
            if event["ph"] == "X":
                self.assertGreaterEqual(event["dur"], 0)
                tracks[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
        for track in tracks.values():
            stack = []
            for begin, end in sorted(track, key=lambda span: (span[0], -span[1])):
                while stack and stack[-1] <= begin + 1e-3:  # times have a resolution of 1 ns
                    stack.pop()
                self.assertTrue(not stack or end <= stack[-1] + 1e-3, (begin, end, stack))
                stack.append(end)
        return set(tracks)

    def check_steps(self, events, first, last, data, pipeline):
        names = collections.Counter((e["pid"], e["name"]) for e in events if e["ph"] == "X")
        steps = last - first + 1
        for rank in range(RANKS):
            self.assertEqual(names[rank, "step"], steps)
            self.assertEqual(names[rank, "optimizer"], steps)
            self.assertEqual(names[rank, "forward"], steps * MICRO_BATCHES // data)
            self.assertEqual(names[rank, "backward"], steps * MICRO_BATCHES // data)
            if pipeline > 1:
                self.assertGreaterEqual(names[rank, "send"], 1)
        numbers = {e["args"]["number"] for e in events if e["name"] == "step"}
        self.assertEqual(numbers, set(range(first, last + 1)))

    def check_messages(self, events):
        """No message is received before it is sent: the ranks' clocks agree."""
        tracks = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
        sent, checked = {}, 0
        # A track is "pipeline to rank 3": messages are numbered apart in each communicator.
        for event in events:
            if event["ph"] == "X" and event["name"] == "send":
                communicator, peer = tracks[event["pid"], event["tid"]].split(" to rank ")
                sent[communicator, event["pid"], int(peer), event["args"]["sequence"]] = event["ts"]
        for event in events:
            if event["ph"] == "X" and event["name"] == "receive":
                communicator, peer = tracks[event["pid"], event["tid"]].split(" from rank ")
                begin = sent.get((communicator, int(peer), event["pid"], event["args"]["sequence"]))
                if begin is not None:
                    self.assertLessEqual(begin, event["ts"] + event["dur"])
                    checked += 1
        self.assertGreater(checked, 0)

    def test_every_rank_and_step_is_in_it(self):
        for data, pipeline, tensor in ((1, 2, 2), (2, 2, 1)):
            run = f"{data}{pipeline}{tensor}"
            said = self.train(run, "--run.steps", "6", "--log.trace", "3-4", "--grid.data", str(data),
                              "--grid.pipeline", str(pipeline), "--grid.tensor", str(tensor))
            self.assertIn("trace of steps 3 to 4", said)
            self.assertIn("all_reduce of", said)
            events = self.trace(run)
            self.check_tracks(events)
            self.check_steps(events, 3, 4, data, pipeline)
            self.check_messages(events)
            waits = [e for e in events if e["ph"] == "X" and e["tid"] == 1]
            self.assertTrue(any(e["name"] == "all_reduce of grid" for e in waits))

    def test_nodes_with_clocks_of_their_own(self):
        # Each rank counts as a node, and has its clock measured.
        self.train("nodes", "--run.steps", "2", "--log.trace", "2", "--grid.pipeline", "4",
                   "--model.layers", "4", environment={"MPIR_CVAR_NOLOCAL": "1"})
        events = self.trace("nodes")
        self.check_tracks(events)
        self.check_messages(events)

    def test_the_range_may_be_cut_off(self):
        said = self.train("short", "--run.steps", "3", "--log.trace", "2-100")
        self.assertIn("trace of steps 2 to 3", said)
        self.check_steps(self.trace("short"), 2, 3, 4, 1)
        # Steps that this run does not reach leave no file.
        said = self.train("none", "--run.steps", "2", "--log.trace", "5-6")
        self.assertNotIn("trace of", said)
        self.assertIn("no trace: log.trace names steps 5 to 6, of which this start did none\n", said)
        self.assertFalse((self.folder / "none/trace.json").exists())

    def test_the_same_bits_with_and_without(self):
        def losses(run):
            lines = (self.folder / run / "metrics.jsonl").read_text().splitlines()
            return [json.loads(line)["loss"] for line in lines]

        self.train("with", "--run.steps", "3", "--log.trace", "1-3")
        self.train("without", "--run.steps", "3")
        self.assertEqual(losses("with"), losses("without"))

    def test_copies_are_compared_as_often_as_asked(self):
        for every, times in (("2", 1), ("1", 3), ("0", 0)):
            run = f"copies-{every}"
            self.train(run, "--run.steps", "4", "--log.trace", "1-3", "--check.copies", every)
            compared = [e["pid"] for e in self.trace(run) if e["ph"] == "X" and e["name"] == "check copies"]
            self.assertEqual(sorted(compared), sorted([*range(RANKS)] * times), run)

    def test_what_is_no_range_is_refused(self):
        for text in ("5-3", "0", "x", "3-", "3-4-5", "-2", ""):
            said = self.train("refused", "--log.trace=" + text, status=2)
            self.assertIn("log.trace", said)
            self.assertEqual(len(said.splitlines()), 1, said)
        self.assertFalse((self.folder / "refused").exists())


if __name__ == "__main__":
    unittest.main(verbosity=2)
