#!/usr/bin/env python3
"""The peer of `trireme bench step`: one PyTorch training step of GPT-2 on made-up tokens, eager and compiled.

usage: train_step_torch.py BATCH CONTEXT fp32|bf16 STEPS THREADS [eager|compiled]
"""

import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2)
                   for y in self.qkv(self.norm1(x)).split(c, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.output(y.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, context, vocabulary=50257, layers=12, width=768, heads=12):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), targets.view(-1))


def measure(batch, context, precision, steps, compiled):
    torch.manual_seed(1)
    model = Gpt2(context)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    step_model = torch.compile(model) if compiled else model
    tokens = torch.randint(0, 50257, (batch, context + 1))
    seconds = []
    for step in range(steps + (2 if compiled else 1)):
        begin = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
            loss = step_model(tokens[:, :-1], tokens[:, 1:].contiguous())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds[-steps:])


def main():
    batch, context, precision, steps, threads = (int(a) if a.isdigit() else a for a in sys.argv[1:6])
    torch.set_num_threads(threads)
    for mode in sys.argv[6:] or ("eager", "compiled"):
        median = measure(batch, context, precision, steps, mode == "compiled")
        print(f"torch {torch.__version__} {mode} B={batch} T={context} {precision}, {threads} threads: "
              f"{median:.3f} s/step, {batch * context / median:.1f} tokens/s", flush=True)


main()
