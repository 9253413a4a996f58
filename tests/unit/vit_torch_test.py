#!/usr/bin/env python3
"""A vision transformer beside Hugging Face's ViTForImageClassification, with the same weights.

    python3 vit_torch_test.py MODEL_PROGRAM

The weights are made here. PyTorch computes in fp64: what may deviate is our fp32 alone.
"""
import collections
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import torch
from torch import nn
from transformers import ViTConfig, ViTForImageClassification

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
import named_arrays

PROGRAM = sys.argv[1]
Case = collections.namedtuple("Case", "layers width heads hidden patch image classes epsilon smoothing micro_batches samples")
RATE = 0.05
# Theirs to ours: as the library names modules in memory, and as its files on the hub do.
PARTS = [
    (r"vit\.embeddings\.cls_token", "embedding.class_token"),
    (r"vit\.embeddings\.position_embeddings", "positions.weight"),
    (r"vit\.embeddings\.patch_embeddings\.projection", "embedding.patches"),
    (r"vit\.(encoder\.layer|layers)\.", "blocks."),
    (r"attention\.(attention\.query|q_proj)", "attention.query"),
    (r"attention\.(attention\.key|k_proj)", "attention.key"),
    (r"attention\.(attention\.value|v_proj)", "attention.value"),
    (r"attention\.(output\.dense|o_proj)", "attention.output"),
    (r"layernorm_before", "norm1"),
    (r"layernorm_after", "norm2"),
    (r"(intermediate\.dense|mlp\.fc1)", "mlp.up"),
    (r"(?<!attention\.)(output\.dense|mlp\.fc2)", "mlp.down"),
    (r"vit\.layernorm", "norm"),
    (r"^classifier", "head.classifier"),
]


def our_name(name):
    for theirs, ours in PARTS:
        name = re.sub(theirs, ours, name, count=1)
    return name


def our_layout(name, values):
    """A convolution's weight is (out, height, width, in) here."""
    return values.permute(0, 2, 3, 1) if name == "embedding.patches.weight" else values


def random_model(case):
    """With weights that are all different from their initial values."""
    torch.manual_seed(3)
    model = ViTForImageClassification(
        ViTConfig(hidden_size=case.width, num_hidden_layers=case.layers, num_attention_heads=case.heads,
                  intermediate_size=case.hidden, image_size=case.image, patch_size=case.patch,
                  num_labels=case.classes, layer_norm_eps=case.epsilon, hidden_dropout_prob=0.0,
                  attention_probs_dropout_prob=0.0))
    for name, parameter in model.named_parameters():
        if "norm" in name and name.endswith("weight"):
            nn.init.uniform_(parameter, 0.5, 1.5)
        else:
            nn.init.normal_(parameter, 0.0, 0.15)
    return model.double()


class VitTest(unittest.TestCase):
    def near(self, ours, theirs, tolerance, what):
        """The difference as a share of the whole tensor's length."""
        theirs = theirs.detach().flatten().double()
        self.assertEqual(ours.numel(), theirs.numel(), what)
        error = ((ours - theirs).norm() / theirs.norm()).item()
        self.largest = max(self.largest, (error, what))
        self.assertLess(error, tolerance, what)

    def compare(self, case, tolerance):
        self.largest = (0.0, "")
        model = random_model(case)
        count = case.micro_batches * case.samples
        pixels = torch.randn(count, case.image, case.image, 3)
        targets = torch.randint(0, case.classes, (count,))
        parameters = {our_name(name): parameter for name, parameter in model.named_parameters()}
        given = {"parameter/" + name: our_layout(name, value) for name, value in parameters.items()}
        given.update({"batch": torch.tensor([case.micro_batches, case.samples, RATE]), "field/pixels": pixels,
                      "field/targets": targets})
        keys = dict(layers=case.layers, width=case.width, heads=case.heads, hidden=case.hidden, patch=case.patch,
                    image=case.image, classes=case.classes, norm_epsilon=case.epsilon,
                    label_smoothing=case.smoothing)
        with tempfile.TemporaryDirectory() as folder:
            named_arrays.write(f"{folder}/input", given)
            subprocess.run([PROGRAM, "vit", f"{folder}/input", f"{folder}/output",
                            *(f"{key}={value}" for key, value in keys.items())], check=True)
            ours = named_arrays.read(f"{folder}/output")

        pixels = pixels.double().permute(0, 3, 1, 2)
        self.near(ours["logits"], model(pixels[:case.samples]).logits, tolerance, "logits")

        def gradients():
            model.zero_grad()
            loss = nn.functional.cross_entropy(model(pixels).logits, targets, label_smoothing=case.smoothing)
            loss.backward()
            return torch.tensor([loss.item()])

        self.near(ours["loss"], gradients(), tolerance, "loss")
        self.assertEqual({name for name in ours if name.startswith("gradient/")},
                         {"gradient/" + name for name in parameters})
        for name, parameter in parameters.items():
            if name.endswith("attention.key.bias"):  # a constant added to all scores changes nothing
                self.assertLess(ours["gradient/" + name].abs().max(), 1e-6, name)
                continue
            self.near(ours["gradient/" + name], our_layout(name, parameter.grad), tolerance, "gradient of " + name)
        optimizer = torch.optim.SGD(model.parameters(), RATE)
        for step in ("1", "2"):
            self.near(ours["loss/" + step], gradients(), tolerance, "loss of step " + step)
            optimizer.step()
        for name, parameter in parameters.items():
            self.near(ours["trained/" + name], our_layout(name, parameter), tolerance, "after two steps " + name)
        print(f"{case}: largest deviation {self.largest[0]:.1e}, {self.largest[1]}")

    def test_small(self):
        self.compare(Case(3, 32, 4, 48, 4, 12, 7, 1e-5, 0.1, 2, 5), 2e-5)

    def test_more_positions_than_a_tile(self):
        self.compare(Case(2, 24, 2, 96, 2, 20, 11, 1e-6, 0.0, 1, 3), 2e-5)

    def test_large_epsilon(self):
        self.compare(Case(1, 16, 1, 32, 5, 15, 3, 0.3, 0.0, 1, 4), 2e-5)


if __name__ == "__main__":
    del sys.argv[1:]
    torch.set_num_threads(1)
    unittest.main()
