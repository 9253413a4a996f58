#!/usr/bin/env python3
"""A BERT compared with Hugging Face's BertForMaskedLM, with the same weights.

    python3 bert_torch_test.py MODEL_PROGRAM

The weights are made here. PyTorch computes in fp64: what may deviate is our fp32 alone.
"""
import collections
import sys
from pathlib import Path

import torch
from torch import nn
from transformers import BertConfig, BertForMaskedLM

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
import model_comparison

Case = collections.namedtuple("Case", "layers width heads hidden vocabulary context epsilon micro_batches samples masked")
IGNORED = -1  # the target of what is not masked
PARTS = [  # theirs to ours
    (r"bert\.embeddings\.word_embeddings", "embedding"),
    (r"bert\.embeddings\.position_embeddings", "positions"),
    (r"bert\.embeddings\.token_type_embeddings", "segments"),
    (r"bert\.embeddings\.LayerNorm", "embedding.norm"),
    (r"bert\.encoder\.layer\.", "blocks."),
    (r"attention\.self\.", "attention."),
    (r"attention\.output\.dense", "attention.output"),
    (r"attention\.output\.LayerNorm", "norm1"),
    (r"intermediate\.dense", "mlp.up"),
    (r"(?<!attention\.)output\.dense", "mlp.down"),
    (r"output\.LayerNorm", "norm2"),
    (r"cls\.predictions\.transform\.dense", "head.transform"),
    (r"cls\.predictions\.transform\.LayerNorm", "head.norm"),
    (r"cls\.predictions\.", "head."),
]


def our_name(name):
    return model_comparison.renamed(name, PARTS)


def random_model(case):
    """A model with weights that are all different from their initial values."""
    torch.manual_seed(3)
    model = BertForMaskedLM(
        BertConfig(hidden_size=case.width, num_hidden_layers=case.layers, num_attention_heads=case.heads,
                   intermediate_size=case.hidden, vocab_size=case.vocabulary, max_position_embeddings=case.context,
                   layer_norm_eps=case.epsilon, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
                   pad_token_id=None))
    for name, parameter in model.named_parameters():
        if "Norm" in name and name.endswith("weight"):
            nn.init.uniform_(parameter, 0.5, 1.5)
        else:
            nn.init.normal_(parameter, 0.0, 0.15)
    return model.double()


class Texts:
    """Samples of several lengths, each with a number of masked positions of its own."""

    def __init__(self, case):
        count = case.micro_batches * case.samples
        self.tokens = torch.randint(0, case.vocabulary, (count, case.context))
        self.lengths = torch.randint(case.masked, case.context + 1, (count,))
        self.lengths[0] = case.context
        self.positions = torch.zeros(count, case.masked, dtype=torch.long)
        self.targets = torch.full((count, case.masked), IGNORED)
        for sample, length in enumerate(self.lengths.tolist()):
            masked = 1 + sample % case.masked
            self.positions[sample, :masked] = torch.randperm(length)[:masked]
            self.targets[sample, :masked] = torch.randint(0, case.vocabulary, (masked,))
        self.mask = (torch.arange(case.context) < self.lengths[:, None]).long()

    def fields(self, case):
        first_rows = torch.arange(len(self.tokens)) % case.samples * case.context  # of a micro-batch
        return {"field/tokens": self.tokens, "field/targets": self.targets,
                "field/key_end": self.lengths[:, None].expand(-1, case.context),
                "field/target_rows": first_rows[:, None] + self.positions}

    def logits(self, model):
        """The logits of the masked positions, with what stands at those without a target too."""
        all_logits = model(self.tokens, attention_mask=self.mask).logits
        return all_logits.gather(1, self.positions[:, :, None].expand(-1, -1, all_logits.shape[2]))


class BertTest(model_comparison.ModelComparison):
    def compare_case(self, case):
        model, texts = random_model(case), Texts(case)
        # Parameters have their names, so that what `trireme import` knows of these is shown to be right.
        given = {"foreign/" + name: parameter for name, parameter in model.named_parameters()}
        given.update(texts.fields(case))
        asked = model_comparison.of_family("bert", layers=case.layers, width=case.width, heads=case.heads,
                                           hidden=case.hidden, vocabulary=case.vocabulary, context=case.context,
                                           norm_epsilon=case.epsilon)

        def loss():
            # Their own loss is of all positions, where what is not masked has no label.
            labels = torch.full_like(texts.tokens, -100)
            for sample, targets in enumerate(texts.targets):
                real = targets != IGNORED
                labels[sample, texts.positions[sample][real]] = targets[real]
            return model(texts.tokens, attention_mask=texts.mask, labels=labels).loss

        # What a key's bias adds to all scores changes nothing.
        self.compare(case, asked, given, model, lambda name, tensor: [(our_name(name), tensor)],
                     texts.logits(model)[:case.samples], loss, 2e-5, ("attention.key.bias",))

    def test_small(self):
        self.compare_case(Case(3, 32, 4, 48, 61, 12, 1e-12, 2, 5, 3))

    def test_more_positions_than_a_tile(self):
        self.compare_case(Case(2, 24, 2, 96, 300, 150, 1e-12, 1, 3, 20))

    def test_large_epsilon(self):
        self.compare_case(Case(1, 16, 1, 32, 20, 7, 0.3, 1, 4, 2))


if __name__ == "__main__":
    model_comparison.main(sys.argv[1])
