#!/usr/bin/env python3
"""Models of transformers and torchvision compared with ours, after `trireme import` and before `trireme export`; and
the graphs of ONNX that it writes.

    python3 weights_torch_test.py TRIREME

The models are small and random, and made here: nothing is downloaded.
"""
import json
import os
import re
import sys
import unittest
from pathlib import Path

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", TRANSFORMERS_VERBOSITY="error",
                  HF_HUB_DISABLE_PROGRESS_BARS="1", CUDA_VISIBLE_DEVICES="")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
import torch  # noqa: E402
from cli_testing import ProgramTest  # noqa: E402
from onnx_session import inference_session  # noqa: E402
from PIL import Image  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from torchvision.models import mobilenet_v2, resnet18  # noqa: E402
from transformers import (AutoModelForCausalLM, BertConfig, BertForMaskedLM, BertForPreTraining,  # noqa: E402
                          GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, ViTConfig,
                          ViTForImageClassification)

END_OF_TEXT = 256  # of byte-level tokens
CONTEXT = 24
SIZE, CLASSES = 40, 3  # of pictures


def gpt2(**changes):
    return GPT2LMHeadModel(GPT2Config(**{**dict(
        vocab_size=257, n_positions=CONTEXT, n_embd=48, n_layer=3, n_head=4, bos_token_id=None,
        eos_token_id=None), **changes}))


def llama(**changes):
    return LlamaForCausalLM(LlamaConfig(**{**dict(
        vocab_size=257, max_position_embeddings=CONTEXT, hidden_size=48, num_hidden_layers=3,
        num_attention_heads=6, num_key_value_heads=2, intermediate_size=80, rms_norm_eps=1e-5,
        bos_token_id=None, eos_token_id=None), **changes}))


TEXTS = {"gpt2": gpt2, "gpt2-untied": lambda: gpt2(tie_word_embeddings=False, n_inner=64, layer_norm_epsilon=1e-3),
         "llama": llama, "llama-tied": lambda: llama(tie_word_embeddings=True),
         "llama-all-heads": lambda: llama(num_key_value_heads=6, rms_norm_eps=1e-3, rope_parameters={
             "rope_theta": 500.0, "rope_type": "default"}),
         "llama-biases": lambda: llama(attention_bias=True, mlp_bias=True)}


def shaken(model):
    """The model with every parameter away from its initial value, which for norms and biases is a constant."""
    torch.manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.15 * torch.randn_like(parameter))
    return model.eval()


class ModelTest(ProgramTest):
    def check_graph(self, run, compute, *given, only=...):
        """onnxruntime computes the same with the exported graph."""
        folder = self.folder / f"{run}-onnx"
        if not folder.exists():
            self.expect_done("export", "--checkpoint", run, "--output", folder, "--format", "onnx")
        session = inference_session(folder / "model.onnx")
        names = [one.name for one in session.get_inputs()]
        ours, = session.run(["logits"], {name: one.numpy() for name, one in zip(names, given, strict=True)})
        with torch.no_grad():
            theirs = compute(*given)
        theirs = getattr(theirs, "logits", theirs).double()
        error = (torch.from_numpy(ours)[only].double() - theirs).norm() / theirs.norm()
        self.assertLess(error.item(), 5e-6, run)


class Texts(ModelTest):
    def test_losses_and_texts(self):
        shard = self.prepare("data", "--validation", "none") / "train.h5"
        text = (self.folder / "text.txt").read_bytes()
        tokens = torch.tensor([*text, END_OF_TEXT])
        inputs = torch.cat([torch.tensor([END_OF_TEXT]), tokens[:-1]])
        for name, make in TEXTS.items():
            with self.subTest(name):
                model = shaken(make())
                model.save_pretrained(self.folder / name)
                self.expect_done("import", "--from", name, "--output", f"run-{name}")
                theirs = self.loss_of(model, inputs, tokens)
                done = self.expect_done("eval", "--checkpoint", f"run-{name}", "--data", shard, "--batch.micro", 16)
                ours = float(re.search(r"(?m)^loss +(\S+)$", done)[1])
                self.assertLess(abs(ours - theirs) / theirs, 1e-5, f"{ours} {theirs}")
                self.check_generated(model, f"run-{name}", shard)
                self.expect_done("export", "--checkpoint", f"run-{name}", "--output", f"out-{name}",
                                 "--shard-size", "20KB")
                self.check_exported(model, self.folder / f"out-{name}", inputs)
                self.check_graph(f"run-{name}", model, inputs[:4 * CONTEXT].view(4, CONTEXT))
                self.check_graph(f"run-{name}", model, inputs[None, :7])

    def loss_of(self, model, inputs, targets):
        with torch.no_grad():
            logits = [model(window[None]).logits[0] for window in inputs.split(CONTEXT)]
            return torch.nn.functional.cross_entropy(torch.cat(logits).double(), targets).item()

    def check_generated(self, model, run, shard):
        """The likeliest continuation of a prompt."""
        prompt = torch.tensor([list(b"Line 7 of")])
        theirs = model.generate(prompt, max_new_tokens=8, do_sample=False, pad_token_id=0)[0].tolist()
        done = self.run_program("generate", "--checkpoint", run, "--prompt", "Line 7 of", "--tokens", 8,
                                "--temperature", 0, "--tokenizer", shard)
        self.assertEqual(done.returncode, 0, done.stderr)
        ours = done.stdout.encode(errors="surrogateescape").removesuffix(b"\n")
        self.assertEqual(ours.decode(errors="replace"),
                         bytes(token for token in theirs if token < 256).decode(errors="replace"))

    def check_exported(self, model, folder, inputs):
        self.assertGreater(len(list(folder.glob("*.safetensors"))), 1)
        again, info = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
        self.assertIs(type(again), type(model))
        self.assertFalse(info["missing_keys"] or info["unexpected_keys"] or info["mismatched_keys"], info)
        with torch.no_grad():
            for window in inputs[:4 * CONTEXT].split(CONTEXT):
                self.assertTrue(torch.equal(again(window[None]).logits, model(window[None]).logits))


class MaskedTexts(ModelTest):
    """What imported models compute is compared by bert_torch_test."""

    def test_come_back(self):
        # That for pretraining has heads besides the one for masked tokens, which are left out.
        for make in (BertForMaskedLM, BertForPreTraining):
            with self.subTest(make.__name__):
                name = make.__name__
                model = shaken(make(BertConfig(
                    vocab_size=262, hidden_size=48, num_hidden_layers=3, num_attention_heads=4, intermediate_size=80,
                    max_position_embeddings=CONTEXT, layer_norm_eps=1e-6)))
                model.save_pretrained(self.folder / name)
                done = self.run_program("import", "--from", name, "--output", f"run-{name}")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual("left out" in done.stderr, make is BertForPreTraining, done.stderr)
                self.assertNotIn("config.json", done.stderr)
                self.expect_done("export", "--checkpoint", f"run-{name}", "--output", f"out-{name}", "--shard-size",
                                 "20KB")
                again, info = BertForMaskedLM.from_pretrained(self.folder / f"out-{name}", output_loading_info=True)
                self.assertFalse(info["missing_keys"] or info["unexpected_keys"] or info["mismatched_keys"], info)
                tokens = torch.randint(0, 262, (3, CONTEXT))
                mask = (torch.arange(CONTEXT) < torch.tensor([[CONTEXT], [9], [1]])).long()
                with torch.no_grad():
                    theirs = model(tokens, attention_mask=mask)
                    theirs = theirs.logits if make is BertForMaskedLM else theirs.prediction_logits
                    self.assertTrue(torch.equal(again(tokens, attention_mask=mask).logits, theirs))

                def logits_of_tokens(tokens, mask, segments):
                    logits = again(tokens, attention_mask=mask, token_type_ids=segments).logits
                    return logits[mask > 0]  # nobody reads the others

                segments = torch.randint(0, 2, (3, CONTEXT))
                for count, length in ((3, CONTEXT), (1, 5)):
                    given = [one[:count, :length].contiguous() for one in (tokens, mask, segments)]
                    self.check_graph(f"run-{name}", logits_of_tokens, *given, only=given[1] > 0)


class Pictures(ModelTest):
    def setUp(self):
        super().setUp()
        torch.manual_seed(7)
        each = 6
        pixels = torch.randint(0, 256, (CLASSES * each, SIZE, SIZE, 3), dtype=torch.uint8)
        self.targets = torch.arange(CLASSES).repeat_interleave(each)
        for split in ("train", "test"):
            for number, picture in enumerate(pixels):
                path = self.folder / "pictures" / split / f"c{self.targets[number]}" / f"{number:02}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(picture.numpy()).save(path)
        self.expect_done("prepare", "--images", "pictures", "--output", "data", "--size", SIZE)
        values = pixels.double() / 255
        mean, deviation = values.mean((0, 1, 2)), values.std((0, 1, 2), correction=0)
        self.given = ((values - mean) / deviation).float().permute(0, 3, 1, 2)
        self.normalisation = ", ".join(f"{name} {' '.join(str(x) for x in of_colours.tolist())}" for name, of_colours in
                                       (("mean", mean), ("deviation", deviation)))

    def test_losses(self):
        for family, make, keys in (
                ("mobilenet_v2", lambda: mobilenet_v2(num_classes=CLASSES, width_mult=0.5),
                 ("--model.width_multiple", 0.5)),
                ("resnet", lambda: resnet18(num_classes=CLASSES), ("--model.depth", 18))):
            with self.subTest(family):
                keys = ("--model.family", family, "--model.classes", CLASSES, "--model.image", SIZE, "--model.stem",
                        "imagenet", *keys)
                self.compare(family, make, keys)

    def test_vision_transformers(self):
        config = ViTConfig(image_size=SIZE, patch_size=8, hidden_size=48, num_hidden_layers=2, num_attention_heads=4,
                           intermediate_size=80, layer_norm_eps=1e-5, num_labels=CLASSES, hidden_dropout_prob=0.0)
        model = shaken(ViTForImageClassification(config))
        model.save_pretrained(self.folder / "vit")
        self.expect_done("import", "--from", "vit", "--output", "run")
        with torch.no_grad():
            logits = model(self.given).logits
        self.check_loss("run", logits)
        self.expect_done("export", "--checkpoint", "run", "--output", "out")
        again, info = ViTForImageClassification.from_pretrained(self.folder / "out", output_loading_info=True)
        self.assertFalse(info["missing_keys"] or info["unexpected_keys"] or info["mismatched_keys"], info)
        with torch.no_grad():
            self.assertTrue(torch.equal(again(self.given).logits, logits))
        self.check_graph("run", model, self.given)

    def check_loss(self, run, logits):
        theirs = torch.nn.functional.cross_entropy(logits.double(), self.targets).item()
        done = self.expect_done("eval", "--checkpoint", run, "--data", "data/validation.h5")
        ours = float(re.search(r"(?m)^loss +(\S+)$", done)[1])
        self.assertLess(abs(ours - theirs) / theirs, 1e-5, f"{ours} {theirs}")
        right = 100.0 * (logits.argmax(1) == self.targets).double().mean().item()
        self.assertIn(f"top-1          {right:.2f} %", done)
        # Imported weights know neither the names of classes nor how pixels are normalised.
        done = self.run_program("predict", "--checkpoint", run, "--input", "pictures/test", "--json", "said.jsonl",
                                "--top", CLASSES, "--normalisation", self.normalisation)
        self.assertEqual(done.returncode, 0, done.stderr)
        said = [json.loads(line) for line in (self.folder / "said.jsonl").read_text(encoding="utf-8").splitlines()]
        for one, expected in zip(said, logits.double().softmax(1), strict=True):
            for likely in one["likely"]:
                self.assertEqual(likely["class"], f"class {likely['number']}")
                self.assertAlmostEqual(likely["probability"], expected[likely["number"]].item(), delta=1e-5)

    def compare(self, family, make, keys):
        model = make()
        for module in model.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                torch.nn.init.uniform_(module.weight, 0.5, 1.5)
                torch.nn.init.normal_(module.bias, 0.2, 0.3)
                torch.nn.init.normal_(module.running_mean, 0.0, 0.3)
                torch.nn.init.uniform_(module.running_var, 0.5, 2.0)
            if isinstance(module, torch.nn.Linear):
                torch.nn.init.normal_(module.weight, 0.0, 0.03)
                torch.nn.init.normal_(module.bias, 0.0, 0.3)
        model.eval()
        state = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
        save_file(state, self.folder / f"{family}.safetensors")
        self.expect_done("import", "--from", f"{family}.safetensors", "--output", family, *keys)

        with torch.no_grad():
            logits = model(self.given)
        self.check_loss(family, logits)

        self.expect_done("export", "--checkpoint", family, "--output", f"{family}-out")
        exported = load_file(self.folder / f"{family}-out" / "model.safetensors")
        self.assertEqual(set(exported), {name for name in state if not name.endswith("num_batches_tracked")})
        for name, tensor in exported.items():
            self.assertTrue(torch.equal(tensor, state[name]), name)
        make().load_state_dict(exported)  # strict
        self.check_graph(family, model, self.given)


if __name__ == "__main__":
    ProgramTest.program = Path(sys.argv[1]).resolve()
    del sys.argv[1:]
    torch.set_num_threads(1)
    unittest.main()
