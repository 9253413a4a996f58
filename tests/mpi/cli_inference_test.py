#!/usr/bin/env python3
"""Trains a very small model, and runs `trireme eval` and `trireme generate` on it.

    python3 cli_inference_test.py TRIREME MPIEXEC
"""
import json
import re
import shutil
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
from cli_testing import ProgramTest  # noqa: E402


class Inference(ProgramTest):
    mpiexec = ""

    def test_on_ranks(self):
        data = self.prepare() / "train.h5"
        self.expect_done("train", "--model.preset", "test-gpt", "--model.vocabulary", 257,
                         "--data.train", data, "--run.steps", 4, "--batch.global", 4)
        two = [self.mpiexec, "-n", 2]
        losses = set()
        for grid in ((), ("--grid.tensor", 2), ("--grid.pipeline", 2), ("--shard.stage", 1),
                     ("--shard.stage", 3)):
            text = self.expect_done("eval", "--checkpoint", "run", "--data", data, *grid,
                                    before=two)
            losses.add(round(float(re.search(r"(?m)^loss +(\S+)$", text)[1]), 4))
        self.assertEqual(len(losses), 1)

        generate = ("generate", "--checkpoint", "run", "--tokens", 5, "--temperature", 0)
        alone = self.run_program(*generate, "--prompt", "Line", environment={})
        self.assertEqual(alone.returncode, 0, alone.stderr)
        self.assertTrue(alone.stdout.startswith("Line"), alone.stdout)
        for grid in ("--grid.tensor", "--grid.pipeline"):
            self.assertEqual(self.run_program(*generate, "--prompt", "Line", grid, 2,
                                              before=two).stdout, alone.stdout)
        self.assertEqual(self.run_program(*generate, before=two, text=b"Line\nLine\n").stdout,
                         2 * alone.stdout)

        # Replicas that share their weights need no prompt of their own.
        for prompts in (1, 2):
            self.assertEqual(self.run_program(*generate, "--shard.stage", 3, before=two,
                                              text=prompts * b"Line\n").stdout, prompts * alone.stdout)
        # bad input: `generate`, `eval`: `shard.stage` 3 with one data replica | shard.stage 3 divides the
        # weights among data replicas, but grid.data is 1: start more ranks, or leave shard.stage out | 2
        self.expect_refusal(2, "shard.stage 3 divides the weights among data replicas, but grid.data is 1",
                            *generate, "--prompt", "a", "--grid.tensor", 2, "--shard.stage", 3, before=two)

        self.check_draws(alone.stdout, two)

        # bad input: `predict`: a model of texts | CHECKPOINT: a model of gpt, whose task is causal_language_model:
        # trireme predict says what is on pictures and fills [MASK]s in texts, and trireme generate continues texts | 2
        self.expect_refusal(2, "a model of gpt, whose task is causal_language_model: trireme predict says what is on "
                            "pictures and fills [MASK]s in texts, and trireme generate continues texts",
                            "predict", "--checkpoint", "run", "--input", "a.png")
        # bad input: `eval`, `generate`: a checkpoint that is not there | ...: there is no such file or
        # folder; name a checkpoint (step-00001000.h5) or a run folder | 4
        self.expect_refusal(4, "nothing: there is no such file or folder", "eval", "--checkpoint",
                            "nothing", before=two)
        # bad input: `generate`: more data replicas than prompts | grid.data is 2, but there is 1 prompt:
        # each replica continues a prompt of its own; ... | 2
        self.expect_refusal(2, "grid.data is 2, but there is 1 prompt", *generate, "--prompt", "a",
                            before=two)
        # bad input: `generate`: an empty prompt | --prompt is empty: give at least one character | 2
        self.expect_refusal(2, "--prompt is empty", *generate, "--prompt", "")
        # bad input: `generate`: prompts whose lines end with CR LF, and empty lines | the carriage returns are no part
        # of the prompts, and empty lines are left out | 0
        self.assertEqual(self.run_program(*generate, text=b"Line\r\n\r\n\nLine").stdout, 2 * alone.stdout)
        # bad input: `eval --data`, `data.validation`: a weight | ... has the weight 0.5, but an evaluation takes each
        # sample once: leave weights out | 2
        self.expect_refusal(2, "--data: a.h5 has the weight 0.5, but an evaluation takes each sample once: leave weights "
                            "out", "eval", "--checkpoint", "run", "--data", "a.h5=0.5,b.h5")
        self.expect_refusal(2, "data.validation: a.h5 has the weight 1, but an evaluation takes each sample once",
                            "train", "--data.train", data, "--data.validation", "a.h5=1")
        self.expect_refusal(2, "standard input holds no prompt", *generate)
        # bad input: `generate`, `predict`: a zero byte in a text | line 2 of standard input: byte 2 is zero: binary data,
        # or text in another encoding than UTF-8 | 3
        done = self.run_program(*generate, text=b"Line\na\0b\n")
        self.assertEqual((done.returncode, done.stderr), (3, "trireme: line 2 of standard input: byte 2 is zero: binary "
                                                             "data, or text in another encoding than UTF-8\n"))
        self.expect_done("prepare", "text.txt", "--output", "other", "--tokenizer", "bpe:300")
        # bad input: `eval`, `generate`: data of another vocabulary | ... has a vocabulary of 257 tokens,
        # the model of ... one of 67: use data of the tokenizer that the model was trained with | 3
        self.expect_refusal(3, "other/train.h5 has a vocabulary of 300 tokens, the model of",
                            "eval", "--checkpoint", "run", "--data", "other/train.h5", before=two)
        # bad input: `data.validation` of another tokenizer | data.validation has a vocabulary of 257 tokens, data.train
        # one of 300: prepare both with one tokenizer; data.validation has another tokenizer than data.train, though as many
        # tokens: ... | 3
        train = ("train", "--model.preset", "test-gpt", "--run.folder", "refused", "--run.steps", 1, "--batch.global", 4,
                 "--data.train", "other/train.h5", "--data.validation")
        self.expect_refusal(3, "data.validation has a vocabulary of 257 tokens, data.train one of 300: prepare both", *train, data)
        words = "".join(f"{chr(97 + i % 26)}{chr(97 + i * 7 % 26)}zebra{i % 13} " for i in range(4000))
        (self.folder / "words.txt").write_text(words, encoding="utf-8")
        self.expect_done("prepare", "words.txt", "--output", "words", "--tokenizer", "bpe:300")
        self.expect_refusal(3, "data.validation has another tokenizer than data.train, though as many tokens: prepare "
                            "both with one tokenizer", *train, "words/train.h5")

    def test_a_run_of_chunks(self):
        data = self.prepare() / "train.h5"
        two = [self.mpiexec, "-n", 2]
        self.expect_done("train", "--model.preset", "test-gpt", "--model.vocabulary", 257, "--data.train", data,
                         "--run.steps", 4, "--batch.global", 4, "--grid.pipeline", 2, "--grid.schedule", "zb-v",
                         "--data.validation", data, "--eval.every", 4, before=two)
        # On one chunk for each stage there is the same model, and the same loss.
        outputs = [self.run_program("generate", "--checkpoint", "run", "--tokens", 5, "--temperature", 0, "--prompt",
                                    "Line", *grid, before=ranks).stdout
                   for ranks, grid in (((), ()), (two, ("--grid.pipeline", 2)))]
        self.assertTrue(outputs[0].startswith("Line"), outputs[0])
        self.assertEqual(outputs[1], outputs[0])
        lines = (self.folder / "run/metrics.jsonl").read_text().splitlines()
        trained = [line["eval_loss"] for line in map(json.loads, lines) if "eval_loss" in line][-1]
        text = self.expect_done("eval", "--checkpoint", "run", "--data", data, "--grid.pipeline", 2, before=two)
        self.assertAlmostEqual(float(re.search(r"(?m)^loss +(\S+)$", text)[1]), trained, delta=2e-4)

    def test_stages_for_which_chunks_of_training_would_be_too_many(self):
        data = self.prepare() / "train.h5"
        # Six blocks, of which two chunks on each of four stages would be too many.
        self.expect_done("train", "--model.preset", "test-gpt", "--model.layers", 4, "--model.vocabulary", 257,
                         "--data.train", data, "--run.steps", 1, "--batch.global", 16, "--grid.data", 2,
                         "--grid.pipeline", 2, "--shard.stage", 2, "--grid.schedule", "zb-v",
                         before=[self.mpiexec, "-n", 4])
        alone, staged = [self.expect_done("eval", "--checkpoint", "run", "--data", data, *grid, before=ranks)
                         for ranks, grid in (((), ()), ([self.mpiexec, "-n", 4], ("--grid.pipeline", 4)))]
        losses = [float(re.search(r"(?m)^loss +(\S+)$", text)[1]) for text in (alone, staged)]
        self.assertAlmostEqual(*losses, delta=2e-4)

    def test_generation_masks_documents_where_training_did(self):
        (self.folder / "short.txt").write_text("%".join("abc"[i % 3] * (i % 4 + 1) for i in range(2000)))
        self.expect_done("prepare", "short.txt", "--output", "short", "--tokenizer", "byte",
                         "--document-separator", "%")
        train = ("train", "--model.preset", "test-gpt", "--model.vocabulary", 257, "--data.train",
                 "short/train.h5", "--batch.global", 4, "--optim.lr", 1e-2)
        self.expect_done(*train, "--run.steps", 40, "--data.mask_documents", "true")
        for masks in ("true", "false"):
            # The same weights: a step that changes none of them.
            shutil.copytree(self.folder / "run", self.folder / masks)
            self.expect_done(*train[:-1], 1e-30, "--run.steps", 41, "--run.folder", masks,
                             "--data.mask_documents", masks, "--run.accept_changes", "true")
        texts = [self.run_program("generate", "--checkpoint", run, "--prompt", "a", "--tokens", 60).stdout
                 for run in ("run", "true", "false")]
        self.assertGreater(len(texts[0]), 10)
        self.assertEqual(texts[0], texts[1])
        self.assertNotEqual(texts[0], texts[2])

    def check_draws(self, greedy, two):
        """Each flag of the draws reaches them; prompts and their draws do not depend on ranks."""
        def text_of(*flags, before=(), text=b""):
            done = self.run_program("generate", "--checkpoint", "run", "--tokens", 5, *flags,
                                    before=before, text=text)
            self.assertEqual(done.returncode, 0, done.stderr)
            return done.stdout

        line = ("--prompt", "Line", "--top-k", 20)
        texts = [text_of(*line), text_of(*line, "--seed", 2), text_of(*line, "--temperature", 9),
                 greedy]
        self.assertEqual(len(set(texts)), len(texts), texts)
        for flags in (("--top-k", 1), ("--top-p", 1e-6), ("--temperature", 1e-6)):
            self.assertEqual(text_of("--prompt", "Line", *flags), greedy, flags)
        # A last round in which one replica has no prompt.
        prompts = {"text": b"Line 1\nof\na corpus that\nLine 1\nLine 1\n"}
        texts = text_of("--top-k", 20, **prompts)
        self.assertEqual(text_of("--top-k", 20, before=two, **prompts), texts)
        self.assertEqual(text_of("--top-k", 20, "--grid.tensor", 2, before=two, **prompts), texts)
        self.assertEqual(len(set(texts.split("Line 1"))), 4, "the same draws for several prompts")


if __name__ == "__main__":
    ProgramTest.program = Path(sys.argv.pop(1)).resolve()
    Inference.mpiexec = sys.argv.pop(1)
    unittest.main()
