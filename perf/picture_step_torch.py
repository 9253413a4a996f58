#!/usr/bin/env python3
"""The peer of `trireme bench step` for pictures: PyTorch's training step of a convolutional network on made-up
pictures, eager and compiled, beside what `trireme bench step --json FILE` measured on the same machine just before.

    perf/picture_step_torch.py --beside FILE --preset resnet18-cifar --batch 128 --dtype fp32 [--help]

Pictures and convolutions are channels last, weights fp32, convolutions and products bf16 by autocast, AdamW fused.
perf/train_step.sh --pictures runs both programs.
"""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests/support"))
from torch_pictures import MobileNetV2, ResNet
from train_step_torch import Step, common_arguments, compare, parsed

# Name: the model, its arguments.
MODELS = {"mobilenet_v2": (MobileNetV2, {}),
          "resnet18": (ResNet, {}),
          "resnet34": (ResNet, {"stages": (3, 4, 6, 3)}),
          "resnet50": (ResNet, {"stages": (3, 4, 6, 3), "bottlenecks": True})}
PRESETS = [name + stem for name in MODELS for stem in ("", "-cifar")]


class Classifier(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, pixels, targets):
        return F.cross_entropy(self.model(pixels).float(), targets)


def step_of_pictures(options, compiled):
    torch.manual_seed(1)
    name, cifar = options.preset.removesuffix("-cifar"), options.preset.endswith("-cifar")
    make, sizes = MODELS[name]
    classes, side = (10, 32) if cifar else (1000, 224)
    model = Classifier(make(classes, cifar, **sizes)).to(options.device, memory_format=torch.channels_last)
    pixels = torch.randn(options.batch, 3, side, side).to(options.device, memory_format=torch.channels_last)
    targets = torch.randint(0, classes, (options.batch,)).to(options.device)
    return Step(options, model, pixels, targets, compiled)


def main():
    parser = common_arguments(__doc__, 128, "pictures")
    parser.add_argument("--preset", choices=PRESETS, default="mobilenet_v2-cifar")
    options = parsed(parser)
    compare(options, f"{options.preset}, B={options.batch} in micro-batches of {options.micro}, {options.dtype}",
            unit="samples", make_step=step_of_pictures, units_of_sample=1)


if __name__ == "__main__":
    main()
