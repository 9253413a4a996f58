#!/usr/bin/env python3
"""MobileNetV2 beside the same model in PyTorch, with the same weights.

    python3 mobilenet_v2_torch_test.py MOBILENET_V2_PROGRAM

The weights are made here, under the names of torchvision's model, and the program finds them by our
table of these names. PyTorch computes small models in fp64: what may deviate there is our fp32
alone.
"""
import collections
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import torch
from torch import nn

PROGRAM = sys.argv[1]
PUBLISHED = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
             (6, 320, 1, 1)]
FEW = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 2, 2)]
Case = collections.namedtuple("Case", "classes side cifar width smoothing micro_batches samples stages")


def scaled(channels, multiple):
    """A multiple of 8 near channels * multiple, not less than 90 % of it."""
    wanted = channels * multiple
    result = max(8, int(wanted + 4) // 8 * 8)
    return result + 8 if result < 0.9 * wanted else result


def convolution_norm(inputs, outputs, kernel=1, stride=1, groups=1):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, (kernel - 1) // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs), nn.ReLU6())


class InvertedResidual(nn.Module):
    def __init__(self, inputs, outputs, stride, expansion):
        super().__init__()
        hidden = inputs * expansion
        layers = [convolution_norm(inputs, hidden)] if expansion > 1 else []
        self.conv = nn.Sequential(*layers, convolution_norm(hidden, hidden, 3, stride, hidden),
                                  nn.Conv2d(hidden, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x):
        return x + self.conv(x) if self.adds else self.conv(x)


class MobileNetV2(nn.Module):
    """As torchvision has it: the same architecture, the same names."""

    def __init__(self, case):
        super().__init__()
        channels = scaled(32, case.width)
        blocks = [convolution_norm(3, channels, 3, 1 if case.cifar else 2)]
        shrinks_first = True
        for expansion, wanted, count, stride in case.stages:
            outputs = scaled(wanted, case.width)
            if stride > 1 and shrinks_first:
                shrinks_first = False
                stride = 1 if case.cifar else stride
            for i in range(count):
                blocks.append(InvertedResidual(channels, outputs, stride if i == 0 else 1, expansion))
                channels = outputs
        last = scaled(1280, max(1.0, case.width))
        self.features = nn.Sequential(*blocks, convolution_norm(channels, last))
        self.classifier = nn.Sequential(nn.Dropout(0.0), nn.Linear(last, case.classes))

    def forward(self, x):
        return self.classifier(self.features(x).mean((2, 3)))


def write(path, arrays):
    with open(path, "wb") as file:
        for name, values in arrays.items():
            values = values.detach().to(torch.float32).contiguous().flatten()
            file.write(struct.pack("<I", len(name)) + name.encode() + struct.pack("<Q", values.numel()))
            file.write(values.numpy().tobytes())


def read(path):
    arrays, data, at = {}, Path(path).read_bytes(), 0
    while at < len(data):
        length, = struct.unpack_from("<I", data, at)
        name = data[at + 4:at + 4 + length].decode()
        count, = struct.unpack_from("<Q", data, at + 4 + length)
        at += 12 + length
        arrays[name] = torch.frombuffer(bytearray(data[at:at + 4 * count]), dtype=torch.float32).double()
        at += 4 * count
    return arrays


def random_model(case):
    """With weights, running moments and biases that are all different from their initial values."""
    torch.manual_seed(3)
    model = MobileNetV2(case)
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out")
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, 0.2, 0.3)
            nn.init.normal_(module.running_mean, 0.0, 0.3)
            nn.init.uniform_(module.running_var, 0.5, 2.0)
    return model


class MobileNetV2Test(unittest.TestCase):
    def near(self, ours, theirs, tolerance, what, of=None):
        """The difference as a share of the whole tensor's length, or of that of another one."""
        theirs = theirs.detach().flatten().double()
        self.assertEqual(ours.numel(), theirs.numel(), what)
        error = ((ours - theirs).norm() / (theirs if of is None else of).norm()).item()
        self.largest = max(self.largest, (error, what))
        self.assertLess(error, tolerance, what)

    def compare(self, case, tolerance, dtype=torch.float64, rate=0.05):
        self.largest = (0.0, "")
        model = random_model(case).to(dtype)
        count = case.micro_batches * case.samples
        pixels = torch.randn(count, case.side, case.side, 3)
        targets = torch.randint(0, case.classes, (count,))
        given = {name: value for name, value in model.state_dict().items() if "num_batches" not in name}
        config = [case.classes, case.side, int(case.cifar), case.width, case.smoothing, case.micro_batches,
                  case.samples, rate]
        config += [number for stage in case.stages for number in stage]
        given.update(config=torch.tensor(config, dtype=torch.float32), pixels=pixels, targets=targets)
        with tempfile.TemporaryDirectory() as folder:
            write(f"{folder}/input", given)
            subprocess.run([PROGRAM, f"{folder}/input", f"{folder}/output"], check=True)
            ours = read(f"{folder}/output")

        pixels = pixels.to(dtype).permute(0, 3, 1, 2)
        parts = [slice(i, i + case.samples) for i in range(0, count, case.samples)]
        model.eval()
        self.near(ours["logits"], model(pixels[parts[0]]), min(tolerance, 1e-4), "logits")
        model.train()

        def gradients():
            """Of the mean over all micro-batches, each with moments of its own."""
            model.zero_grad()
            total = 0.0
            for part in parts:
                loss = nn.functional.cross_entropy(model(pixels[part]), targets[part], reduction="sum",
                                                   label_smoothing=case.smoothing) / count
                loss.backward()
                total += loss.item()
            return torch.tensor([total])

        before = {name: value.clone() for name, value in model.named_buffers()}
        self.near(ours["loss"], gradients(), 1e-5, "loss")
        parameters = dict(model.named_parameters())
        # A number that all pixels of a channel have in common is gone after the next norm.
        cancelled = {f"{name}.{len(module) - 1}.bias" for name, module in model.named_modules()
                     if name.endswith(".conv")}
        for name, parameter in parameters.items():
            zero = name in cancelled
            of = parameters[name.replace("bias", "weight")].grad if zero else None
            self.near(ours["gradient/" + name], parameter.grad, tolerance, "gradient of " + name, of)
        for name, value in model.named_buffers():
            value.copy_(before[name])
        optimizer = torch.optim.SGD(model.parameters(), rate)
        for step in ("1", "2"):
            self.near(ours["loss/" + step], gradients(), tolerance, "loss of step " + step)
            optimizer.step()
        trained = {name: value for name, value in model.state_dict().items() if "num_batches" not in name}
        self.assertEqual({name for name in ours if name.startswith("trained/")},
                         {"trained/" + name for name in trained})
        for name, value in trained.items():
            self.near(ours["trained/" + name], value, tolerance, "after two steps " + name)
            if "running" in name:
                self.assertGreater((value - before[name]).norm(), 0.05 * before[name].norm(), name)
        print(f"{case}: largest deviation {self.largest[0]:.1e}, {self.largest[1]}")

    def test_small(self):
        self.compare(Case(7, 12, True, 0.5, 0.1, 2, 6, FEW), 2e-5)

    def test_published_stem(self):
        self.compare(Case(11, 40, False, 0.35, 0.0, 1, 4, FEW), 2e-5)

    def test_whole_model_for_cifar(self):
        # Of so many numbers some are where ReLU6 cuts, and rounding decides on their side: in fp32
        # PyTorch's own gradients deviate by up to 0.006 from those in fp64.
        self.compare(Case(10, 32, True, 1.0, 0.0, 2, 4, PUBLISHED), 0.1, torch.float32, 0.001)

    def test_names_and_shapes_are_torchvisions(self):
        try:
            from torchvision.models import mobilenet_v2
        except ImportError:
            self.skipTest("torchvision is not installed")
        theirs = mobilenet_v2().state_dict()
        ours = MobileNetV2(Case(1000, 224, False, 1.0, 0.0, 1, 1, PUBLISHED)).state_dict()
        self.assertEqual({name: value.shape for name, value in ours.items()},
                         {name: value.shape for name, value in theirs.items()})

    def test_counts_its_parameters(self):
        model = MobileNetV2(Case(1000, 224, False, 1.0, 0.0, 1, 1, PUBLISHED))
        self.assertEqual(sum(parameter.numel() for parameter in model.parameters()), 3504872)


if __name__ == "__main__":
    del sys.argv[1:]
    torch.set_num_threads(1)
    unittest.main()
