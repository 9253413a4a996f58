#!/usr/bin/env python3
"""The peer of `trireme bench step`: PyTorch's training step of GPT-2 on made-up tokens, eager and compiled,
beside what `trireme bench step --json FILE` measured on the same machine just before.

    perf/train_step_torch.py --beside FILE --batch 4 --context 256 --dtype bf16 [--device cuda] [--help]

Weights are fp32, products bf16 by autocast, AdamW fused, attention PyTorch's own (flash attention where
it takes the shape); the vocabulary's matrix is padded to a multiple of 64 rows, as Trireme's is. MFU
counts for both what FILE counts, matrix products alone, against the roof that FILE found.
"""

import argparse
import gc
import json
import resource
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn

PHASES = ("forward", "backward", "optimizer")


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
    def __init__(self, options):
        super().__init__()
        rows = -(-options.vocabulary // 64) * 64
        self.tokens = nn.Embedding(rows, options.width)
        self.positions = nn.Embedding(options.context, options.width)
        self.blocks = nn.ModuleList(Block(options.width, options.heads) for _ in range(options.layers))
        self.norm = nn.LayerNorm(options.width)
        self.head = nn.Linear(options.width, rows, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), targets.view(-1))


class Clock:
    """Seconds from mark to mark: on a GPU those of its stream, by events that are read at the end."""

    def __init__(self, on_gpu):
        self.on_gpu, self.marks = on_gpu, []

    def mark(self):
        if self.on_gpu:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self.marks.append(event)
        else:
            self.marks.append(time.perf_counter())

    def seconds(self):
        if not self.on_gpu:
            return [b - a for a, b in zip(self.marks, self.marks[1:])]
        self.marks[-1].synchronize()
        return [a.elapsed_time(b) * 1e-3 for a, b in zip(self.marks, self.marks[1:])]


class Step:
    """`model` gives the mean loss of inputs and targets, which are those of the whole batch."""

    def __init__(self, options, model, inputs, targets, compiled):
        self.options, self.on_gpu = options, options.device == "cuda"
        self.parts = options.batch // options.micro
        self.parameters = list(model.parameters())
        self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-4, fused=True)
        self.model = torch.compile(model) if compiled else model
        self.inputs, self.targets = inputs, targets

    def forward(self, part):
        rows = slice(part * self.options.micro, (part + 1) * self.options.micro)
        with torch.autocast(self.options.device, dtype=torch.bfloat16, enabled=self.options.dtype == "bf16"):
            return self.model(self.inputs[rows], self.targets[rows]) / self.parts

    def run(self):
        """Seconds of each phase, and of the step, at whose end the host has the loss."""
        begin = time.perf_counter()
        phases, total = dict.fromkeys(PHASES, 0.0), 0.0
        clocks = []
        for part in range(self.parts):
            clocks.append(Clock(self.on_gpu))
            clocks[-1].mark()
            loss = self.forward(part)
            clocks[-1].mark()
            loss.backward()
            clocks[-1].mark()
            total = total + loss.detach()
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        clocks[-1].mark()
        total.item()
        seconds = time.perf_counter() - begin
        for clock in clocks:
            for phase, took in zip(PHASES, clock.seconds()):
                phases[phase] += took
        return seconds, phases


def step_of_texts(options, compiled):
    torch.manual_seed(1)
    tokens = torch.randint(0, options.vocabulary, (options.batch, options.context + 1)).to(options.device)
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    return Step(options, Gpt2(options).to(options.device), inputs, targets, compiled)


def peak_bytes(on_gpu):
    if on_gpu:
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(options, mode, make_step=step_of_texts, unit="tokens", units_of_sample=None):
    step = make_step(options, mode == "compiled")
    for _ in range(3 if mode == "compiled" else 1):
        step.run()
    runs = [step.run() for _ in range(options.steps)]
    seconds = statistics.median(run[0] for run in runs)
    figures = {f"{phase}_seconds": statistics.fmean(run[1][phase] for run in runs) for phase in PHASES}
    figures.update(step_seconds=seconds, peak_bytes=peak_bytes(step.on_gpu))
    figures[f"{unit}_per_second"] = options.batch * (units_of_sample or options.context) / seconds
    return figures


def trireme_figures(path, on_gpu):
    with open(path, encoding="utf-8") as file:
        figures = json.load(file)
    figures["peak_bytes"] = figures["memory_bytes"]["at_once" if on_gpu else "resident"]
    return figures


def table(columns, flops_per_unit, roof, unit="tokens"):
    """Lines of a row for each figure, a column for each program."""
    rate = f"{unit}_per_second"

    def row(name, value, form):
        cells = (value(figures) for figures in columns.values())
        return f"{name:<18}" + "".join(f"{'-' if cell is None else format(cell, form):>14}" for cell in cells)

    def milliseconds(name):
        return lambda figures: None if name not in figures else figures[name] * 1e3

    yield f"{'':<18}" + "".join(f"{name:>14}" for name in columns)
    yield row(f"{unit}/s", lambda f: f[rate], ".0f")
    yield row("MFU %", lambda f: 100 * f[rate] * flops_per_unit / roof, ".1f")
    yield row("ms a step", milliseconds("step_seconds"), ".2f")
    for phase in (*PHASES, "communication", "other"):
        yield row(f"  {phase}", milliseconds(f"{phase}_seconds"), ".2f")
    yield row("peak MiB", lambda f: f["peak_bytes"] / 2**20, ".0f")


def common_arguments(description, batch, samples):
    parser = argparse.ArgumentParser(description=description.split("\n", maxsplit=1)[0])
    parser.add_argument("--beside", required=True, help="what trireme bench step --json wrote")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--batch", type=int, default=batch, help=f"{samples} of a step")
    parser.add_argument("--micro", type=int, help="of them in a micro-batch; all unless given")
    parser.add_argument("--dtype", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--modes", nargs="+", choices=("eager", "compiled"), default=("eager", "compiled"))
    return parser


def parsed(parser):
    options = parser.parse_args()
    options.micro = options.micro or options.batch
    if options.batch % options.micro:
        parser.error("--batch is no multiple of --micro")
    return options


def arguments():
    parser = common_arguments(__doc__, 4, "sequences")
    parser.add_argument("--context", type=int, default=256)
    for name, value in (("layers", 12), ("width", 768), ("heads", 12), ("vocabulary", 50257)):
        parser.add_argument(f"--{name}", type=int, default=value)
    return parsed(parser)


def compare(options, what, unit="tokens", **of_measure):
    """Measures all modes and prints the table. `what`: the step in words."""
    torch.set_num_threads(options.threads)
    on_gpu = options.device == "cuda"
    columns = {"trireme": trireme_figures(options.beside, on_gpu)}
    for mode in options.modes:
        if on_gpu:
            gc.collect()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        columns[mode] = measure(options, mode, unit=unit, **of_measure)
    name = torch.cuda.get_device_name() if on_gpu else f"{options.threads} threads"
    ours = columns["trireme"]
    print(f"torch {torch.__version__}, {name}, {what}")
    for line in table(columns, ours["flops"] / ours[f"{unit}_per_second"], ours["roof"]["flops"], unit):
        print(line, flush=True)


def compare_texts(description, make_step, presets, preset, batch, context):
    """The main program of a peer that trains presets on texts, with these defaults."""
    parser = common_arguments(description, batch, "sequences")
    parser.add_argument("--preset", choices=presets, default=preset)
    parser.add_argument("--context", type=int, default=context)
    options = parsed(parser)
    compare(options, f"{options.preset}, B={options.batch} T={options.context} {options.dtype}", make_step=make_step)


def main():
    options = arguments()
    compare(options, f"B={options.batch} T={options.context} {options.dtype}")


if __name__ == "__main__":
    main()
