#!/usr/bin/env python3
"""Trains a small MobileNetV2 on pictures from `trireme prepare --images`, and does with the run what people do.

usage: train_pictures_test.py TRIREME MPIEXEC
"""
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/support"))
import safetensors_files as files  # noqa: E402
from made_pictures import picture, png, write_folder  # noqa: E402

PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve()
MPIEXEC = sys.argv.pop(1)
TRAIN = ("--model.family mobilenet_v2 --model.image 16 --model.width_multiple 0.25 --data.train data/train.h5 "
         "--data.validation data/validation.h5 --data.crop random --data.padding 2 --data.flip true "
         "--batch.global 16 --batch.micro 4 --optim.lr 0.003 --run.steps 12 --eval.every 6 --checkpoint.every 6 "
         "--log.every 1 --run.threads 1 --run.device cpu --comm.timeout 60").split()


class Pictures(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder, True)
        write_folder(cls.folder / "stripes/train", 40)
        write_folder(cls.folder / "stripes/test", 9, first=100)
        cls.run_here("prepare", "--images", "stripes", "--output", "data")
        (cls.folder / "text.txt").write_text("a text of a few words. " * 40, encoding="utf-8")
        cls.run_here("prepare", "--input", "text.txt", "--output", "text", "--tokenizer", "byte")

    @classmethod
    def run_here(cls, *arguments, ranks=0, status=0):
        """What it prints, errors included."""
        command = [*([MPIEXEC, "-n", str(ranks)] if ranks else []), PROGRAM, *map(str, arguments)]
        done = subprocess.run(command, cwd=cls.folder, capture_output=True, text=True, timeout=120,
                              env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False)
        if done.returncode != status:
            raise AssertionError(f"{command}: status {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def train(self, run, *more, **options):
        """Trains with TRAIN's flags, but those that follow; one whose value is None is left out."""
        last = dict(zip(TRAIN[::2], TRAIN[1::2])) | dict(zip(more[::2], more[1::2]))
        given = [word for pair in last.items() if pair[1] is not None for word in pair]
        return self.run_here("train", "--run.folder", run, *given, **options)

    def metrics(self, run):
        lines = (self.folder / run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    def losses(self, run):
        return [line["loss"] for line in self.metrics(run) if "loss" in line]

    def test_a_run_and_its_start_again(self):
        said = self.train("whole")
        self.assertRegex(said, r"model +MobileNetV2, width x 0.25, 16 x 16 pixels, CIFAR's stem, 2 classes")
        self.assertRegex(said, r"batch +16 pictures of 16 x 16 a step: 4 micro-batches of 4, over 1 data replica")
        self.assertIn("samples/s", said)
        self.assertNotIn("token", said)
        losses = self.losses("whole")
        self.assertEqual(len(losses), 12)
        evaluated = [line for line in self.metrics("whole") if "eval_loss" in line]
        self.assertEqual([line["step"] for line in evaluated], [6, 12])
        for line in evaluated:
            self.assertEqual(line["eval_top5"], 1.0)
            self.assertIn(line["eval_top1"] * 18, range(19))
        self.assertEqual([line["samples"] for line in self.metrics("whole") if "loss" in line],
                         [16 * step for step in range(1, 13)])

        # In two parts it is the same, to the last bit.
        schedule = ("--schedule.warmup", 2, "--schedule.decay", 10)
        self.train("parts", "--run.steps", 6, *schedule)
        said = self.train("parts", *schedule)
        self.assertIn("going on from", said)
        self.train("whole_decay", *schedule)
        self.assertEqual(self.losses("parts"), self.losses("whole_decay"))
        # What meets in a batch norm is another result, not rounding.
        said = self.train("parts", *schedule, "--batch.micro", 8, "--run.steps", 13)
        self.assertRegex(said, r"changed settings: .*batch.micro was 4, is 8")

        # eval sees what the run's own evaluation saw.
        told = self.run_here("eval", "--checkpoint", "whole", "--batch.micro", 4, "--threads", 1)
        self.assertRegex(told, rf"(?m)^loss +{evaluated[-1]['eval_loss']:.6f}$")
        self.assertRegex(told, rf"(?m)^top-1 +{100 * evaluated[-1]['eval_top1']:.2f} %$")
        self.assertRegex(told, r"(?m)^pictures +18$")
        again = self.run_here("eval", "--checkpoint", "whole", "--batch.micro", 3, "--threads", 1, "--grid.pipeline", 2,
                              ranks=2)
        self.assertEqual(*([line for line in text.splitlines() if line.startswith("top-1")] for text in (told, again)))
        self.assertIn("samples/s", self.run_here("top", "--once", "whole"))
        self.assertIn("eval_top1", json.dumps(evaluated))
        self.assertTrue((self.folder / "whole/report.html").exists())

    def test_grids(self):
        alone = None
        for grid in ((1, 1), (2, 1), (1, 2)):
            run = f"grid{grid[0]}{grid[1]}"
            self.train(run, "--run.same_bits", "true", "--grid.data", grid[0], "--grid.pipeline", grid[1],
                       ranks=grid[0] * grid[1])
            alone = alone or self.losses(run)
            self.assertEqual(self.losses(run), alone, grid)

    def test_averages_of_running_statistics(self):
        self.train("average", "--optim.average", "swa", "--eval.weights", "average")
        evaluated = [line["eval_loss"] for line in self.metrics("average") if "eval_loss" in line]
        for weights, same in (("average", True), ("last", False)):
            told = self.run_here("eval", "--checkpoint", "average", "--weights", weights, "--batch.micro", 4, "--threads", 1)
            self.assertEqual(f"{evaluated[-1]:.6f}" in told, same, told)

    def test_memory_says_what_averages_of_statistics_take(self):
        averages = ("--optim.average", "ema", "--optim.recompute_norms", 8, "--eval.weights", "average")
        given = dict(zip(TRAIN[::2], TRAIN[1::2])) | dict(zip(averages[::2], averages[1::2]))
        self.train("held", *averages)
        self.run_here("memory", "--json", "memory.json", *(word for pair in given.items() for word in pair))
        (kind,) = json.loads((self.folder / "memory.json").read_text(encoding="utf-8"))["kinds"]
        held = [line["memory"] for line in self.metrics("held") if "memory" in line][-1]
        for use in ("parameters", "gradients", "optimizer"):
            self.assertEqual(kind["peaks"][use], held[use], use)

    def test_statistics_of_averaged_weights(self):
        """They are computed anew, before evaluations and checkpoints, and change no step."""
        flags = ("--optim.name", "schedule_free", "--schedule.name", "constant", "--run.same_bits", "true")
        runs = {}
        for run, norms, grid in (("anew", None, ()), ("kept", 0, ()), ("anew2", None, ("--grid.data", 2, "--grid.pipeline", 2))):
            ranks = 4 if grid else 0
            self.train(run, *flags, "--optim.recompute_norms", norms, *grid, ranks=ranks)
            runs[run] = [line["eval_loss"] for line in self.metrics(run) if "eval_loss" in line]
        self.assertEqual(self.losses("anew"), self.losses("kept"))
        self.assertEqual(self.losses("anew"), self.losses("anew2"))
        for here, other in zip(runs["anew"], runs["kept"]):
            self.assertNotEqual(here, other)
        self.assertEqual(runs["anew"], runs["anew2"])
        # A checkpoint has them.
        told = self.run_here("eval", "--checkpoint", "anew", "--batch.micro", 4, "--threads", 1)
        self.assertRegex(told, rf"(?m)^loss +{runs['anew'][-1]:.6f}$")
        # The same of an average that an optimizer of another rule leaves.
        self.train("average-anew", "--optim.average", "swa", "--eval.weights", "average", "--optim.recompute_norms", 8)
        evaluated = [line["eval_loss"] for line in self.metrics("average-anew") if "eval_loss" in line]
        told = self.run_here("eval", "--checkpoint", "average-anew", "--weights", "average", "--batch.micro", 4, "--threads", 1)
        self.assertRegex(told, rf"(?m)^loss +{evaluated[-1]:.6f}$")

    def test_resnet(self):
        alone = None
        resnet = ("--model.family", "resnet", "--model.width_multiple", None, "--run.steps", 3, "--eval.every", 3,
                  "--checkpoint.every", 3, "--run.same_bits", "true")
        for grid in ((1, 1), (2, 1), (1, 2)):
            run = f"resnet{grid[0]}{grid[1]}"
            said = self.train(run, *resnet, "--grid.data", grid[0], "--grid.pipeline", grid[1], ranks=grid[0] * grid[1])
            self.assertRegex(said, r"model +ResNet-18, 16 x 16 pixels, CIFAR's stem, 2 classes")
            found = [[line[key] for line in self.metrics(run) if key in line]
                     for key in ("loss", "eval_loss", "eval_top1")]
            alone = alone or found
            self.assertEqual(found, alone, grid)
        # bad input: `train --run.precision fp8` of a family without layers for it | run.precision is fp8, but models of
        # model.family resnet have no layers for it: give run.precision bf16 | 2
        self.assertIn("run.precision is fp8, but models of model.family resnet have no layers for it: give run.precision bf16",
                      self.train("refused", *resnet, "--run.precision", "fp8", status=2))
        told = self.run_here("eval", "--checkpoint", "resnet12", "--batch.micro", 4, "--threads", 1)
        self.assertRegex(told, rf"(?m)^loss +{alone[1][-1]:.6f}$")

    def test_synced_norms(self):
        # Rounding grows from step to step: few samples meet in a norm.
        synced = ("--model.batch_norm", "sync", "--optim.name", "sgd", "--optim.lr", 0.002, "--run.steps", 2,
                  "--checkpoint.every", 2)
        self.train("synced", *synced, "--grid.data", 2, ranks=2)
        self.train("larger", *synced[2:], "--batch.micro", 8)
        self.train("other", *synced[2:])
        losses, expected, others = (self.losses(run) for run in ("synced", "larger", "other"))
        for loss, same, other in zip(losses, expected, others, strict=True):
            self.assertAlmostEqual(loss / same, 1, delta=1e-3)
            self.assertGreater(abs(other / same - 1), 1e-2)
        said = self.train("synced", *synced, "--grid.data", 1, "--run.steps", 3)
        self.assertRegex(said, r"changed settings: .*the grid was 2 x 1 x 1 .*, is 1 x 1 x 1")

    def test_it_learns(self):
        self.train("learns", "--run.steps", 120, "--eval.every", 120, "--checkpoint.every", 120, "--batch.micro", 16)
        self.assertGreaterEqual(self.metrics("learns")[-1]["eval_top1"], 0.9)

    def test_a_vision_transformer(self):
        words = [word for pair in zip(TRAIN[::2], TRAIN[1::2]) if not pair[0].startswith("--model") for word in pair]
        words += ("--model.family vit --model.image 16 --model.patch 4 --model.layers 2 --model.width 32 "
                  "--model.heads 4 --grid.tensor").split()
        said = self.run_here("train", "--run.folder", "vit", *words, 1)
        self.assertRegex(said, r"model +vision transformer, 2 layers, width 32, 4 heads, 16 x 16 pixels in patches of "
                               r"4 x 4, 2 classes")
        for sequence in ("false", "true"):  # 68 positions in a micro-batch
            run = f"vit_tensor_{sequence}"
            self.run_here("train", "--run.folder", run, *words, 2, "--grid.sequence_parallel", sequence, ranks=2)
            for loss, alone in zip(self.losses(run), self.losses("vit"), strict=True):
                self.assertAlmostEqual(loss / alone, 1, delta=1e-4)
        evaluated = [line for line in self.metrics("vit") if "eval_loss" in line]
        for grid in ("--grid.tensor", "--grid.pipeline"):
            told = self.run_here("eval", "--checkpoint", "vit", "--threads", 1, grid, 2, ranks=2)
            loss = float(re.search(r"(?m)^loss +([\d.]+)$", told)[1])
            self.assertAlmostEqual(loss, evaluated[-1]["eval_loss"], delta=1e-4)
            self.assertRegex(told, rf"(?m)^top-1 +{100 * evaluated[-1]['eval_top1']:.2f} %$")
        # bad input: `train`: positions that the tensor ranks do not divide | grid.sequence_parallel splits the 17
        # positions of a micro-batch (batch.micro x 17 of a sample), which 2 tensor ranks do not divide | 2
        odd = [*words, 2, "--grid.sequence_parallel", "true"]
        odd[odd.index("--batch.micro") + 1] = 1
        self.assertIn("grid.sequence_parallel splits the 17 positions of a micro-batch (batch.micro x 17 of a sample), "
                      "which 2 tensor ranks do not divide",
                      self.run_here("train", "--run.folder", "odd", *odd, ranks=2, status=2))

        # bad input: `train --run.precision fp8`: positions of pictures that are no whole blocks | ... a micro-batch has 68
        # (batch.micro 4 x 17 of a sample): make batch.micro a multiple of 128, ... | 2
        self.assertIn("but a micro-batch has 68 (batch.micro 4 x 17 of a sample): make batch.micro a multiple of 128, or "
                      "give run.precision bf16",
                      self.run_here("train", "--run.folder", "odd", *words, 1, "--run.precision", "fp8", status=2))

    def predict(self, *arguments, **options):
        """The lines of pictures, and of JSON."""
        said = self.run_here("predict", "--checkpoint", "predicts", "--json", "said.jsonl", "--threads", 1, *arguments,
                             **options)
        found = [json.loads(line) for line in (self.folder / "said.jsonl").read_text(encoding="utf-8").splitlines()]
        return [line for line in said.splitlines() if re.search(r": (lying|upright) ", line)], found

    def test_predictions(self):
        self.train("predicts", "--run.steps", 20, "--eval.every", 20, "--checkpoint.every", 20)
        lines, found = self.predict("--input", "stripes/test")
        # Folders of test and training lie in alphabetical order of their paths.
        self.assertEqual([one["file"] for one in found],
                         [f"stripes/test/{name}/{i}.png" for name in ("lying", "upright") for i in range(9)])
        right = [one["likely"][0]["class"] == one["file"].split("/")[2] for one in found]
        evaluated = next(line["eval_top1"] for line in self.metrics("predicts") if "eval_top1" in line)
        self.assertAlmostEqual(sum(right) / 18, evaluated)
        for line, one in zip(lines, found, strict=True):
            first, second = one["likely"]
            self.assertAlmostEqual(first["probability"] + second["probability"], 1, delta=1e-5)
            self.assertEqual(line, f"{one['file']}: " + ", ".join(f"{each['class']} {100 * each['probability']:.2f} %"
                                                                  for each in (first, second)))
        # Other grids and batches say the same; the last batch of two replicas is not full.
        for grid, micro in (("--grid.data", 4), ("--grid.pipeline", 5)):
            again, _ = self.predict("--input", "stripes/test", grid, 2, "--batch.micro", micro, ranks=2)
            self.assertEqual(again, lines, grid)
        # Files by name, an archive, and a list of files.
        files = ["stripes/test/upright/3.png", "stripes/test/lying/4.png"]
        expected = [line for file in files for line in lines if line.startswith(file)]
        self.assertEqual(self.predict("--input", ",".join(files))[0], expected)
        subprocess.run(["tar", "-cf", "two.tar", *files], cwd=self.folder, check=True)
        self.assertEqual([line.removeprefix("two.tar: ") for line in self.predict("--input", "two.tar")[0]], expected)
        done = subprocess.run([PROGRAM, "predict", "--checkpoint", "predicts", "--input", "-", "--top", "1"],
                              cwd=self.folder, input="\n".join(files), capture_output=True, text=True, timeout=60,
                              check=True)
        self.assertEqual(done.stdout.splitlines(), [line.split(",")[0] for line in expected])
        # Nearer: the model sees the middle of a larger picture.
        nearer, _ = self.predict("--input", files[0], "--size", 48)
        self.assertEqual(len(nearer), 1)
        self.assertNotEqual(nearer, expected[:1])
        # A picture of more bytes than are read at once.
        self.assertEqual(len(self.predict("--input", ",".join(files), "--size", 2400)[0]), 2)
        self.check_pictures_that_cannot_be_read(files, expected)
        self.check_refused_predictions(files[0])

    def check_pictures_that_cannot_be_read(self, files, expected):
        (self.folder / "torn.png").write_bytes((self.folder / files[0]).read_bytes()[:60])
        predict = ("predict", "--checkpoint", "predicts", "--threads", 1)
        # bad input: `predict`: a damaged picture | FILE: ...; --skip-bad true leaves such pictures out | 3
        self.assertRegex(self.run_here(*predict, "--input", f"torn.png,{files[0]}", ranks=2, status=3),
                         r"torn.png: .+; --skip-bad true leaves such pictures out")
        # bad input: `predict`: a picture that is not there | FILE: cannot be read: No such file or directory; --skip-bad
        # true leaves such pictures out | 3
        self.assertIn("gone.png: cannot be read: No such file or directory; --skip-bad true leaves such pictures out",
                      self.run_here(*predict, "--input", "gone.png", status=3))
        # Those that are there are told, whether the command names the files or a list does.
        names = ["torn.png", files[0], "gone.png", files[1]]
        for given, lines in ((",".join(names), ""), ("-", "\n".join(names))):
            command = [PROGRAM, *map(str, predict), "--input", given, "--skip-bad", "true"]
            done = subprocess.run(command, cwd=self.folder, input=lines, capture_output=True, text=True, timeout=60,
                                  check=True)
            self.assertEqual(done.stdout.splitlines(), expected)
            self.assertIn("left out: torn.png: ", done.stderr)
            self.assertIn("left out: gone.png: cannot be read: No such file or directory\n", done.stderr)
        # bad input: `predict --skip-bad true`: no good picture | none of the 2 pictures is good: --skip-bad true left
        # all of them out | 3
        self.assertIn("none of the 2 pictures is good: --skip-bad true left all of them out",
                      self.run_here(*predict, "--input", "torn.png,gone.png", "--skip-bad", "true", ranks=2, status=3))
        # bad input: `predict`: no picture in a folder | no pictures: --input names JPEG or PNG files, or folders of
        # them | 3
        self.assertIn("no pictures: --input names JPEG or PNG files, or folders of them",
                      self.run_here(*predict, "--input", "text", status=3))
        # bad input: `predict`: an input that is no picture and is not there | ...: cannot be read: No such file or
        # directory | 3
        self.assertIn("gone: cannot be read: No such file or directory",
                      self.run_here(*predict, "--input", "gone", "--skip-bad", "true", status=3))

    def check_refused_predictions(self, file):
        predict = ("predict", "--checkpoint", "predicts", "--threads", 1, "--input", file)
        # bad input: `predict`: a size below what the model sees | --size 8: the model sees 16 x 16 pixels: give at
        # least that | 2
        self.assertIn("--size 8: the model sees 16 x 16 pixels: give at least that",
                      self.run_here(*predict, "--size", 8, status=2))
        # Parts of the pictures were made larger in training.
        self.train("resized", "--model.image", 32, "--data.crop", "resized", "--data.padding", None,
                   "--data.validation", None, "--eval.every", None, "--run.steps", 1, "--checkpoint.every", 1)
        resized = ("predict", "--checkpoint", "resized", "--threads", 1, "--input", file)
        # bad input: `predict`: a model that sees more than its training's pictures had | --size is 24 x 24, that of the
        # pictures in training: the model sees 32 x 32 pixels: give at least that | 2
        self.assertIn("--size is 24 x 24, that of the pictures in training: the model sees 32 x 32 pixels: give at "
                      "least that",
                      self.run_here(*resized, status=2))
        self.assertIn(f"{file}: ", self.run_here(*resized, "--size", 32))
        # bad input: `predict`: a size that is none | --size 7y: expected a side of 1 to 4096 pixels, as in 224, or
        # height x width, as in 192x256 | 2
        # Flags are looked at before a checkpoint is.
        self.assertIn("--size 7y: expected a side of 1 to 4096 pixels",
                      self.run_here("predict", "--checkpoint", "none", "--input", file, "--size", "7y", status=2))
        # bad input: `predict`: a normalisation that is none | --normalisation 0.5: expected 'mean R G B, deviation R G
        # B', numbers of 0 to 1 | 2
        self.assertIn("--normalisation 0.5: expected 'mean R G B, deviation R G B', numbers of 0 to 1",
                      self.run_here("predict", "--checkpoint", "none", "--input", file, "--normalisation", "0.5",
                                    status=2))
        # bad input: `predict`: nothing is named | --input is missing: it names pictures, folders of them, or files of
        # texts; --text gives a text itself | 2
        self.assertIn("--input is missing: it names pictures, folders of them, or files of texts; --text gives a text "
                      "itself",
                      self.run_here("predict", "--checkpoint", "predicts", status=2))
        # bad input: `predict`: a `--json` file that cannot be written | none/said.jsonl.partial: cannot be opened: No
        # such file or directory; FILE: cannot be written: No space left on device | 5
        self.assertIn("none/said.jsonl.partial: cannot be opened: No such file or directory",
                      self.run_here(*predict, "--json", "none/said.jsonl", status=5))
        self.assertIn("/dev/full: cannot be written: No space left on device",
                      self.run_here(*predict, "--json", "/dev/full", ranks=2, status=5))

    def test_the_example_of_the_readme(self):
        page = (ROOT / "README.md").read_text(encoding="utf-8")
        block, = (block for block in re.findall(r"(?ms)^```sh\n(.*?)^```$", page) if "prepare --images" in block)
        for said, less in (("10ep", "1ep"), ("--batch.global 128", "--batch.global 8"),
                           ("--batch.micro 32", "--batch.micro 2")):
            self.assertIn(said, block)
            block = block.replace(said, less)
        write_folder(self.folder / "pets", 10)
        # What a picture is, its bytes say.
        (self.folder / "cat.jpg").write_bytes(png(picture(0, 50)))
        programs = self.folder / "programs"
        programs.mkdir()
        for name, place in (("trireme", PROGRAM), ("mpiexec", shutil.which(MPIEXEC))):
            (programs / name).write_text(f'#!/bin/sh\nexec "{place}" "$@"\n')
            (programs / name).chmod(0o755)
        path = f"{programs}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(["bash", "-euc", block], cwd=self.folder, capture_output=True, text=True, timeout=100,
                              env={**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"}, check=False)
        said = done.stdout + done.stderr
        self.assertEqual(done.returncode, 0, f"{block}\n{said}")
        self.assertRegex(said, r"(?m)^top-1 +[\d.]+ %$")
        self.assertRegex(said, r"(?m)^top-5 +100.00 %$")
        self.assertRegex(said, r"(?m)^cat\.jpg: (lying|upright) [\d.]+ %, (lying|upright) [\d.]+ %$")
        self.assertEqual([line["samples"] for line in self.metrics("pets-run") if "loss" in line], [8, 16, 24])

    def test_bad_input(self):
        self.assertIn("text/train.h5: a token shard, not an image shard",
                      self.train("bad", "--data.train", "text/train.h5", status=3))
        self.assertFalse((self.folder / "bad").exists())
        self.train("narrow", "--run.steps", 1, "--checkpoint.every", 1)
        # bad input: `generate`: a model of pictures | CHECKPOINT: a model of mobilenet_v2, whose task is
        # classification: trireme generate continues texts, and trireme eval takes any model | 2
        self.assertIn("narrow/checkpoints/step-00000001.h5: a model of mobilenet_v2, whose task is classification: trireme "
                      "generate continues texts, and trireme eval takes any model",
                      self.run_here("generate", "--checkpoint", "narrow", "--prompt", "a", status=2))
        # bad input: `eval`: texts for a model of pictures | ...: a token shard, not an image shard | 3
        self.assertIn("text/train.h5: a token shard, not an image shard",
                      self.run_here("eval", "--checkpoint", "narrow", "--data", "text/train.h5", status=3))
        self.assertIn("grid.tensor is 2, but mobilenet_v2 is not split over tensor ranks",
                      self.train("bad", "--grid.tensor", 2, ranks=2, status=2))

    def tensors(self, run):
        """A run's weights and states, as lists of numbers by torchvision's names."""
        self.run_here("export", "--checkpoint", run, "--output", f"{run}-weights", ranks=2)
        return {name: struct.unpack(f"<{len(values) // 4}f", values)
                for name, (_, _, values) in files.read_folder(self.folder / f"{run}-weights").items()}

    def test_weights_of_another_run(self):
        self.train("donor")
        donor = self.tensors("donor")
        keys = ("--model.family", "mobilenet_v2", "--model.image", 16, "--model.width_multiple", 0.25)
        self.run_here("import", "--from", "donor-weights", "--output", "imported", "--model.classes", 2, *keys, ranks=3)
        shutil.rmtree(self.folder / "donor-weights")
        self.assertEqual(self.tensors("imported"), donor)
        evaluate = ("eval", "--data", "data/validation.h5", "--threads", 1, "--checkpoint")
        line = r"(?m)^loss +(.*)$"
        self.assertEqual(re.search(line, self.run_here(*evaluate, "imported"))[1],
                         re.search(line, self.run_here(*evaluate, "donor"))[1])

        # Steps that change no weight: what differs after them are the moments that a step folds in.
        still = ("--run.start_from", "imported", "--optim.lr", 1e-30, "--run.steps", 1)
        losses = []
        for run, grid in (("alone", ()), ("stages", ("--grid.pipeline", 2))):
            said = self.train(run, *still, *grid, ranks=2 if grid else 0)
            self.assertIn("starting from the weights of imported/checkpoints/step-00000000.h5, step 0", said)
            losses.append(self.losses(run)[0])
            after = self.tensors(run)
            for name, values in donor.items():
                if "running" not in name:
                    self.assertEqual(after[name], values, name)
                    continue
                initial = 1.0 if name.endswith("var") else 0.0
                moved = sum(abs(a - b) for a, b in zip(values, after[name]))
                self.assertLess(moved, 0.7 * sum(abs(value - initial) for value in values), name)
        self.assertAlmostEqual(*losses, delta=1e-5)
        self.check_fresh_head(donor, still)

    def check_fresh_head(self, donor, still):
        for label, name in enumerate(("a", "b", "c")):
            folder = self.folder / "more" / "train" / name
            folder.mkdir(parents=True)
            for i in range(8):
                (folder / f"{i}.png").write_bytes(png(picture(label % 2, i)))
        self.run_here("prepare", "--images", "more", "--output", "three-data", "--validation", "none")
        three = ("--data.train", "three-data/train.h5", "--data.validation", "three-data/train.h5", *still)
        # bad input: `train`: `run.start_from` a model of other classes | ...: tensor
        # parameters/head.classifier.weight is fp32 (2, 1280), the model wants fp32 (3, 1280); --run.fresh head
        # begins it anew | 4
        self.assertIn("head.classifier.weight is fp32 (2, 1280), the model wants fp32 (3, 1280); --run.fresh head "
                      "begins it anew", self.train("three", *three, status=4))
        for run, grid in (("three", ()), ("three-stages", ("--grid.pipeline", 2)), ("three-shards", ("--shard.stage", 3))):
            said = self.train(run, *three, "--run.fresh", "head", *grid, ranks=2 if grid else 0)
            self.assertIn("step 0, with a fresh head", said)
            after = self.tensors(run)
            for name, values in donor.items():
                if name.startswith("classifier"):
                    self.assertEqual(2 * len(after[name]), 3 * len(values))
                    self.assertEqual(max(map(abs, after[name])) > 1e-20, name.endswith("weight"))  # biases begin with 0
                elif "running" not in name:
                    self.assertEqual(after[name], values, name)


if __name__ == "__main__":
    unittest.main()
