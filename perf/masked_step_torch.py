#!/usr/bin/env python3
"""The peer of `trireme bench step` for BERT: PyTorch's training step of a masked language model on made-up tokens, eager
and compiled, beside what `trireme bench step --json FILE` measured on the same machine just before.

    perf/masked_step_torch.py --beside FILE --batch 8 --context 128 --dtype fp32 [--help]

As in Trireme the head computes logits of the masked tokens alone, 15 % of all, and nothing is dropped out. Weights are
fp32, products bf16 by autocast, AdamW fused, attention PyTorch's own. perf/train_step.sh --masked runs both programs.
"""

import torch
import torch.nn.functional as F
from torch import nn

from train_step_torch import Step, compare_texts

# Layers, width, heads.
MODELS = {"bert-tiny": (2, 128, 2), "bert-small": (4, 512, 8), "bert-base": (12, 768, 12), "bert-large": (24, 1024, 16)}
VOCABULARY = 30522
MASKED = 0.15


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-12), nn.LayerNorm(width, eps=1e-12)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in self.qkv(x).split(c, dim=2))
        y = F.scaled_dot_product_attention(q, k, v)
        x = self.norm1(x + self.output(y.transpose(1, 2).reshape(b, t, c)))
        return self.norm2(x + self.down(F.gelu(self.up(x))))


class Bert(nn.Module):
    def __init__(self, context, layers, width, heads):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, width), nn.Embedding(512, width)
        self.segments = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.transform, self.transform_norm = nn.Linear(width, width), nn.LayerNorm(width, eps=1e-12)
        self.head = nn.Linear(width, VOCABULARY)
        self.head.weight = self.tokens.weight
        for table in (self.tokens, self.positions, self.segments):
            nn.init.normal_(table.weight, std=0.02)
        self.register_buffer("masked", torch.randperm(context)[:max(1, round(MASKED * context))].sort().values)

    def forward(self, tokens, targets):
        of_positions = self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        x = self.norm(self.tokens(tokens) + of_positions + self.segments(torch.zeros_like(tokens)))
        for block in self.blocks:
            x = block(x)
        x = self.transform_norm(F.gelu(self.transform(x[:, self.masked])))
        logits = self.head(x)
        return F.cross_entropy(logits.view(-1, VOCABULARY).float(), targets[:, self.masked].reshape(-1))


def step_of_masked_texts(options, compiled):
    torch.manual_seed(1)
    tokens = torch.randint(0, VOCABULARY, (options.batch, options.context)).to(options.device)
    return Step(options, Bert(options.context, *MODELS[options.preset]).to(options.device), tokens, tokens, compiled)


if __name__ == "__main__":
    compare_texts(__doc__, step_of_masked_texts, MODELS, "bert-base", batch=8, context=128)
