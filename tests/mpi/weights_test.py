#!/usr/bin/env python3
"""`trireme import`, `trireme export` and run.start_from, on one rank and several.

    python3 weights_test.py TRIREME MPIEXEC

What imported models compute is compared with PyTorch by weights_torch_test.
"""
import fcntl
import json
import math
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
import safetensors_files as files  # noqa: E402
from cli_testing import ProgramTest  # noqa: E402


# Runs a program, and then writes to a file how much memory it had at most, in KiB.
MEASURED = """import os, resource, subprocess, sys
status = subprocess.call(sys.argv[2:], close_fds=False)
with open(f"{sys.argv[1]}-{os.getpid()}", "w") as file:
    file.write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(status)
"""


class Weights(ProgramTest):
    mpiexec = ""

    def on(self, ranks):
        return [self.mpiexec, "-n", ranks] if ranks > 1 else ()

    def model(self, name, made):
        """A folder as transformers saves it."""
        config, tensors = made
        folder = self.folder / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config))
        files.write(folder / "model.safetensors", tensors)
        return folder

    def change(self, folder, **fields):
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))

    def train(self, *arguments, **options):
        return self.expect_done("train", "--data.train", self.folder / "data" / "train.h5", "--batch.global", 4,
                                "--batch.micro", 2, "--run.threads", 1, "--checkpoint.keep", 9, *arguments, **options)

    def losses(self, run):
        lines = (self.folder / run / "metrics.jsonl").read_text().splitlines()
        return [entry["loss"] for entry in map(json.loads, lines) if "loss" in entry]

    def test_comes_back_with_the_same_bits(self):
        # The matrices of the second are large enough to be divided among the ranks.
        for name, made in (("gpt2", files.gpt2()), ("wide", files.gpt2(layers=1, width=256)),
                           ("vit", files.vit()), ("bert", files.bert()), ("llama", files.llama())):
            theirs = self.model(name, made)
            for ranks in (1, 3):
                run, out = f"{name}-run-{ranks}", f"{name}-out-{ranks}"
                self.expect_done("import", "--from", theirs, "--output", run, before=self.on(ranks))
                text = self.expect_done("export", "--checkpoint", run, "--output", out, "--shard-size", "9KB",
                                        before=self.on(4 - ranks))
                self.assertIn("model-00001-of-", text)
                self.assertEqual(files.read_folder(self.folder / out), made[1])
                self.assertGreater(len(list((self.folder / out).glob("*.safetensors"))), 3)
                described = json.loads((self.folder / out / "config.json").read_text())
                given = {field: value for field, value in made[0].items() if value is not None}
                self.assertEqual({field: described[field] for field in given}, given)
            # An export is what can be imported.
            self.expect_done("import", "--from", out, "--output", f"{name}-again")
            self.expect_done("export", "--checkpoint", f"{name}-again", "--output", f"{name}-whole")
            self.assertEqual(files.read(self.folder / f"{name}-whole" / "model.safetensors"), made[1])
        self.assertEqual(self.expect_done("checkpoint", "verify", "gpt2-run-3").count("good"), 1)
        # bad input: `export`: a folder that holds safetensors | gpt2-whole: holds model.safetensors already:
        # give a new folder | 5
        self.expect_refusal(5, "gpt2-whole: holds model.safetensors already: give a new folder", "export",
                            "--checkpoint", "gpt2-run-1", "--output", "gpt2-whole")
        # bad input: `import`: into the folder of a run | gpt2-run-1: holds checkpoints already: import into a
        # new folder | 5
        self.expect_refusal(5, "gpt2-run-1: holds checkpoints already: import into a new folder", "import",
                            "--from", theirs, "--output", "gpt2-run-1")
        self.check_others_are_left()

    def test_reads_what_older_files_of_bert_have(self):
        config, tensors = files.bert()
        # What was converted from the first release has other names of norms, and parts for other tasks.
        older = {re.sub("(?<=LayerNorm.)weight$", "gamma", re.sub("(?<=LayerNorm.)bias$", "beta", name)): tensor
                 for name, tensor in tensors.items()}
        self.assertIn("bert.embeddings.LayerNorm.gamma", older)
        others = {"bert.pooler.dense.weight": (16, 16), "bert.pooler.dense.bias": (16,),
                  "cls.seq_relationship.weight": (2, 16), "cls.seq_relationship.bias": (2,)}
        repeated = {"cls.predictions.decoder.weight": tensors["bert.embeddings.word_embeddings.weight"],
                    "cls.predictions.decoder.bias": tensors["cls.predictions.bias"],
                    "bert.embeddings.position_ids": ("I64", [1, 16], bytes(128))}
        folder = self.model("older", (config, {
            **older, **repeated, **{name: files.random_tensor(shape, name) for name, shape in others.items()}}))
        self.expect_left_out(folder, others, tensors)
        # The same names without the prefix.
        bare = {name.removeprefix("bert."): tensor for name, tensor in older.items()}
        self.expect_done("import", "--from", self.model("bare", (config, bare)), "--output", "run2")
        self.expect_done("export", "--checkpoint", "run2", "--output", "out2")
        self.assertEqual(files.read(self.folder / "out2" / "model.safetensors"), tensors)
        # bad input: `import`: a BERT that has no head for masked tokens | ...: holds no tensor
        # cls.predictions.transform.dense.weight (16, 16), without which this is no BERT as transformers has it | 3
        for name in [name for name in bare if name.startswith("cls.")]:
            del bare[name]
        self.expect_refusal(3, "holds no tensor cls.predictions.transform.dense.weight (16, 16), without which this is "
                            "no BERT as transformers has it", "import", "--from", self.model("body", (config, bare)),
                            "--output", "run3")

    def expect_left_out(self, folder, others, tensors):
        """The model of a folder comes back as these tensors, without the `others`, which a line names."""
        done = self.run_program("import", "--from", folder, "--output", "run")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"weights: left out, since our models do not have these parts: {', '.join(sorted(others))}",
                      done.stderr)
        self.expect_done("export", "--checkpoint", "run", "--output", "out")
        self.assertEqual(files.read(self.folder / "out" / "model.safetensors"), tensors)

    def test_reads_what_other_files_of_vision_transformers_have(self):
        config, tensors = files.vit()
        bare = {name.removeprefix("vit."): tensor for name, tensor in tensors.items()}
        others = {"pooler.dense.weight": (16, 16), "pooler.dense.bias": (16,)}  # of other tasks
        folder = self.model("bare", (config, {
            **bare, **{name: files.random_tensor(shape, name) for name, shape in others.items()}}))
        self.expect_left_out(folder, others, tensors)

    def check_others_are_left(self):
        def holding(name, file):
            (self.folder / name).mkdir()
            (self.folder / name / file).write_text("of others")
            return name

        # bad input: `import`: into the folder of a run without checkpoints | begun: holds config.ini already:
        # import into a new folder | 5
        self.expect_refusal(5, "begun: holds config.ini already: import into a new folder", "import", "--from",
                            "gpt2", "--output", holding("begun", "config.ini"))
        self.assertEqual((self.folder / "begun" / "config.ini").read_text(), "of others")
        # What an import that was killed has left, the same one completes.
        shutil.copytree(self.folder / "gpt2-run-1", self.folder / "cut")
        (self.folder / "cut" / "config.ini").unlink()
        self.expect_done("import", "--from", "gpt2", "--output", "cut", before=self.on(2))
        for file in ("config.ini", "checkpoints/step-00000000.h5"):
            self.assertEqual((self.folder / "cut" / file).read_bytes(), (self.folder / "gpt2-run-1" / file).read_bytes())
        # bad input: `export`: a folder that holds a `config.json` | described: holds config.json already: give a
        # new folder | 5
        self.expect_refusal(5, "described: holds config.json already: give a new folder", "export", "--checkpoint",
                            "gpt2-run-1", "--output", holding("described", "config.json"), before=self.on(2))
        self.assertEqual([(file.name, file.read_text()) for file in (self.folder / "described").iterdir()],
                         [("config.json", "of others")])
        # bad input: `export`: a folder with unfinished files of another program | ...safetensors.partial: another
        # program has left it: remove it, or give a new folder | 5
        for file in ("model.safetensors.partial", "model-00002-of-00003.safetensors.partial"):
            name = holding(f"shared-{len(file)}", file)
            self.expect_refusal(5, f"{file}: another program has left it", "export",
                                "--checkpoint", "gpt2-run-1", "--output", name)
            self.assertEqual([path.read_text() for path in (self.folder / name).iterdir()], ["of others"])
        # bad input: `export`, `prepare`: a folder that another one is writing to | out: another trireme is writing
        # files there; wait, or name another folder (process 4242 on node7) | 5
        note = self.folder / holding("busy", ".writing") / ".writing"
        with open(note, "r+") as file:
            file.write("process 4242 on node7\nmodel.safetensors\nconfig.json\n")
            file.flush()
            fcntl.flock(file, fcntl.LOCK_EX)
            self.expect_refusal(5, "busy: another trireme is writing files there; wait, or name another folder "
                                "(process 4242 on node7)", "export", "--checkpoint", "gpt2-run-1", "--output", "busy",
                                before=self.on(2))
        # What a killed one has left is replaced.
        (self.folder / "busy" / "model.safetensors").write_text("without a config.json")
        (self.folder / "busy" / "config.json.partial").write_text("cut")
        self.expect_done("export", "--checkpoint", "gpt2-run-1", "--output", "busy", before=self.on(2))
        self.assertEqual(sorted(path.name for path in (self.folder / "busy").iterdir()),
                         ["config.json", "model.safetensors"])

    def test_half_the_bits(self):
        _, tensors = made = files.llama()
        self.expect_done("import", "--from", self.model("llama", made), "--output", "run")
        self.expect_done("export", "--checkpoint", "run", "--output", "bf16", "--dtype", "bf16", before=self.on(2))
        rounded = files.read_folder(self.folder / "bf16")
        for name, (kind, shape, values) in rounded.items():
            self.assertEqual((kind, shape), ("BF16", tensors[name][1]), name)
            ours = struct.unpack(f"<{len(values) // 2}H", values)
            theirs = struct.unpack(f"<{len(values) // 2}I", tensors[name][2])
            for a, b in zip(ours, theirs):
                self.assertEqual(a, (b + 0x7fff + (b >> 16 & 1)) >> 16)
        # bf16 in, and as fp32 out again, is exact.
        files.write(self.folder / "bf16" / "model.safetensors", rounded)
        self.expect_done("import", "--from", self.folder / "bf16", "--output", "run2")
        self.expect_done("export", "--checkpoint", "run2", "--output", "fp32")
        self.expect_done("export", "--checkpoint", "run2", "--output", "again", "--dtype", "bf16")
        self.assertEqual(files.read_folder(self.folder / "again"), rounded)
        exact = files.read_folder(self.folder / "fp32")["model.norm.weight"][2]
        self.assertEqual(exact[2::4] + exact[3::4], rounded["model.norm.weight"][2][0::2] +
                         rounded["model.norm.weight"][2][1::2])
        tensors["model.norm.weight"] = ("F32", [16], struct.pack("<16f", *[1e30] * 16))
        self.expect_done("import", "--from", self.model("large", made), "--output", "run3")
        # bad input: `export`: a number that fp16 cannot hold | tensor parameters/norm.weight holds 1e+30, which
        # fp16 cannot: give another --dtype | 3
        self.expect_refusal(3, "tensor parameters/norm.weight holds 1e+30, which fp16 cannot: give another --dtype",
                            "export", "--checkpoint", "run3", "--output", "fp16", "--dtype", "fp16")
        self.assertFalse((self.folder / "fp16").exists())

    def test_graphs(self):
        for name, made in (("gpt2", files.gpt2()), ("wide", files.gpt2(layers=1, width=256)),
                           ("vit", files.vit()), ("bert", files.bert()), ("llama", files.llama())):
            self.expect_done("import", "--from", self.model(name, made), "--output", f"{name}-run")
            written = {}
            for ranks in (1, 2, 4):
                out = self.folder / f"{name}-{ranks}"
                text = self.expect_done("export", "--checkpoint", f"{name}-run", "--output", out, "--format", "onnx",
                                        before=self.on(ranks))
                self.assertIn("tensors of fp32", text)
                self.assertIn("model.onnx, model.onnx.data", text)
                written[ranks] = {file.name: file.read_bytes() for file in out.iterdir()}
                self.assertEqual(sorted(written[ranks]), ["model.onnx", "model.onnx.data"])
            self.assertEqual(written[2], written[1])
            self.assertEqual(written[4], written[1])
            # The embedding is the first weight that a text or a picture needs.
            table = made[1][{"llama": "model.embed_tokens.weight", "bert": "bert.embeddings.word_embeddings.weight",
                             "vit": "vit.embeddings.patch_embeddings.projection.weight"}.get(
                                 name, "transformer.wte.weight")][2]
            self.assertEqual(written[1]["model.onnx.data"][:len(table)], table)
        self.check_graphs_are_refused(made[1])

    def check_graphs_are_refused(self, llama):
        export = ("export", "--checkpoint", "llama-run", "--output")
        # bad input: `export`: a format that it does not write | --format tflite: is not one of safetensors, onnx
        # | 2
        self.expect_refusal(2, "--format tflite: is not one of safetensors, onnx", *export, "new", "--format",
                            "tflite")
        # bad input: `export`: `--shard-size` of a graph of ONNX | --shard-size: the weights of a graph of ONNX
        # are one file: leave it out | 2
        self.expect_refusal(2, "--shard-size: the weights of a graph of ONNX are one file: leave it out", *export,
                            "new", "--format", "onnx", "--shard-size", "1GB")
        # bad input: `export`: a folder that holds a graph of ONNX | llama-1: holds model.onnx already: give a new
        # folder | 5
        (self.folder / "llama-1" / "model.onnx.data").unlink()
        self.expect_refusal(5, "llama-1: holds model.onnx already: give a new folder", *export, "llama-1", "--format",
                            "onnx", before=self.on(2))
        (self.folder / "shared").mkdir()
        (self.folder / "shared" / "model.onnx.partial").write_text("of others")
        # bad input: `export`: a folder with an unfinished graph of another program | ...model.onnx.partial: another
        # program has left it: remove it, or give a new folder | 5
        self.expect_refusal(5, "shared/model.onnx.partial: another program has left it", *export,
                            "shared", "--format", "onnx")
        self.assertEqual([file.read_text() for file in (self.folder / "shared").iterdir()], ["of others"])
        llama["model.norm.weight"] = ("F32", [16], struct.pack("<16f", *[1e30] * 16))
        config = json.loads((self.folder / "llama" / "config.json").read_text())
        self.expect_done("import", "--from", self.model("large", (config, llama)), "--output", "large-run")
        self.expect_refusal(3, "tensor parameters/norm.weight holds 1e+30, which fp16 cannot: give another --dtype",
                            "export", "--checkpoint", "large-run", "--output", "fp16", "--dtype", "fp16", "--format",
                            "onnx", before=self.on(2))
        self.assertFalse((self.folder / "fp16").exists())

    def test_a_full_disk(self):
        self.expect_done("import", "--from", self.model("wide", files.gpt2(layers=1, width=256)), "--output", "run")
        (self.folder / "full").mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", self.folder / "full"]
        if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
            self.skipTest("only who may mount a file system can make a full one")
        self.addCleanup(subprocess.run, ["umount", self.folder / "full"], check=True)
        for form in ("safetensors", "onnx"):
            # bad input: `export`: a full disk | ...: No space left on device | 5
            self.expect_refusal(5, "No space left on device", "export", "--checkpoint", "run", "--output", "full",
                                "--format", form, before=self.on(2))
            self.assertEqual(list((self.folder / "full").iterdir()), [])

    def test_trains_on(self):
        self.prepare()
        theirs = self.model("gpt2", files.gpt2())
        self.expect_done("import", "--from", theirs, "--output", "run")
        before = self.expect_done("eval", "--checkpoint", "run", "--data", "data/train.h5")
        text = self.train("--config", "run/config.ini", "--run.steps", 3)
        self.assertIn("going on from run/checkpoints/step-00000000.h5, step 0", text)
        self.assertNotIn("changed settings", text)
        self.assertNotIn("results will agree", text)  # there are none before
        self.assertIn("going on from run/checkpoints/step-00000003.h5, step 3",
                      self.train("--config", "run/config.ini", "--run.folder", "run", "--run.steps", 4))
        # Dropout is the run's to choose, until it has a checkpoint of its own.
        self.expect_done("import", "--from", theirs, "--output", "dropping")
        text = self.train("--config", "dropping/config.ini", "--run.folder", "dropping", "--run.steps", 1,
                          "--model.dropout", 0.1)
        self.assertIn("going on from dropping/checkpoints/step-00000000.h5, step 0", text)
        self.assertNotIn("changed settings", text)
        # The same weights on every grid, by run.start_from; the run's own checkpoint counts more later.
        self.expect_done("import", "--from", theirs, "--output", "weights", before=self.on(2))
        first = self.losses("run")[0]
        for number, grid in enumerate(((), ("--grid.tensor", 2), ("--grid.pipeline", 2), ("--shard.stage", 3))):
            run = f"tuned-{number}"
            arguments = ("--config", "weights/config.ini", "--run.start_from", "weights", "--run.folder", run, *grid)
            text = self.train(*arguments, "--run.steps", 2, before=self.on(2 if grid else 1))
            self.assertIn("starting from the weights of weights/checkpoints/step-00000000.h5, step 0", text)
            self.assertAlmostEqual(self.losses(run)[0], first, delta=1e-5 * first)
            text = self.train(*arguments, "--run.steps", 3, before=self.on(2 if grid else 1))
            self.assertIn(f"going on from {run}/checkpoints/step-00000002.h5, step 2", text)
            self.assertNotIn("starting from", text)
        after = self.expect_done("eval", "--checkpoint", "weights", "--data", "data/train.h5")
        self.assertEqual(re.search(r"(?m)^loss.*", after)[0], re.search(r"(?m)^loss.*", before)[0])
        # bad input: `generate`: imported weights, and no tokenizer | ...: these weights came without a tokenizer that
        # is read: --tokenizer PATH names a tokenizer.json, a SentencePiece model, a folder with one, or a shard | 2
        self.expect_refusal(2, "these weights came without a tokenizer that is read: --tokenizer PATH names", "generate",
                            "--checkpoint", "weights", "--prompt", "a")
        self.check_starts()

    def test_a_new_branch_leaves_imported_weights(self):
        self.prepare()
        self.expect_done("import", "--from", self.model("gpt2", files.gpt2()), "--output", "run")
        start = ("--config", "run/config.ini", "--run.folder", "run", "--run.steps", 1)
        text = self.train(*start, "--run.resume", "never")
        self.assertIn("a new branch begins at step 0: 1 checkpoint (step 0) moved to ", text)
        fresh = self.losses("run")[-1]
        # It is as if the run had been killed before its first checkpoint.
        (self.folder / "run" / "checkpoints" / "step-00000001.h5").unlink()
        self.assertNotIn("going on from", self.train(*start, "--run.resume", "auto"))
        self.assertEqual(self.losses("run")[-1], fresh)

    def test_start_from_belongs_to_the_run_until_it_has_a_checkpoint(self):
        self.prepare()
        self.expect_done("import", "--from", self.model("gpt2", files.gpt2()), "--output", "weights")
        begins = "starting from the weights of "
        start = ("--config", "weights/config.ini", "--run.folder", "run", "--run.steps", 1)
        self.assertIn(begins, self.train(*start, "--run.start_from", "weights"))
        first = self.losses("run")
        self.assertIn(f"start_from = {self.folder.resolve()}/weights\n", (self.folder / "run/config.ini").read_text())
        # It is as if the run had been killed before its first checkpoint.
        (self.folder / "run" / "checkpoints" / "step-00000001.h5").unlink()
        again = ("--config", "run/config.ini")
        self.assertIn(begins, self.train(*again))
        self.assertEqual(self.losses("run"), first)
        # It does not with a checkpoint of its own, nor where one is named.
        checkpoint = "run/checkpoints/step-00000001.h5"
        for named in ((), ("--run.resume", checkpoint)):
            text = self.train(*again, "--run.steps", 2, *named)
            self.assertIn(f"going on from {checkpoint}, step 1", text)
            self.assertNotIn(begins, text)
            (self.folder / "run" / "checkpoints" / "step-00000002.h5").unlink()
        config = (self.folder / "run/config.ini").read_text()
        self.assertIn("\nstart_from = ", config)
        self.assertNotIn("resume", config)

    def rates(self, run):
        """The learning rate of each step."""
        lines = (self.folder / run / "metrics.jsonl").read_text().splitlines()
        return [entry["lr"] for entry in map(json.loads, lines) if "loss" in entry]

    def test_trained_weights_have_a_lower_learning_rate(self):
        self.prepare()
        self.expect_done("import", "--from", self.model("llama", files.llama()), "--output", "run")
        shutil.copy(self.folder / "run/config.ini", self.folder / "model.ini")
        shutil.copytree(self.folder / "run", self.folder / "weights")
        first, warmup = "optim.lr 2e-05", "schedule.warmup 2"
        why = ": the run begins with trained weights\n"
        constant = ("--config", "model.ini", "--schedule.name", "constant")

        def start(run, steps, *more, **options):
            """What is said, and the learning rates of all steps so far."""
            text = self.train(*constant, "--run.folder", run, "--run.steps", steps, *more, **options)
            return text, self.rates(run)

        def check(rates, *wanted):
            for rate, expected in zip(rates, (*wanted, *[wanted[-1]] * (len(rates) - len(wanted))), strict=True):
                self.assertAlmostEqual(rate, expected, delta=1e-6 * expected)

        text, rates = start("run", 40)
        self.assertIn(f"\n{first}, {warmup} (3 % of the run){why}", text)
        check(rates, 1e-5, 2e-5)
        config = (self.folder / "run/config.ini").read_text()
        self.assertRegex(config, r"(?m)^lr = 2e-05\n")
        self.assertRegex(config, r"(?m)^warmup = 2\n")
        # A start that goes on computes with what the first one settled: with the same keys, with those that are
        # recorded, after these, and on another grid.
        for steps, flags in ((41, constant), (42, ("--config", "run/config.ini")), (60, constant),
                             (61, (*constant, "--grid.tensor", 2))):
            text = self.train(*flags, "--run.folder", "run", "--run.steps", steps,
                              before=self.on(2 if "--grid.tensor" in flags else 1))
            self.assertIn(f"\n{first}, {warmup}, as at the first start\n", text)
            self.assertNotRegex(text, "(lr|warmup) was")
            check(self.rates("run"), 1e-5, 2e-5)
        # Another number is a change as any other; then the run has no settled one.
        text, rates = start("run", 62, "--optim.lr", 5e-4)
        self.assertIn("optim.lr was 2e-05, is 0.0005", text)
        self.assertIn(f"\n{warmup}, as at the first start\n", text)
        text, rates = start("run", 63)
        self.assertIn("optim.lr was 0.0005, is 0.001", text)
        check(rates[-2:], 5e-4, 1e-3)
        # run.start_from does the same, whosever the weights are; a key that is given counts, each by itself.
        for weights, steps in (("weights", 40), ("run", 41)):
            text, rates = start(f"from-{weights}", steps, "--run.start_from", weights)
            self.assertIn(f"\n{first}, {warmup} (3 % of the run){why}", text)
            check(rates, 1e-5, 2e-5)
        text, rates = start("given", 4, "--run.start_from", "weights", "--optim.lr", 3e-4)
        self.assertIn(f"\nschedule.warmup 1 (3 % of the run){why}", text)
        check(rates, 3e-4)
        text, rates = start("warm", 4, "--run.start_from", "weights", "--schedule.warmup", 4)
        self.assertIn(f"\n{first}{why}", text)
        check(rates, 5e-6, 1e-5, 1.5e-5, 2e-5)
        # Other rules, initial values, and a run that an earlier version began, keep what they had.
        text, rates = start("sgd", 2, "--run.start_from", "weights", "--optim.name", "sgd")
        self.assertNotIn("trained weights", text)
        check(rates, 1e-3)
        text, rates = start("new", 2)
        self.assertNotIn("trained weights", text)
        check(rates, 1e-3)
        text, rates = start("new", 3, "--run.start_from", "weights")
        self.assertNotIn("trained weights", text)
        check(rates, 1e-3)

    def test_shorter_texts_train_and_exports_are_for_long_ones_again(self):
        self.prepare()
        self.expect_done("import", "--from", self.model("llama", files.llama(context=128)), "--output", "run")
        # bad input: `train`: imported weights, and a context that they are not for | ... is of another run: model.context was
        # 128, is 256; ... | 2
        self.expect_refusal(2, "is of another run: model.context was 128, is 256", "train", "--config", "run/config.ini",
                            "--data.train", "data/train.h5", "--model.context", 256)
        self.assertIn(" of 16 = ", self.train("--config", "run/config.ini", "--run.steps", 1, "--model.context", 16))
        self.assertIn(" of 16 = ", self.train("--config", "run/config.ini", "--run.steps", 2))
        self.train("--config", "run/config.ini", "--run.steps", 1, "--run.start_from", "run", "--run.folder", "tuned")
        for run in ("run", "tuned"):
            self.expect_done("export", "--checkpoint", run, "--output", f"{run}-out")
            described = json.loads((self.folder / f"{run}-out" / "config.json").read_text())
            self.assertEqual(described["max_position_embeddings"], 128)
        # Learned positions are parameters.
        self.expect_done("import", "--from", self.model("gpt2", files.gpt2()), "--output", "learned")
        self.expect_refusal(4, "is of another run: model.context was 16, is 8", "train", "--config", "learned/config.ini",
                            "--data.train", "data/train.h5", "--model.context", 8)

    def test_a_run_leaves_with_the_names_that_its_weights_came_with(self):
        self.prepare()
        config, tensors = files.llama()
        for name, made in (("llama", (config, tensors)), ("phi3", files.phi3()),
                           ("mistral", ({**config, "model_type": "mistral", "sliding_window": None}, tensors))):
            theirs, run = self.model(name, made), f"{name}-run"
            self.expect_done("import", "--from", theirs, "--output", run)
            still = ("--config", f"{run}/config.ini", "--optim.lr", 1e-30)  # no bit of the weights changes
            for steps in (1, 2):
                self.train(*still, "--run.folder", run, "--run.steps", steps)
            self.train(*still, "--run.folder", f"{name}-tuned", "--run.start_from", run, "--run.steps", 1, "--grid.data", 2,
                       before=self.on(2))
            for checkpoint in (run, f"{name}-tuned"):
                out = f"{checkpoint}-out"
                self.expect_done("export", "--checkpoint", checkpoint, "--output", out)
                self.assertEqual(json.loads((self.folder / out / "config.json").read_text())["model_type"], name)
                self.assertEqual(files.read_folder(self.folder / out), made[1])
        # What the type cannot be leaves as another one.
        self.train("--config", "mistral-run/config.ini", "--run.start_from", "mistral-run", "--run.folder", "scaled",
                   "--run.steps", 1, "--model.attention_scale", 0.3)
        self.assertIn("Granite", self.expect_done("export", "--checkpoint", "scaled", "--output", "scaled-out"))

    def test_a_fresh_head_needs_the_tokens_of_the_weights(self):
        for number in (1, 2):
            draws = random.Random(number)
            words = ["".join(draws.choice("abcdefghijkl") for _ in range(draws.randint(3, 7))) for _ in range(60)]
            lines = (" ".join(draws.choice(words) for _ in range(9)) for _ in range(120))
            (self.folder / "words.txt").write_text("\n".join(lines) + "\n")
            self.expect_done("prepare", "words.txt", "--output", f"data{number}", "--tokenizer", "bpe:300",
                             "--validation", "none")
        start = ("train", "--model.preset", "test-llama", "--model.vocabulary", 300, "--run.steps", 1, "--batch.global",
                 2, "--batch.micro", 1, "--run.threads", 1)
        self.expect_done(*start, "--data.train", "data1/train.h5", "--run.folder", "first")
        fresh = ("--run.start_from", "first", "--run.fresh", "head")
        self.expect_done(*start, *fresh, "--data.train", "data1/train.h5", "--run.folder", "same")
        # bad input: `train`: `run.fresh head` of a language model, and data of another tokenizer | ... has another
        # tokenizer than the model of ..., though as many tokens: use data of the tokenizer that the model was trained
        # with | 3
        self.expect_refusal(3, "data2/train.h5 has another tokenizer", *start, *fresh, "--data.train",
                            "data2/train.h5", "--run.folder", "other")

    def check_starts(self):
        start = ("train", "--data.train", "data/train.h5", "--run.steps", 1, "--run.folder", "other", "--config",
                 "weights/config.ini")
        # bad input: `train`: `run.start_from` a model of another width | ...: tensor parameters/embedding.weight
        # is fp32 (257, 16), the model wants fp32 (257, 32); its model was another one: ...; --config takes its settings
        # from the config.ini of its run | 4
        self.expect_refusal(4, "is fp32 (257, 16), the model wants fp32 (257, 32); its model was another one: model.width "
                            "was 16, is 32; --config takes its settings from", *start, "--run.start_from",
                            "weights", "--model.width", 32, "--model.hidden", 64)
        # bad input: `train`: `run.start_from` a model of more layers | ...: holds
        # parameters/blocks.1.attention.key.bias, which the model does not have: model.* must describe its
        # model | 4
        self.expect_refusal(4, "holds parameters/blocks.1.attention.key.bias, which the model does not have", *start,
                            "--run.start_from", "weights", "--model.layers", 1)
        # bad input: `train`: `run.start_from` something that is not there | nowhere: there is no such file or
        # folder; ... | 4
        self.expect_refusal(4, "nowhere: there is no such file or folder", *start, "--run.start_from", "nowhere")
        # bad input: `train`, `eval`, `export`, ...: weights of another program in place of a checkpoint | gpt2: no checkpoint
        # is there, but model.safetensors: trireme import --from gpt2 makes one | 4
        self.expect_refusal(4, "gpt2: no checkpoint is there, but model.safetensors: trireme import --from gpt2 makes one",
                            *start, "--run.start_from", "gpt2")
        # bad input: `train`: `run.fresh head` where the head is the embedding | run.fresh is head, but in this
        # model the output head is the embedding (model.tied), or it has none of its own: leave it out | 2
        self.expect_refusal(2, "run.fresh is head, but in this model the output head is the embedding", *start,
                            "--run.start_from", "weights", "--run.fresh", "head")
        # bad input: `train`: `run.start_from` a model without a head of its own | ...: holds no tensor
        # parameters/head.weight; the model wants one of shape (257, 16); --run.fresh head begins it anew | 4
        self.expect_refusal(4, "holds no tensor parameters/head.weight; the model wants one of shape (257, 16); "
                            "--run.fresh head begins it anew", *start, "--run.start_from", "weights",
                            "--model.tied", "false")
        # bad input: `train`: `run.fresh` without `run.start_from` | run.fresh is head, but without
        # run.start_from all values are initial ones: leave it out | 2
        self.expect_refusal(2, "run.fresh is head, but without run.start_from", *start, "--run.fresh", "head")
        self.assertEqual(list((self.folder / "other").glob("checkpoints/*")), [])

    def test_names_what_our_models_do_not_have(self):
        gpt2, llama = self.model("gpt2", files.gpt2()), self.model("llama", files.llama())

        def refused(folder, message, *arguments, status=2, **fields):
            whole = (folder / "config.json").read_text()
            self.change(folder, **fields)
            self.expect_refusal(status, message, "import", "--from", folder, "--output", "run", *arguments)
            (folder / "config.json").write_text(whole)
            self.assertFalse((self.folder / "run").exists())

        # bad input: `import`: a rotary scaling without what it needs | config.json: has no low_freq_factor, which
        # its rotary scaling needs | 2
        refused(llama, "config.json: has no low_freq_factor, which its rotary scaling needs",
                rope_scaling={"rope_type": "llama3", "factor": 8.0})
        # bad input: `import`: a rotary scaling that nobody knows | config.json: rope_type is spiral: our Llama models
        # have default, linear, llama3, yarn, longrope and dynamic | 2
        refused(llama, "config.json: rope_type is spiral: our Llama models have default, linear, llama3, yarn, longrope "
                "and dynamic", rope_parameters={"rope_type": "spiral", "rope_theta": 1e4})
        refused(llama, "config.json: twist is 2: our Llama models have no such thing",
                rope_parameters={"rope_type": "default", "twist": 2})
        refused(llama, "config.json: sliding_window is 128", sliding_window=128)
        # bad input: `import`: a field and a repetition of it that differ | config.json: rope_theta is 10000: rope_parameters
        # says 500, and versions of transformers disagree on which counts | 2
        refused(llama, "config.json: rope_theta is 10000: rope_parameters says 500, and versions of transformers disagree "
                "on which counts", rope_theta=1e4, rope_parameters={"rope_type": "default", "rope_theta": 500})
        refused(llama, "config.json: num_attention_heads is 0: expected 1 or more", model_type="granite",
                num_attention_heads=0)
        refused(llama, "config.json: head_dim is -4: expected 1 or more, or null", head_dim=-4)
        refused(llama, "config.json: sliding_window is -4: expected 1 or more, or null", model_type="mistral",
                sliding_window=-4)
        refused(llama, "config.json: partial_rotary_factor is 0.5: our Llama models have 1 alone",
                partial_rotary_factor=0.5)
        refused(llama, "config.json: hidden_act is gelu: our Llama models have silu and gelu_pytorch_tanh alone",
                hidden_act="gelu")
        refused(llama, "tensor model.layers.0.self_attn.q_proj.weight is (16, 16), but (32, 16) in the model", head_dim=8,
                status=3)
        refused(llama, "holds no tensor model.layers.0.self_attn.q_proj.bias (16)", attention_bias=True, status=3)
        refused(llama, "config.json: hidden_size is \"16\"", hidden_size="16")
        # The defaults of the class.
        refused(llama, "tensor model.embed_tokens.weight is (257, 16), but (32000, 16) in the model", vocab_size=None,
                status=3)
        # bad input: `import`: weights that are quantized | config.json: quantization_config: its weights are quantized,
        # and our models take fp32, bf16 and fp16: import those that it was made from | 2
        refused(llama, "config.json: quantization_config: its weights are quantized", quantization_config={"bits": 4})
        refused(llama, "config.json: quantization_config: its weights are quantized", model_type="gemma3",
                text_config={"quantization_config": {"bits": 4}})
        refused(llama, "config.json: text_config is []: expected an object", model_type="gemma3", text_config=[])
        refused(llama, "config.json: model_type is 3: expected a text", model_type="gemma3",
                text_config={"model_type": 3})
        refused(llama, "config.json: model_type mixtral of text_config needs mixtures of experts, and is not one of llama, ",
                model_type="mistral3", text_config={"model_type": "mixtral"})
        # bad input: `import`: a mixture of experts, or another model that ours cannot be | config.json: model_type
        # mixtral needs mixtures of experts, and is not one of llama, mistral, ... | 2
        refused(llama, "config.json: model_type mixtral needs mixtures of experts, and is not one of llama, mistral, ",
                model_type="mixtral")
        # bad input: `import`: a model of another kind | config.json: model_type t5 is not one of llama, mistral, ... | 2
        refused(llama, "config.json: model_type t5 is not one of llama, mistral, ", model_type="t5")
        # bad input: `import`: a GPT-2 with another activation | config.json: activation_function is relu: our
        # GPT-2 models have gelu and gelu_pytorch_tanh alone | 2
        refused(gpt2, "config.json: activation_function is relu: our GPT-2 models have gelu and gelu_pytorch_tanh alone",
                activation_function="relu")
        refused(gpt2, "config.json: scale_attn_by_inverse_layer_idx is true", scale_attn_by_inverse_layer_idx=True)
        refused(gpt2, "model.layers = 100000: must be at least 1 and at most 4096", n_layer=100000)
        # bad input: `import`: keys of one family, and a config.json of another | config.json describes a model
        # of family gpt, but model.family is mobilenet_v2: leave the model keys out, they follow from
        # config.json | 2
        refused(gpt2, "config.json describes a model of family gpt, but model.family is mobilenet_v2",
                "--model.family", "mobilenet_v2")
        # bad input: `import`: a preset, and a config.json | config.json describes the model, and a preset would add to it
        # what it leaves at its default: leave model.preset out | 2
        refused(llama, "config.json describes the model, and a preset would add to it what it leaves at its default: leave "
                "model.preset out", "--model.preset", "llama3.1-8b")

        # bad input: `import`: a tensor that is not there | ...: holds no tensor transformer.h.2.ln_1.weight
        # (16), without which this is no GPT-2 as transformers has it (...) | 3
        refused(gpt2, "holds no tensor transformer.h.2.ln_1.weight (16), without which this is no GPT-2 as "
                "transformers has it (", n_layer=3, status=3)
        # bad input: `import`: a tensor that the model does not have | ...: holds a tensor
        # transformer.h.1.attn.c_attn.bias (48), which is not in a GPT-2 as transformers has it (...) | 3
        refused(gpt2, "holds a tensor transformer.h.1.attn.c_attn.bias (48), which is not in a GPT-2", n_layer=1,
                status=3)
        # bad input: `import`: a tensor of another shape | ...: tensor transformer.wpe.weight is (16, 16), but
        # (32, 16) in the model (...): model.* must describe the model in the file | 3
        refused(gpt2, "tensor transformer.wpe.weight is (16, 16), but (32, 16) in the model", n_positions=32,
                status=3)
        refused(gpt2, "tensor transformer.wpe.weight is (16, 16), but (8, 16) in the model", "--model.context", 8,
                status=3)

    def test_more_than_the_memory_holds(self):
        config, shapes = files.gpt2_shapes(layers=400, width=16384, heads=128)
        folder = self.model("large", (config, {}))
        try:
            files.write_zeros(folder / "model.safetensors", shapes)
        except OSError as error:
            self.skipTest(f"no file of 5 TB can be made here: {error}")
        # bad input: `import`: more weights than the nodes have memory | memory: importing 1288579891200 parameters
        # needs about ... MiB on each node, which has ...: start it on more nodes | 2
        done = self.expect_refusal(2, "memory: importing ", "import", "--from", folder, "--output", "run")
        self.assertRegex(done.stderr, "importing [0-9]{13} parameters needs about [0-9]+ MiB (on each node, which has "
                         "[0-9]+: |in each control group, .* or )start it on more nodes")
        self.assertFalse((self.folder / "run").exists())

    def most_resident(self, ranks, name, *arguments):
        """The most memory that any of the ranks had, in bytes."""
        measured = (sys.executable, "-c", MEASURED, self.folder / name)
        self.expect_done(*arguments, before=(self.mpiexec, "-n", ranks, *measured))
        found = [int(file.read_text()) for file in self.folder.glob(f"{name}-*")]
        self.assertEqual(len(found), ranks)
        return 1024 * max(found)

    def test_no_rank_holds_the_model(self):
        """Beyond what a small model takes, two ranks hold little more than half of a large one each."""
        most = {}
        for size, sizes in (("small", {"layers": 1}), ("large", {"layers": 3, "width": 1024, "heads": 16})):
            config, shapes = files.gpt2_shapes(**sizes)
            folder = self.model(size, (config, {}))
            files.write_zeros(folder / "model.safetensors", shapes)
            for ranks in (1, 2):
                run = f"{size}-run-{ranks}"
                most[size, "import", ranks] = self.most_resident(ranks, f"import-{size}-{ranks}", "import", "--from",
                                                                 folder, "--output", run)
                most[size, "export", ranks] = self.most_resident(ranks, f"export-{size}-{ranks}", "export",
                                                                 "--checkpoint", run, "--output", f"{size}-out-{ranks}")
        weights = 4 * sum(math.prod(shape) for shape in shapes.values())
        self.assertGreater(weights, 140e6)
        for command in ("import", "export"):
            shares = [(most["large", command, ranks] - most["small", command, ranks]) / weights for ranks in (1, 2)]
            self.assertGreater(shares[0], 0.8, command)  # the measure sees what a rank holds
            self.assertLess(shares[1], 0.75, command)

    def test_fields_that_nobody_knows_are_said(self):
        theirs = self.model("gpt2", files.gpt2())
        self.change(theirs, novelty=7, resid_pdrop=0.1, use_cache=True, _name_or_path="x")
        done = self.run_program("import", "--from", theirs, "--output", "run")
        self.assertEqual((done.returncode, done.stderr),
                         (0, "trireme: config.json: not read, since we do not know them: novelty\n"))

    def test_other_names_and_types(self):
        config, tensors = files.gpt2()
        bare = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
        bare["h.0.attn.bias"] = ("F32", [1], bytes(4))  # a mask, which nothing reads
        bare["lm_head.weight"] = tensors["transformer.wte.weight"]
        self.expect_done("import", "--from", self.model("bare", (config, bare)), "--output", "run")
        self.expect_done("export", "--checkpoint", "run", "--output", "out")
        self.assertEqual(files.read_folder(self.folder / "out"), tensors)
        bare["ln_f.bias"] = ("F64", [16], bytes(128))
        # bad input: `import`: weights of a type that is none of ours | ...: tensor ln_f.bias is of F64: F32,
        # BF16 and F16 can be imported | 3
        self.expect_refusal(3, "tensor ln_f.bias is of F64: F32, BF16 and F16 can be imported", "import", "--from",
                            self.model("wide", (config, bare)), "--output", "run2")

    def test_what_wraps_a_model(self):
        """Names of models in training, and of text models in models of texts and pictures."""
        config, tensors = files.llama()
        pictures = {"vision_tower.patch_conv.weight": (4, 3), "multi_modal_projector.linear_1.weight": (16, 4)}
        outer = {"model_type": "mistral3", "text_config": {**config, "model_type": "mistral", "sliding_window": None},
                 "vision_config": {}, "image_token_index": 10, "projector_hidden_act": "gelu",
                 "tie_word_embeddings": False}
        for number, (beginning, head, described, others) in enumerate((
                ("module._orig_mod.model.", "module._orig_mod.", config, {}),
                ("language_model.model.", "language_model.", outer, pictures),
                ("model.language_model.", "", outer, {f"model.{name}": shape for name, shape in pictures.items()}))):
            named = {(beginning + name.removeprefix("model.") if name.startswith("model.") else head + name): tensor
                     for name, tensor in tensors.items()}
            named.update((name, files.random_tensor(shape, name)) for name, shape in others.items())
            folder = self.model(f"wrapped{number}", (described, named))
            done = self.run_program("import", "--from", folder, "--output", f"run{number}", before=self.on(number))
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertNotIn("not read", done.stderr)
            if others:
                self.assertIn(f"do not have these parts: {', '.join(sorted(others))}", done.stderr)
            self.expect_done("export", "--checkpoint", f"run{number}", "--output", f"out{number}")
            self.assertEqual(files.read_folder(self.folder / f"out{number}"), tensors)
        # bad input: `import`: a tensor twice, with and without what wraps it | ...: tensors ... and ... are the same one
        # of a model | 3
        twice = {**tensors, "module.model.norm.weight": tensors["model.norm.weight"]}
        self.expect_refusal(3, "tensors model.norm.weight and module.model.norm.weight are the same one of a model", "import",
                            "--from", self.model("twice", (config, twice)), "--output", "run9")

    def test_rows_that_are_no_tokens(self):
        """A vocabulary with more rows than tokens stays as it is through training, and nobody draws the others."""
        config, tensors = files.llama(vocabulary=300)
        self.expect_done("import", "--from", self.model("padded", (config, tensors)), "--output", "run")
        shard = self.prepare()
        text = self.train("--config", "run/config.ini", "--run.folder", "run", "--run.steps", 2)
        self.assertIn("model.vocabulary is 300: 43 rows stand for no token", text)
        self.expect_done("eval", "--checkpoint", "run", "--data", shard / "train.h5")
        for seed in range(3):
            done = self.run_program("generate", "--checkpoint", "run", "--prompt", "Line", "--tokens", 12, "--temperature",
                                    9, "--seed", seed)
            self.assertEqual(done.returncode, 0, done.stderr)
        self.expect_done("export", "--checkpoint", "run", "--output", "out")
        trained = files.read_folder(self.folder / "out")
        self.assertEqual({name: tensor[1] for name, tensor in trained.items()},
                         {name: tensor[1] for name, tensor in tensors.items()})
        # What the softmax has of the other rows trains them, too.
        self.assertNotEqual(trained["lm_head.weight"][2][-4 * 16:], tensors["lm_head.weight"][2][-4 * 16:])

    def test_pickles_and_pointers(self):
        folder = self.model("llama", files.llama())
        file = folder / "model.safetensors"
        file.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
        # bad input: `import`: a pointer of Git LFS | ...: a pointer of Git LFS in place of the file: git lfs pull fetches
        # it | 3
        self.expect_refusal(3, "model.safetensors: a pointer of Git LFS in place of the file: git lfs pull fetches it",
                            "import", "--from", folder, "--output", "run")
        file.write_bytes(b"PK\x03\x04" + bytes(60))
        self.expect_refusal(3, "model.safetensors: a pickle, which may run any program and is not read", "import", "--from",
                            folder, "--output", "run")
        file.rename(folder / "pytorch_model.bin")
        # bad input: `import`: a folder with a pickle | ...: holds pytorch_model.bin, a pickle, which may run any program and
        # is not read: transformers converts it, ... | 3
        self.expect_refusal(3, "holds pytorch_model.bin, a pickle, which may run any program and is not read: transformers "
                            "converts it, AutoModelForCausalLM", "import", "--from", folder, "--output", "run")
        (folder / "pytorch_model.bin").unlink()
        # bad input: `import`: a folder with weights that are named otherwise | ...: holds neither model.safetensors nor
        # model.safetensors.index.json, but model.gguf, a file of llama.cpp: import the safetensors that it was made from | 3
        for name, words in (("consolidated.00.pth", ", a pickle, which may run any program and is not read"),
                            ("model.gguf", ", a file of llama.cpp: import the safetensors that it was made from"),
                            ("model-00001-of-00002.safetensors", ": name it if it is a whole model, or bring the index of "
                             "its parts")):
            (folder / name).write_bytes(b"GGUF" + bytes(60))
            self.expect_refusal(3, f"model.safetensors.index.json, but {name}{words}", "import", "--from", folder,
                                "--output", "run")
        (folder / "adapter_model.safetensors").write_bytes(bytes(60))
        self.expect_refusal(3, "but adapter_model.safetensors, what an adapter adds to a model: peft makes a whole one",
                            "import", "--from", folder, "--output", "run")
        # bad input: `import`: the folder of a model in the cache of huggingface_hub | ...: holds neither model.safetensors
        # nor model.safetensors.index.json, but snapshots of a cache: name a folder in there | 3
        (self.folder / "models--a--b" / "snapshots").mkdir(parents=True)
        self.expect_refusal(3, "but snapshots of a cache: name a folder in there", "import", "--from", "models--a--b",
                            "--output", "run")
        # bad input: `import`: config.json, an index or another text in place of weights | ...: a text, not a file of
        # safetensors: name the folder that it lies in | 3
        self.expect_refusal(3, "config.json: a text, not a file of safetensors: name the folder that it lies in", "import",
                            "--from", folder / "config.json", "--output", "run")
        # bad input: `import`: a link to weights that are not there | ...: it is a link, and what it names does not
        # exist: ... | 3
        file.symlink_to("blob")
        self.expect_refusal(3, "model.safetensors: it is a link, and what it names does not exist", "import", "--from",
                            folder, "--output", "run")
        file.unlink()
        self.expect_refusal(3, "model.gguf: a file of llama.cpp", "import", "--from", folder / "model.gguf", "--output",
                            "run")
        # Without a description the keys must give it.
        files.write(folder / "model.safetensors", files.llama()[1])
        (folder / "config.json").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
        self.expect_refusal(3, "config.json: a pointer of Git LFS in place of the file", "import", "--from", folder,
                            "--output", "run")
        (folder / "config.json").unlink()
        # bad input: `import`: no config.json and no keys | ...: holds no tensor transformer.wte.weight (50257, 256), without
        # which this is no GPT-2 as transformers has it (...); no config.json says what it is, so the keys --model.* must | 3
        self.expect_refusal(3, "no config.json says what it is, so the keys --model.* must", "import", "--from", folder,
                            "--output", "run")

    def test_a_head_that_was_said_to_be_the_embedding(self):
        config, tensors = files.gpt2()
        own = {**tensors, "lm_head.weight": files.random_tensor(tuple(tensors["transformer.wte.weight"][1]), "own")}
        folder = self.model("own", (config, own))
        for ranks in (1, 2):
            done = self.run_program("import", "--from", folder, "--output", f"run{ranks}", before=self.on(ranks))
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("lm_head.weight differs from the embedding, though config.json ties them", done.stderr)
            self.expect_done("export", "--checkpoint", f"run{ranks}", "--output", f"out{ranks}")
            self.assertEqual(files.read_folder(self.folder / f"out{ranks}"), own)
        # bad input: `import`: a tied head that is not the embedding, with `--model.tied true` | ...: lm_head.weight
        # differs from transformer.wte.weight, which the model takes in its place | 3
        self.expect_refusal(3, "lm_head.weight differs from transformer.wte.weight, which the model takes in its place",
                            "import", "--from", folder, "--output", "run3", "--model.tied", "true")
        # bad input: `import`: no head, where config.json does not say that it is the embedding | ...: holds no tensor
        # lm_head.weight (257, 16), without which this is no Llama as transformers has it (...); --model.tied true takes the
        # embedding in its place | 3
        config, tensors = files.llama()
        headless = self.model("headless", (config, {name: one for name, one in tensors.items() if name != "lm_head.weight"}))
        self.expect_refusal(3, "; --model.tied true takes the embedding in its place", "import", "--from", headless,
                            "--output", "run5")
        self.expect_done("import", "--from", headless, "--output", "run5", "--model.tied", "true")
        config, tensors = files.bert()
        for name, like in (("cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"),
                           ("cls.predictions.decoder.bias", "cls.predictions.bias")):
            other = {**tensors, name: files.random_tensor(tuple(tensors[like][1]), "other")}
            self.expect_refusal(3, f"{name} differs from {like}", "import", "--from",
                                self.model(f"bert-{name}", (config, other)), "--output", "run4")

    def test_weights_that_are_not_finite(self):
        config, tensors = files.gpt2()
        for name, value in (("transformer.h.0.mlp.c_fc.weight", b"\0\0\xc0\x7f"), ("transformer.ln_f.bias", b"\0\0\x80\xff")):
            kind, shape, values = tensors[name]
            folder = self.model(f"bad-{name}", (config, {**tensors, name: (kind, shape, 2 * value + values[8:])}))
            # bad input: `import`: NaN or infinite weights | ...: 2 weights are NaN or infinite, the first in ...;
            # --allow-nonfinite true takes them | 3
            for ranks in (1, 2):
                self.expect_refusal(3, f"2 weights are NaN or infinite, the first in {name}; --allow-nonfinite true takes "
                                    "them", "import", "--from", folder, "--output", "run", before=self.on(ranks))
            # The run folder comes before the weights, which take longer.
            self.expect_refusal(5, "Not a directory", "import", "--from", folder, "--output", folder / "config.json/run")
            self.expect_done("import", "--from", folder, "--output", f"run-{name}", "--allow-nonfinite", "true")
            self.what_becomes_of(f"run-{name}", name)

    def what_becomes_of(self, run, name):
        """What commands do with a run of which 2 weights are not finite."""
        self.prepare()
        ours = {"transformer.h.0.mlp.c_fc.weight": "parameters/blocks.0.mlp.up.weight",
                "transformer.ln_f.bias": "parameters/norm.bias"}[name]
        for ranks, grid in ((1, ()), (2, ("--grid.data", 2)), (2, ("--grid.tensor", 2))):
            # bad input: `train`: run.start_from names weights that are not finite | ...: 2 weights are NaN or infinite,
            # the first in parameters/...; run.start_from needs another checkpoint | 4
            self.expect_refusal(4, f"2 weights are NaN or infinite, the first in {ours}, so nothing can be learned", "train",
                                "--config", f"{run}/config.ini", "--run.folder", f"{run}-tuned{ranks}", "--run.start_from", run,
                                "--data.train", "data/train.h5", "--batch.global", 4, "--batch.micro", 2, "--run.threads", 1,
                                "--run.steps", 1, *grid, before=self.on(ranks))
            self.assertEqual(list((self.folder / f"{run}-tuned{ranks}").rglob("*.h5")), [])
            self.expect_refusal(4, f"2 weights are NaN or infinite, the first in {ours}, so nothing can be learned from there: "
                                "no checkpoint from before is left", "train", "--config", f"{run}/config.ini", "--run.folder", run,
                                "--data.train", "data/train.h5", "--batch.global", 4, "--batch.micro", 2, "--run.threads", 1,
                                "--run.steps", 1, *grid, before=self.on(ranks))
        told = "2 weights are NaN or infinite, the first in "
        for ranks in (1, 2):
            done = self.run_program("eval", "--checkpoint", run, "--data", "data/train.h5", before=self.on(ranks))
            self.assertIn(told + ours, done.stderr)
            # bad input: `export`: weights that are not finite | ...: 2 weights are NaN or infinite, the first in ...; the
            # files have them, too | 0
            done = self.run_program("export", "--checkpoint", run, "--output", f"{run}-exported{ranks}", before=self.on(ranks))
            self.assertEqual(done.returncode, 0)
            self.assertIn(f"{told}{name}; the files have them, too", done.stderr)

    def test_indexes(self):
        folder = self.model("gpt2", files.gpt2())
        index = folder / "model.safetensors.index.json"
        (folder / "model.safetensors").rename(folder / "part.safetensors")
        where = {name: "part.safetensors" for name in files.read(folder / "part.safetensors")}

        def refused(message, weight_map, status=3):
            index.write_text(json.dumps({"weight_map": weight_map}))
            self.expect_refusal(status, message, "import", "--from", folder, "--output", "run")

        # bad input: `import`: an index that names a file elsewhere | ...: not an index of safetensors: tensor a
        # is in '../secret', which is not the name of a file beside the index | 3
        refused("tensor a is in '../secret', which is not the name of a file beside the index", {"a": "../secret"})
        refused("its weight_map names no tensor", {})
        # bad input: `import`: an index that is not true | ...: says that part.safetensors holds the tensor a,
        # which it does not | 3
        refused("says that part.safetensors holds the tensor a, which it does not", {**where, "a": "part.safetensors"})
        refused("gone.safetensors: cannot be opened", {"a": "gone.safetensors"})
        files.write(folder / "more.safetensors", {"transformer.ln_f.bias": ("F32", [16], bytes(64))})
        refused("holds the tensor transformer.ln_f.bias, as", {**where, "transformer.ln_f.bias": "more.safetensors"})
        index.write_text("no")
        self.expect_refusal(3, "not an index of safetensors", "import", "--from", folder, "--output", "run")
        index.unlink()
        # bad input: `import`: a folder without safetensors | ...: holds neither model.safetensors nor
        # model.safetensors.index.json | 3
        self.expect_refusal(3, "holds neither model.safetensors nor model.safetensors.index.json", "import", "--from",
                            folder, "--output", "run", before=self.on(2))
        index.write_text(json.dumps({"weight_map": where}))
        (folder / "more.safetensors").unlink()
        self.expect_done("import", "--from", folder, "--output", "run")

    def test_flags(self):
        # bad input: `import`: no file | --from is missing: name a file of safetensors, or a folder of them | 2
        self.expect_refusal(2, "--from is missing: name a file of safetensors", "import", "--output", "run")
        self.expect_refusal(2, "--output is missing: name the folder of a new run", "import", "--from", "a")
        self.expect_refusal(3, "nowhere: no such file or folder", "import", "--from", "nowhere", "--output", "run")
        self.expect_refusal(2, "--checkpoint is missing", "export", "--output", "out")
        self.expect_refusal(2, "--output is missing", "export", "--checkpoint", "run")
        for size in ("0", "5XB", "5KBGB", "", "-1GB", "nan", "1e30"):
            # bad input: `export`: `--shard-size` that is no size | --shard-size 5XB: is not a size, as in
            # 1500M, 64G or 80GiB | 2
            self.expect_refusal(2, f"shard-size {size}" if size else "shard-size", "export", "--checkpoint", "run",
                                "--output", "out", "--shard-size", size)
        # bad input: `export`: a mixture of GPT-2 and Llama | this model is not one that transformers has (...): ..., so
        # other programs have no names for it; --format onnx can hold it | 2
        self.prepare()
        self.train("--model.preset", "test-gpt", "--model.vocabulary", 257, "--model.norm", "rms", "--run.steps", 1)
        self.expect_refusal(2, "this model is not one that transformers has (Llama, Mistral, ", "export", "--checkpoint", "run",
                            "--output", "out")


if __name__ == "__main__":
    Weights.program, Weights.mpiexec = Path(sys.argv.pop(1)).resolve(), sys.argv.pop(1)
    unittest.main()
