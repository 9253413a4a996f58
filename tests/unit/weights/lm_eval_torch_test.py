#!/usr/bin/env python3
"""EleutherAI's lm-eval on a folder that `trireme export` wrote: the perplexity of a text is that of `trireme eval`, and
of choices the likeliest is taken.

    python3 lm_eval_torch_test.py TRIREME

Model, text and tasks are made here; nothing is downloaded.
"""
import json
import math
import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/support"))
import torch  # noqa: E402
from cli_testing import ProgramTest  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: E402

HELD_OUT, CONTEXT = 4000, 64
PERPLEXITY = """task: held_out
dataset_path: json
dataset_kwargs: {data_files: {test: TEXT}}
test_split: test
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{text}}"
metric_list:
  - {metric: bits_per_byte}
  - {metric: byte_perplexity}
"""
CHOICES = """task: choices
dataset_path: json
dataset_kwargs: {data_files: {test: TEXT}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_target: answer
doc_to_choice: choices
metric_list:
  - {metric: acc}
"""
QUESTIONS = [{"question": "#include", "choices": [" <vector>", "qxzjk"], "answer": 0},
             {"question": "return", "choices": ["\u65e5\u672c", " false;"], "answer": 1},
             {"question": "namespace", "choices": [" trireme {", "@@@@@"], "answer": 0}]


def log_likelihoods(model, tokens, context):
    """Of tokens that follow a context."""
    with torch.no_grad():
        logits = model(torch.tensor([context + tokens[:-1]])).logits[0, len(context) - 1:]
    return torch.log_softmax(logits.double(), -1).gather(1, torch.tensor(tokens)[:, None])[:, 0]


class LmEval(ProgramTest):
    def results(self, tasks):
        """What lm-eval says of tasks: triples of a name, a task, and its records."""
        folder = self.folder / "tasks"
        folder.mkdir()
        for name, task, records in tasks:
            path = folder / f"{name}.jsonl"
            path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
            (folder / f"{name}.yaml").write_text(task.replace("TEXT", str(path)), encoding="utf-8")
        own = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(self.folder / "cache"),
               "CUDA_VISIBLE_DEVICES": "", "TOKENIZERS_PARALLELISM": "false"}
        model = f"pretrained={self.folder / 'out'},tokenizer={self.folder / 'out'},dtype=float32"
        done = subprocess.run(
            [sys.executable, "-m", "lm_eval", "--model", "hf", "--model_args", model, "--tasks",
             ",".join(name for name, _, _ in tasks), "--include_path", folder, "--device", "cpu", "--batch_size", "4",
             "--output_path", self.folder / "results"],
            env={**os.environ, **own}, cwd=self.folder, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        path = next((self.folder / "results").rglob("results_*.json"))
        return json.loads(path.read_text(encoding="utf-8"))["results"]

    def test_reads_what_export_writes(self):
        text = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "io").glob("*/*.cc")))
        text = text.encode("ascii", errors="ignore")[:300000].decode().rstrip()
        (self.folder / "text").write_text(text, encoding="utf-8")
        self.expect_done("prepare", "--input", "text", "--output", "data", "--tokenizer", "bpe:500", "--validation",
                         f"tail:{HELD_OUT}")
        self.expect_done("train", "--data.train", "data/train.h5", "--run.folder", "run", "--run.steps", "60",
                         "--model.width", "64", "--model.layers", "2", "--model.heads", "4", "--model.context", str(CONTEXT),
                         "--model.positions", "rotary")
        told = self.expect_done("eval", "--checkpoint", "run", "--data", "data/validation.h5", "--precision", "fp32")
        loss = float(re.search(r"loss +([\d.]+)", told).group(1))
        count = int(re.search(r"tokens +(\d+)", told).group(1))
        self.expect_done("export", "--checkpoint", "run", "--output", "out")
        held_out = text[-HELD_OUT:]

        tokenizer = AutoTokenizer.from_pretrained(self.folder / "out")
        tokens = tokenizer.encode(held_out, add_special_tokens=False)
        self.assertEqual(len(tokens) + 1, count)  # the text and the end of text
        model = AutoModelForCausalLM.from_pretrained(self.folder / "out").eval()
        # Theirs has no end of text, and gives the tokens of the last window a whole context.
        last = len(tokens) // CONTEXT * CONTEXT
        ends = tokens[last:] + [tokenizer.eos_token_id]
        ours = -loss * count - log_likelihoods(model, ends, tokens[last - 1:last]).sum().item()
        ours += log_likelihoods(model, tokens[last:], tokens[-CONTEXT - 1:last]).sum().item()
        made = self.results([("held_out", PERPLEXITY, [{"text": held_out}]), ("choices", CHOICES, QUESTIONS)])
        theirs = -made["held_out"]["bits_per_byte,none"] * math.log(2) * HELD_OUT
        print(f"log likelihood of {len(tokens)} tokens: eval {ours:.4f}, lm-eval {theirs:.4f}; loss of eval {loss}")
        self.assertAlmostEqual(theirs / ours, 1.0, delta=2e-6)
        self.assertLess(loss, 5.5)

        best = 0
        for question in QUESTIONS:
            context = tokenizer.encode(question["question"], add_special_tokens=False)
            sums = [log_likelihoods(model, tokenizer.encode(question["question"] + choice, add_special_tokens=False)
                                    [len(context):], context).sum().item() for choice in question["choices"]]
            best += max(range(2), key=sums.__getitem__) == question["answer"]
        print(f"choices: lm-eval {made['choices']['acc,none']:.3f}, ours {best / len(QUESTIONS):.3f}")
        self.assertAlmostEqual(made["choices"]["acc,none"], best / len(QUESTIONS))


if __name__ == "__main__":
    ProgramTest.program = Path(sys.argv.pop(1)).resolve()
    unittest.main()
