#!/usr/bin/env python3
"""A vision transformer compared with Hugging Face's ViTForImageClassification, with the same weights.

    python3 vit_torch_test.py MODEL_PROGRAM

The weights are made here. PyTorch computes in fp64: what may deviate is our fp32 alone.
"""
import collections
import sys
from pathlib import Path

import torch
from torch import nn
from transformers import ViTConfig, ViTForImageClassification

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
import model_comparison

Case = collections.namedtuple("Case", "layers width heads hidden patch image classes epsilon smoothing micro_batches samples")
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


def ours_of(name, tensor):
    name = model_comparison.renamed(name, PARTS)
    # A convolution's weight is (out, height, width, in) here.
    return [(name, tensor.permute(0, 2, 3, 1) if name == "embedding.patches.weight" else tensor)]


def random_model(case):
    """A model with weights that are all different from their initial values."""
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


class VitTest(model_comparison.ModelComparison):
    def compare_case(self, case):
        model = random_model(case)
        count = case.micro_batches * case.samples
        pixels = torch.randn(count, case.image, case.image, 3)
        targets = torch.randint(0, case.classes, (count,))
        given = {"parameter/" + ours: values for name, parameter in model.named_parameters()
                 for ours, values in ours_of(name, parameter)}
        given.update({"field/pixels": pixels, "field/targets": targets})
        asked = model_comparison.of_family("vit", layers=case.layers, width=case.width, heads=case.heads,
                                           hidden=case.hidden, patch=case.patch, image=case.image,
                                           classes=case.classes, norm_epsilon=case.epsilon,
                                           label_smoothing=case.smoothing)
        pixels = pixels.double().permute(0, 3, 1, 2)

        def loss():
            return nn.functional.cross_entropy(model(pixels).logits, targets, label_smoothing=case.smoothing)

        # What a key's bias adds to all scores changes nothing.
        self.compare(case, asked, given, model, ours_of, model(pixels[:case.samples]).logits, loss, 2e-5,
                     ("attention.key.bias",))

    def test_small(self):
        self.compare_case(Case(3, 32, 4, 48, 4, 12, 7, 1e-5, 0.1, 2, 5))

    def test_more_positions_than_a_tile(self):
        self.compare_case(Case(2, 24, 2, 96, 2, 20, 11, 1e-6, 0.0, 1, 3))

    def test_large_epsilon(self):
        self.compare_case(Case(1, 16, 1, 32, 5, 15, 3, 0.3, 0.0, 1, 4))


if __name__ == "__main__":
    model_comparison.main(sys.argv[1])
