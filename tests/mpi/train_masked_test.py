#!/usr/bin/env python3
"""Trains a very small BERT on text, and does with the run what people do.

usage: train_masked_test.py TRIREME MPIEXEC
"""
import json
import math
import re
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/support"))
from cli_testing import ProgramTest  # noqa: E402

BERT = "--model.family bert --model.layers 2 --model.width 32 --model.heads 2 --model.context 32 --model.dropout 0.1"
TRAIN = ("--data.train data/train.h5 --data.validation data/validation.h5 --batch.global 16 --batch.micro 4 "
         "--optim.lr 0.005 --run.steps 12 --eval.every 6 --checkpoint.every 6 --log.every 1 --schedule.warmup 2 "
         "--schedule.decay 10 --run.threads 1 --run.device cpu --comm.timeout 60")


def words_of(told):
    """What predict told, without probabilities."""
    return re.sub(r"\d+\.\d\d %", "", told)


def shares_of(told):
    return [float(share) for share in re.findall(r"(\d+\.\d\d) %", told)]


class MaskedLanguageModel(ProgramTest):
    mpiexec = ""

    def setUp(self):
        super().setUp()
        pages = [ROOT / "README.md", ROOT / "src/README.md", *sorted((ROOT / "src/cli").glob("*.md"))]
        text = "".join(page.read_text(encoding="utf-8") for page in pages)
        # Each section is a document.
        (self.folder / "text.txt").write_text(text.replace("\n#", "\n%#").encode("ascii", "replace").decode(),
                                              encoding="utf-8")
        self.expect_done("prepare", "text.txt", "--output", "data", "--tokenizer", "byte", "--document-separator", "%",
                         "--validation", "tail:3000")

    def on(self, ranks):
        return [self.mpiexec, "-n", ranks] if ranks > 1 else ()

    def train(self, run, *more, ranks=1):
        options = f"{BERT} {TRAIN}".split()
        last = dict(zip(options[::2], options[1::2])) | dict(zip(more[::2], more[1::2]))
        return self.expect_done("train", "--run.folder", run, *(word for pair in last.items() for word in pair),
                                before=self.on(ranks))

    def metrics(self, run, key):
        lines = (self.folder / run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        return [line[key] for line in map(json.loads, lines) if key in line]

    def test_a_run_and_its_start_again(self):
        said = self.train("whole")
        self.assertRegex(said, r"vocabulary 261")
        self.assertRegex(said, r"batch +16 sequences of 32 = 512 tokens a step")
        self.assertRegex(said, r"evaluation loss \d+\.\d{4} over \d+ masked tokens, perplexity \d+\.\d\d")
        losses = self.metrics("whole", "loss")
        self.assertEqual(len(losses), 12)
        self.assertEqual(self.metrics("whole", "tokens"), [16 * 32 * step for step in range(1, 13)])
        evaluated = self.metrics("whole", "eval_loss")
        self.assertEqual(len(evaluated), 2)

        # In two parts it is the same, to the last bit.
        self.train("parts", "--run.steps", 6)
        self.assertIn("going on from", self.train("parts"))
        self.assertEqual(self.metrics("parts", "loss"), losses)
        self.assertEqual(self.metrics("parts", "eval_loss"), evaluated)

        # eval sees what the run's own evaluation saw, on any grid and in any parts.
        told = self.expect_done("eval", "--checkpoint", "whole", "--batch.micro", 4, "--threads", 1)
        self.assertRegex(told, rf"(?m)^loss +{evaluated[-1]:.6f}$")
        self.assertRegex(told, rf"(?m)^perplexity +{math.exp(evaluated[-1]):.4f}$")
        self.assertRegex(told, r"(?m)^masked tokens +\d+, of \d+, in windows of 30$")
        for grid in ("--grid.pipeline", "--grid.tensor", "--grid.data"):
            again = self.expect_done("eval", "--checkpoint", "whole", "--batch.micro", 3, "--threads", 1, grid, 2,
                                     before=self.on(2))
            loss = float(re.search(r"(?m)^loss +(\S+)$", again)[1])
            self.assertAlmostEqual(loss, evaluated[-1], delta=1e-5)
        self.assertIn("tokens/s", self.expect_done("top", "--once", "whole"))
        self.assertTrue((self.folder / "whole/report.html").exists())

        # bad input: `generate`: a masked language model | CHECKPOINT: a model of bert, whose task is
        # masked_language_model: trireme generate continues texts, and trireme predict fills [MASK]s in them | 2
        self.expect_refusal(2, "a model of bert, whose task is masked_language_model: trireme generate continues "
                            "texts, and trireme predict fills [MASK]s in them",
                            "generate", "--checkpoint", "whole", "--prompt", "a")
        # bad input: `data.mask_share` for a family that hides no tokens | data.mask_share is for masked language
        # models, but model.family gpt is none: leave it out | 2
        self.expect_refusal(2, "data.mask_share is for masked language models, but model.family gpt is none",
                            "train", "--data.train", "data/train.h5", "--data.mask_share", 0.2)

    def test_grids(self):
        """Trains on grids, also with documents that end samples, and another share."""
        for name, more in (("plain", ()), ("documents", ("--data.mask_documents", "true", "--data.mask_share", 0.3))):
            alone = None
            for grid in (("--grid.data", 1), ("--grid.data", 2), ("--grid.pipeline", 2),
                         ("--grid.data", 2, "--shard.stage", 3)):
                run = f"{name}{''.join(map(str, grid))}"
                self.train(run, "--run.same_bits", "true", "--run.steps", 4, "--eval.every", 4, *more, *grid,
                           ranks=2 if 2 in grid else 1)
                found = self.metrics(run, "loss"), self.metrics(run, "eval_loss")
                alone = alone or found
                self.assertEqual(found, alone, grid)
            run = f"{name}tensor"
            self.train(run, "--run.steps", 4, "--eval.every", 4, "--model.dropout", 0, *more, "--grid.tensor", 2, ranks=2)
            self.train(f"{run}1", "--run.steps", 4, "--eval.every", 4, "--model.dropout", 0, *more)
            for one, other in zip(self.metrics(run, "loss"), self.metrics(f"{run}1", "loss")):
                self.assertAlmostEqual(one, other, delta=1e-4)

    def test_predictions(self):
        # A text in which each letter is that of its neighbours: a sample has 14 of one letter.
        (self.folder / "letters.txt").write_text("".join("abcdefgh"[i * 5 % 8] * 14 for i in range(1200)),
                                                 encoding="utf-8")
        self.expect_done("prepare", "letters.txt", "--output", "letters", "--tokenizer", "byte",
                         "--validation", "tail:1400")
        self.train("letters-run", "--data.train", "letters/train.h5", "--data.validation", "letters/validation.h5",
                   "--run.steps", "3ep", "--schedule.decay", 200, "--model.context", 16, "--model.dropout", 0, "--optim.lr", 0.01)
        losses = self.metrics("letters-run", "loss")
        self.assertLess(losses[-1], losses[0] / 4)
        text = "ccc[MASK]cccc[MASK]cc"
        predict = ("predict", "--checkpoint", "letters-run", "--threads", 1)
        done = self.run_program(*predict, "--text", text, "--json", "said.jsonl", "--top", 2)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r'\A--text: ccccccccccc\n  \[MASK\] 1: "c" \d+\.\d\d %, ".+" \d+\.\d\d %\n'
                         r'  \[MASK\] 2: "c" \d+\.\d\d %, ".+" \d+\.\d\d %\n\Z')
        self.assertRegex(done.stderr, r"\Atrireme: 1 texts in .* texts/s\n\Z")
        said = json.loads((self.folder / "said.jsonl").read_text())
        self.assertEqual((said["from"], said["text"], said["filled"]), ("--text", text, "ccccccccccc"))
        self.assertEqual([[one["token"] for one in mask][0] for mask in said["masks"]], ["c", "c"])
        self.assertEqual(said["masks"][0][0]["number"], ord("c"))
        self.assertGreater(said["masks"][0][0]["probability"], said["masks"][0][1]["probability"])

        # It says the same of a list, on any grid, some texts at a time.
        lines = ["abcdefghc"[i] * (6 + i % 7) for i in range(9)]
        texts = [line[:i % 4] + "[MASK]" + line[i % 4 + 1:] for i, line in enumerate(lines)]
        (self.folder / "list.txt").write_text("\n\n".join(texts[:5]), encoding="utf-8")
        (self.folder / "more.txt").write_text("\r\n".join(texts[5:]) + "\n", encoding="utf-8")
        told = self.run_program(*predict, "--input", "list.txt,more.txt", "--top", 1).stdout
        self.assertEqual([line.split(": ")[1] for line in told.splitlines()[::2]], lines)
        self.assertEqual([line.split(": ")[0] for line in told.splitlines()[::2]],
                         [f"list.txt:{2 * i + 1}" for i in range(5)] + [f"more.txt:{i + 1}" for i in range(4)])
        for grid, micro in (("--grid.data", 2), ("--grid.pipeline", 4), ("--grid.tensor", 9)):
            again = self.run_program(*predict, "--input", "list.txt,more.txt", "--top", 1, grid, 2, "--batch.micro", micro,
                                     before=self.on(2))
            self.assertEqual(words_of(again.stdout), words_of(told), (grid, again.stderr))
            for one, other in zip(shares_of(again.stdout), shares_of(told), strict=True):
                self.assertAlmostEqual(one, other, delta=0.02)
        # More than there are: all.
        all_tokens = self.run_program(*predict, "--text", text, "--top", 10000000, "--json", "all.jsonl")
        self.assertEqual(all_tokens.returncode, 0, all_tokens.stderr)
        masks = json.loads((self.folder / "all.jsonl").read_text())["masks"]
        self.assertEqual([len({one["number"] for one in mask}) for mask in masks], [261, 261])
        again = self.run_program(*predict, "--input", "-", "--top", 1, text="\n".join(texts).encode())
        self.assertEqual([line.split(": ")[1] for line in again.stdout.splitlines()[::2]], lines)
        self.refusals(predict)

    def refusals(self, predict):
        # bad input: `predict`: a number of likely tokens that no model has | --top 16777217: must be at least 1
        # and at most 16777216 | 2
        self.expect_refusal(2, "--top 16777217: must be at least 1 and at most 16777216", *predict, "--text", "[MASK]", "--top", 16777217)
        # bad input: `predict`: a text longer than the model's context | --text: a text of 23 tokens, with [CLS] and
        # [SEP], but the model's context is 16 | 3
        self.expect_refusal(3, "--text: a text of 23 tokens, with [CLS] and [SEP], but the model's context is 16",
                            *predict, "--text", "a" * 20 + "[MASK]")
        # bad input: `predict`: a micro-batch that no memory holds | memory: 1 ranks a node need about ... MiB (...), a
        # node has ...: fewer tasks a node, or a smaller batch.micro, more grid.tensor or more grid.pipeline | 2
        self.train("wide", "--run.steps", 4, "--eval.every", 0, "--model.context", 128, "--model.width", 512)
        self.expect_refusal(2, "fewer tasks a node, or a smaller batch.micro, more grid.tensor or more grid.pipeline",
                            "predict", "--checkpoint", "wide", "--device", "cpu", "--input", "list.txt",
                            "--batch.micro", 1048576)
        # A text is computed alone.
        self.assertEqual(self.run_program(*predict, "--text", "[MASK]", "--batch.micro", 16777216).returncode, 0)
        (self.folder / "none.txt").write_text("\nabc\n", encoding="utf-8")
        # bad input: `predict`: a text without a [MASK] | FILE:2: the text has no [MASK] to fill | 3
        self.expect_refusal(3, "none.txt:2: the text has no [MASK] to fill", *predict, "--input", "none.txt",
                            before=self.on(2))
        # bad input: `predict`: a file of texts that is not there | FILE: no such file; --input names files with a text
        # on each line | 3
        self.expect_refusal(3, "gone.txt: no such file; --input names files with a text on each line",
                            *predict, "--input", "gone.txt")
        # bad input: `predict`: a folder where a file of texts should be | FOLDER: is a folder; --input names files with
        # a text on each line | 3
        self.expect_refusal(3, "letters: is a folder; --input names files with a text on each line",
                            *predict, "--input", "letters")
        # An empty name in a list is no end of it.
        self.expect_refusal(3, ": no such file; --input names files", *predict, "--input", "list.txt,,more.txt")
        # bad input: `predict`: `--json` names an input | --json list.txt: --input names the same file, which would be
        # lost: give another one | 2
        before = (self.folder / "list.txt").read_bytes()
        (self.folder / "same.txt").symlink_to("list.txt")
        for given in ("list.txt", "none.txt,./list.txt", "same.txt"):
            self.expect_refusal(2, "--json list.txt: --input names the same file, which would be lost: give another "
                                "one",
                                *predict, "--input", given, "--json", "list.txt", before=self.on(2))
        with open(self.folder / "list.txt", "rb") as lines:
            own = [str(self.program), *map(str, predict), "--input", "-", "--json", "list.txt"]
            self.assertEqual(subprocess.run(own, stdin=lines, cwd=self.folder, stderr=subprocess.DEVNULL, timeout=100,
                                            check=False).returncode, 2)
        self.assertEqual((self.folder / "list.txt").read_bytes(), before)
        # What an earlier command has told stays where a text is refused.
        told = (self.folder / "said.jsonl").read_bytes()
        self.expect_refusal(3, "none.txt:2: the text has no", *predict, "--input", "none.txt", "--json", "said.jsonl")
        self.assertEqual((self.folder / "said.jsonl").read_bytes(), told)
        self.assertEqual(self.run_program(*predict, "--text", "a[MASK]", "--json", "said.jsonl").returncode, 0)
        self.assertEqual([json.loads(line)["text"] for line in (self.folder / "said.jsonl").read_text().splitlines()],
                         ["a[MASK]"])
        (self.folder / "empty.txt").write_text("\n\n", encoding="utf-8")
        # bad input: `predict`: a file without texts | no texts: --input names files with a text on each line | 3
        self.expect_refusal(3, "no texts: --input names files", *predict, "--input", "empty.txt")
        (self.folder / "long.txt").write_text("a" * (2 << 20), encoding="utf-8")
        # bad input: `predict`: a line of more than a megabyte | FILE:1: a line of more than 1048576 bytes | 3
        self.expect_refusal(3, "long.txt:1: a line of more than 1048576 bytes", *predict, "--input", "long.txt")
        # bad input: `predict`: a key of pictures for a model of texts | --size is for models of pictures, and
        # CHECKPOINT is one of texts: leave it out | 2
        self.expect_refusal(2, "--size is for models of pictures, and ", *predict, "--text", "[MASK]", "--size", 8)
        # bad input: `predict`: files and a text | --input and --text are given: leave one of them out | 2
        self.expect_refusal(2, "--input and --text are given: leave one of them out",
                            *predict, "--text", "[MASK]", "--input", "none.txt")
        self.expect_done("prepare", "letters.txt", "--output", "other", "--tokenizer", "bpe:300")
        # bad input: `predict`: a shard of another tokenizer | SHARD has a vocabulary of 304 tokens with the special ones
        # that it lacks, the model of CHECKPOINT one of 261: use data of the tokenizer that the model was trained with | 3
        self.expect_refusal(3, "has a vocabulary of 304 tokens with the special ones that it lacks, the model of", *predict, "--text", "[MASK]",
                            "--tokenizer", "other/train.h5")
        shutil.rmtree(self.folder / "letters")
        # The checkpoint has the tokenizer.
        self.assertIn("[MASK] 1: ", self.run_program(*predict, "--text", "[MASK]").stdout)

    def test_a_tokenizer_with_special_tokens(self):
        """The model's vocabulary is the tokenizer's, as that of a published BERT."""
        words = ROOT / "tests/unit/io/tokenizers/bert_uncased.json"
        self.expect_done("prepare", "text.txt", "--output", "words", "--tokenizer", words, "--validation", "tail:3000")
        said = self.train("words-run", "--data.train", "words/train.h5", "--data.validation", "words/validation.h5",
                          "--run.steps", 6)
        self.assertRegex(said, r"vocabulary 500")
        done = self.run_program("predict", "--checkpoint", "words-run", "--text", "A rank of [MASK], and [MASK]", "--json",
                                "said.jsonl", "--top", 500)
        self.assertEqual(done.returncode, 0, done.stderr)
        said = json.loads((self.folder / "said.jsonl").read_text())
        self.assertEqual(len(said["masks"]), 2)
        for mask in said["masks"]:
            self.assertAlmostEqual(sum(one["probability"] for one in mask), 1, delta=1e-4)
            self.assertEqual({one["number"] for one in mask}, set(range(500)))
            self.assertLessEqual({"[MASK]", "[CLS]", "[UNK]"}, {one["token"] for one in mask})
        self.assertNotIn("  ", said["filled"])
        done = self.run_program("predict", "--checkpoint", "words-run", "--text", "([MASK])", "--json", "said.jsonl")
        self.assertEqual(done.returncode, 0, done.stderr)
        said = json.loads((self.folder / "said.jsonl").read_text())
        self.assertEqual(said["filled"], f"({said['masks'][0][0]['token'].removeprefix(' ')})")

    def test_memory_of_a_published_one(self):
        said = self.expect_done("memory", "--model.family", "bert", "--model.preset", "bert-base", "--batch.global", 8,
                                "--batch.micro", 4, "--model.context", 128)
        self.assertIn("109 M parameters on 1 x 1 x 1", said)


if __name__ == "__main__":
    ProgramTest.program = Path(sys.argv.pop(1)).resolve()
    MaskedLanguageModel.mpiexec = sys.argv.pop(1)
    unittest.main()
