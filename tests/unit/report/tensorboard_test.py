"""What TensorBoard's own reader finds in the event files of a run, compared with metrics.jsonl.

    python3 tensorboard_test.py TRIREME    (see tensorboard_test.sh)
"""
import json
import struct
import sys
import time
import unittest
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
from cli_testing import ProgramTest  # noqa: E402

TAGS = {"loss", "lr", "grad_norm", "tokens_per_s", "step_s", "memory_bytes", "eval_loss"}


def as_float32(value):
    return struct.unpack("f", struct.pack("f", value))[0]


class EventFiles(ProgramTest):
    def setUp(self):
        super().setUp()
        data = self.prepare("data", "--validation", "tail:1000")
        self.arguments = ["train", "--data.train", data / "train.h5", "--data.validation",
                          data / "validation.h5", "--model.preset", "test-gpt", "--model.context", 16,
                          "--batch.global", 2, "--batch.micro", 2, "--eval.every", 3, "--threads", 1,
                          "--checkpoint.every", 2, "--checkpoint.keep", 9, "--schedule.name", "constant"]
        self.events = self.folder / "run/tensorboard"

    def train(self, steps, *more):
        self.expect_done(*self.arguments, "--run.steps", steps, *(more or ("--log.tensorboard", "true")))

    def forget_checkpoints_after(self, step):
        for path in (self.folder / "run/checkpoints").iterdir():
            if int(path.stem.split("-")[1]) > step:
                path.unlink()

    def metrics(self):
        """{tag: [(step, value)]} as metrics.jsonl tells them."""
        found = {}
        for line in (self.folder / "run/metrics.jsonl").read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            for tag in TAGS & entry.keys():
                found.setdefault(tag, []).append((entry["step"], as_float32(entry[tag])))
        return found

    def reader(self):
        return EventAccumulator(str(self.events), size_guidance={"scalars": 0, "tensors": 0}).Reload()

    def shown(self, reader):
        """{tag: [(step, value)]} as TensorBoard shows them."""
        return {tag: [(event.step, event.value) for event in reader.Scalars(tag)]
                for tag in reader.Tags()["scalars"]}

    def steps_in_files(self):
        """The steps of every record with scalars, file by file."""
        return [[event.step for event in EventFileLoader(str(path)).Load() if event.HasField("summary")]
                for path in sorted(self.events.iterdir())]

    def test_shows_what_metrics_tell(self):
        before = time.time()
        self.train(6)
        after = time.time()
        reader = self.reader()
        self.assertEqual(self.shown(reader), self.metrics())
        self.assertEqual(set(self.shown(reader)), TAGS)
        times = [event.wall_time for event in reader.Scalars("loss")]
        self.assertEqual(times, sorted(times))
        self.assertTrue(before <= times[0] and times[-1] <= after, times)
        self.assertEqual(self.steps_in_files(), [[1, 2, 3, 3, 4, 5, 6, 6]])

    def test_a_resumed_run_tells_its_story_once(self):
        self.train(6)
        watching = self.reader()
        self.forget_checkpoints_after(4)
        self.train(8)
        self.assertEqual(self.steps_in_files(), [[1, 2, 3, 3, 4], [5, 6, 6, 7, 8, 8]])
        self.assertEqual([step for step, _ in self.metrics()["loss"]], list(range(1, 9)))
        self.assertEqual(self.shown(self.reader()), self.metrics())
        # One that has read the steps 5 and 6 of before forgets them.
        self.assertEqual(self.shown(watching.Reload()), self.metrics())

        # Back behind the second file's begin: nothing of it is left.
        self.forget_checkpoints_after(2)
        self.train(4)
        self.assertEqual(self.steps_in_files(), [[1, 2], [3, 3, 4, 4]])
        self.assertEqual(self.shown(self.reader()), self.metrics())

    def test_a_branch_leaves_the_story_of_the_other_behind(self):
        self.train(6)
        path, = self.events.iterdir()
        whole = path.read_bytes()
        written = ["--log.tensorboard", "true", "--run.resume"]
        self.train(8, *written, "run/checkpoints/step-00000004.h5")
        self.assertEqual(self.steps_in_files(), [[1, 2, 3, 3, 4], [5, 6, 6, 7, 8, 8]])
        left, = self.folder.glob("run/superseded/*/tensorboard/*")
        self.assertEqual(left.read_bytes(), whole)
        self.train(3, *written, "never")
        self.assertEqual(self.steps_in_files(), [[1, 2, 3, 3]])
        self.assertEqual(len(list(self.folder.glob("run/superseded/*/tensorboard/*"))), 3)

    # bad input: `train --log.tensorboard true`: event files with a record half written or damaged | cut
    # there; goes on in a new file | 0
    def test_half_a_record_of_a_killed_run(self):
        self.train(4)
        path, = self.events.iterdir()
        whole = path.read_bytes()
        first = whole[:16 + struct.unpack("<Q", whole[:8])[0]]
        damaged = first[:-5] + bytes([first[-5] ^ 1]) + first[-4:]
        # It was in the middle of a record's header, and of its data; and what a lost page may leave.
        for steps, half in ((5, first[:7]), (6, first[:20]), (7, damaged)):
            path.write_bytes(whole + half)
            self.train(steps)
            self.assertEqual(path.read_bytes(), whole)
            self.assertEqual(self.shown(self.reader()), self.metrics())

    def test_is_cut_back_also_where_no_more_is_written(self):
        self.train(6)
        self.forget_checkpoints_after(4)
        self.train(6, "--log.tensorboard", "false")
        self.assertEqual(self.steps_in_files(), [[1, 2, 3, 3, 4]])

    def test_nothing_is_written_unless_asked_for(self):
        self.train(2, "--log.tensorboard", "false")
        self.assertFalse(self.events.exists())
        self.train(2)  # nothing is left to train
        self.assertFalse(self.events.exists())


if __name__ == "__main__":
    ProgramTest.program = Path(sys.argv.pop(1)).resolve()
    unittest.main()
