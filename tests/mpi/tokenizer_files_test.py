#!/usr/bin/env python3
"""Tokenizers that come with weights, stay in runs and checkpoints, and leave with exports.

    python3 tokenizer_files_test.py TRIREME MPIEXEC
"""
import json
import shutil
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/support"))
import safetensors_files as files  # noqa: E402
from cli_testing import ProgramTest  # noqa: E402

RECORDED = ROOT / "tests/unit/io/tokenizers"
WORDS = ["robin", "sails", "mist", "lure", "tern", "wind", "reed", "moss"]


class TokenizerFiles(ProgramTest):
    mpiexec = ""

    def setUp(self):
        super().setUp()
        text = " ".join(WORDS[(i * i + i // 5) % len(WORDS)] for i in range(1500))
        (self.folder / "text.txt").write_text(text)

    def theirs(self, name, tokenizer="llama3", **config):
        """A folder as transformers saves it, with all files of a tokenizer."""
        model = (RECORDED / f"{tokenizer}.json").read_bytes()
        described = json.loads(model)
        vocabulary = len(set(described["model"]["vocab"]) | {one["content"] for one in described["added_tokens"]})
        about, tensors = files.llama(vocabulary=vocabulary + 3, context=32)
        folder = self.folder / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(about))
        files.write(folder / "model.safetensors", tensors)
        brought = {"tokenizer.json": model, "chat_template.jinja": b"{{ bos_token }}\r\n",
                   "tokenizer_config.json": json.dumps(config, indent=3).encode(),
                   "generation_config.json": b'{"do_sample":  true}'}
        for file, content in brought.items():
            (folder / file).write_bytes(content)
        return folder, brought

    def prepare(self, output, *arguments):
        self.expect_done("prepare", "text.txt", "--output", output, "--validation", "tail:1000", *arguments)
        return self.folder / output

    def train(self, run, data, *arguments, before=()):
        return self.run_program("train", "--run.folder", run, "--data.train", f"{data}/train.h5", "--data.validation",
                                f"{data}/validation.h5", "--batch.global", 4, "--batch.micro", 2, "--run.threads", 1,
                                "--run.steps", 2, *arguments, before=before)

    def held(self, folder, names):
        return {name: (self.folder / folder / name).read_bytes() for name in names}

    def check_ends(self, folder, brought, begin, end):
        """config.json has the tokens around texts."""
        added = json.loads(brought["tokenizer.json"])["added_tokens"]
        numbers = {one["content"]: one["id"] for one in added}
        config = json.loads((self.folder / folder / "config.json").read_text())
        self.assertEqual((config["bos_token_id"], config["eos_token_id"]), (numbers[begin], numbers[end]))

    def generated(self, run, *arguments):
        done = self.run_program("generate", "--checkpoint", run, "--prompt", "robin", "--tokens", 8, *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_files_that_were_brought_leave_as_they_came(self):
        folder, brought = self.theirs("theirs", eos_token="<|eot_id|>", bos_token="<|begin_of_text|>")
        told = self.expect_done("import", "--from", folder, "--output", "run", before=[self.mpiexec, "-n", 3])
        self.assertIn("byte-level BPE", told)
        self.assertEqual(self.held("run/tokenizer", brought), brought)
        shutil.rmtree(folder)
        # No data are needed.
        text = self.generated("run")
        self.assertEqual(self.generated("run", "--tokenizer", "run/tokenizer"), text)
        self.expect_done("export", "--checkpoint", "run", "--output", "out", before=[self.mpiexec, "-n", 2])
        self.assertEqual(self.held("out", brought), brought)
        self.check_ends("out", brought, "<|begin_of_text|>", "<|eot_id|>")
        # They stay with the run that goes on.
        data = self.prepare("data", "--tokenizer", "run/tokenizer")
        inspected = self.expect_done("data", "inspect", data / "train.h5")
        self.assertIn("begin of text", inspected)
        config = ["--config", "run/config.ini"]
        done = self.train("run", "data", *config)
        self.assertEqual(done.returncode, 0, done.stderr)
        shutil.rmtree(data)
        self.generated("run")
        self.expect_done("export", "--checkpoint", "run", "--output", "later")
        self.assertEqual(self.held("later", brought), brought)
        self.assertEqual(self.expect_done("checkpoint", "verify", "run").count("good"), 2)

    def test_weights_know_the_tokens_around_texts(self):
        folder, _ = self.theirs("theirs", eos_token="<|eot_id|>")
        self.expect_done("import", "--from", folder, "--output", "run")
        data = self.prepare("data", "--tokenizer", folder, "--begin-of-text", "none")
        model = ["--config", "run/config.ini"]
        done = self.train("other", data, *model, "--run.start_from", "run", before=[self.mpiexec, "-n", 2])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"begin of text is none in .*train.h5, \d+ in the model of run/checkpoints/step-0")
        # The checkpoint says how it was trained on; an evaluation with it tells a difference as well.
        begun = self.prepare("begun", "--tokenizer", folder, "--end-of-text", "<|end_of_text|>")
        done = self.run_program("eval", "--checkpoint", "other", "--data", begun / "validation.h5")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r"begin of text is \d+ in .*, none in the model of .*; end of text is \d+ in ")
        # bad input: `train`: `run.start_from` imported weights with a padded vocabulary, and data of another tokenizer |
        # SHARD has a vocabulary of 499 tokens, the model of CHECKPOINT one of 502: use data of the tokenizer ... | 3
        swapped = json.loads((folder / "tokenizer.json").read_text())
        vocabulary = swapped["model"]["vocab"]
        vocabulary["A"], vocabulary["B"] = vocabulary["B"], vocabulary["A"]
        (self.folder / "swapped.json").write_text(json.dumps(swapped))
        self.prepare("swapped", "--tokenizer", "swapped.json")
        done = self.train("third", "swapped", *model, "--run.start_from", "run")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("has a vocabulary of 499 tokens, the model of run/checkpoints/step-00000000.h5 one of 502: use data "
                      "of the tokenizer that", done.stderr)
        done = self.train("third", "swapped", *model, "--run.start_from", "run", "--run.accept_changes", "true")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertFalse((self.folder / "third/tokenizer/chat_template.jinja").exists())
        # bad input: `train`: imported weights in the run folder, and data of another tokenizer | ... is of another
        # run: the tokens of data.train was (xxh64:...), is (xxh64:...); ... | 2
        done = self.train("run", "swapped", *model)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("is of another run: the tokens of data.train was", done.stderr)

    def test_files_of_another_tokenizer_are_not_kept(self):
        folder, brought = self.theirs("theirs", eos_token="<|eot_id|>")
        for name in ("config.json", "model.safetensors", *brought):
            shutil.move(folder / name, self.folder / name)
        self.expect_done("import", "--from", "model.safetensors", "--output", "run")
        other = json.loads(brought["tokenizer.json"])
        other["normalizer"] = {"type": "Lowercase"}
        (self.folder / "lower.json").write_text(json.dumps(other))
        data = self.prepare("data", "--tokenizer", "lower.json", "--end-of-text", "<|eot_id|>")
        done = self.train("run", data, "--config", "run/config.ini")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("the files of the tokenizer that came with the weights are not kept", done.stdout)
        self.expect_done("export", "--checkpoint", "run", "--output", "out")
        self.assertEqual((self.folder / "out/tokenizer.json").read_bytes(), (self.folder / "lower.json").read_bytes())
        self.assertFalse((self.folder / "out/chat_template.jinja").exists())

    def test_empty_files_come_and_go(self):
        folder, brought = self.theirs("theirs", eos_token="<|eot_id|>")
        (folder / "merges.txt").write_bytes(b"")
        self.expect_done("import", "--from", folder, "--output", "run")
        self.expect_done("export", "--checkpoint", "run", "--output", "out")
        self.assertEqual(self.held("out", [*brought, "merges.txt"]), {**brought, "merges.txt": b""})

    def test_our_own_tokenizers_leave_as_others_read_them(self):
        shape = ["--model.layers", 1, "--model.width", 16, "--model.heads", 2, "--model.context", 32]
        for tokenizer in ("bpe:300", "byte"):
            name = tokenizer[:4].strip(":")
            data = self.prepare(f"{name}-data", "--tokenizer", tokenizer)
            done = self.train(f"{name}-run", data, *shape)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.expect_done("export", "--checkpoint", f"{name}-run", "--output", f"{name}-out")
            names = ["tokenizer.json", "tokenizer_config.json"]
            written = self.held(f"{name}-run/tokenizer", names)
            self.assertEqual(self.held(f"{name}-out", names), written)
            config = json.loads((self.folder / f"{name}-out/config.json").read_text())
            self.assertIsNone(config["bos_token_id"])
            self.assertIsNotNone(config["eos_token_id"])
            text = self.generated(f"{name}-run", "--tokenizer", f"{name}-run/tokenizer")
            shutil.rmtree(data)
            self.assertEqual(self.generated(f"{name}-run"), text)

    def test_a_tokenizer_that_is_not_read_stays_with_the_weights(self):
        folder, brought = self.theirs("theirs")
        model = json.loads(brought["tokenizer.json"])
        model["model"]["dropout"] = 0.5
        brought["tokenizer.json"] = json.dumps(model).encode()
        (folder / "tokenizer.json").write_bytes(brought["tokenizer.json"])
        told = self.expect_done("import", "--from", folder, "--output", "run")
        self.assertRegex(told, "tokenizer +none is known: .*tokenizer.json: .*dropout")
        self.expect_done("export", "--checkpoint", "run", "--output", "out")
        self.assertEqual(self.held("out", brought), brought)
        self.expect_refusal(2, "these weights came without a tokenizer that is read: --tokenizer PATH names", "generate",
                            "--checkpoint", "run", "--prompt", "robin")
        self.generated("run", "--tokenizer", RECORDED / "llama3.json")

    def test_a_damaged_tokenizer_is_seen(self):
        folder, brought = self.theirs("theirs", eos_token="<|eot_id|>")
        self.expect_done("import", "--from", folder, "--output", "run")
        path = self.folder / "run/checkpoints/step-00000000.h5"
        bytes_ = bytearray(path.read_bytes())
        at = bytes_.index(brought["tokenizer.json"][:4000]) + 2000
        bytes_[at] ^= 1
        path.write_bytes(bytes_)
        done = self.run_program("generate", "--checkpoint", "run", "--prompt", "robin")
        self.assertEqual(done.returncode, 4, done.stderr)


if __name__ == "__main__":
    TokenizerFiles.program, TokenizerFiles.mpiexec = Path(sys.argv.pop(1)).resolve(), sys.argv.pop(1)
    unittest.main()
