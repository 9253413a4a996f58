#!/usr/bin/env python3
"""Convolutional networks compared with the same models in PyTorch, with the same weights.

    python3 convolutional_torch_test.py CONVOLUTIONAL_PROGRAM

The weights are made here, under the names of torchvision's models, and the program finds them by our
tables of these names. PyTorch computes small models in fp64: what may deviate there is our fp32
alone.
"""
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
import named_arrays
from torch_pictures import MOBILENET_STAGES, MobileNetV2, ResNet

PROGRAM = sys.argv[1]
FEW = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 2, 2)]


class Case(NamedTuple):
    family: str
    classes: int
    side: int
    cifar: bool
    smoothing: float
    micro_batches: int
    samples: int
    network: tuple  # of mobilenet_v2 (width, stages), of resnet (width, bottlenecks, stages)

    def model(self):
        return {"mobilenet_v2": MobileNetV2, "resnet": ResNet}[self.family](self.classes, self.cifar, *self.network)

    def numbers(self):
        """The numbers of the network, as the program wants them."""
        flat = []
        for value in self.network:
            for entry in value if isinstance(value, (list, tuple)) else [value]:
                flat += entry if isinstance(entry, tuple) else [float(entry)]
        return torch.tensor(flat, dtype=torch.float32)


def random_model(case):
    """A model with weights, running moments and biases that are all different from their initial values."""
    torch.manual_seed(3)
    model = case.model()
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out")
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, 0.2, 0.3)
            nn.init.normal_(module.running_mean, 0.0, 0.3)
            nn.init.uniform_(module.running_var, 0.5, 2.0)
    return model


class ConvolutionalTest(unittest.TestCase):
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
        config = [case.classes, case.side, int(case.cifar), case.smoothing, case.micro_batches, case.samples, rate]
        given.update(config=torch.tensor(config, dtype=torch.float32), network=case.numbers(), pixels=pixels,
                     targets=targets)
        with tempfile.TemporaryDirectory() as folder:
            named_arrays.write(f"{folder}/input", given)
            subprocess.run([PROGRAM, case.family, f"{folder}/input", f"{folder}/output"], check=True)
            ours = named_arrays.read(f"{folder}/output")

        pixels = pixels.to(dtype).permute(0, 3, 1, 2)
        parts = [slice(i, i + case.samples) for i in range(0, count, case.samples)]
        model.eval()
        self.near(ours["logits"], model(pixels[parts[0]]), min(tolerance, 1e-4), "logits")
        model.train()

        def gradients():
            """Computes those of the mean loss of all micro-batches, each with moments of its own; returns the loss."""
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

    def test_small_mobilenet(self):
        self.compare(Case("mobilenet_v2", 7, 12, True, 0.1, 2, 6, (0.5, FEW)), 2e-5)

    def test_published_stem_of_mobilenet(self):
        self.compare(Case("mobilenet_v2", 11, 40, False, 0.0, 1, 4, (0.35, FEW)), 2e-5)

    def test_whole_mobilenet_for_cifar(self):
        # Among so many numbers some are where ReLU6 cuts, and rounding decides on their side: in fp32
        # PyTorch's own gradients deviate by up to 0.006 from those in fp64.
        self.compare(Case("mobilenet_v2", 10, 32, True, 0.0, 2, 4, (1.0, MOBILENET_STAGES)), 0.1, torch.float32, 0.001)

    def test_small_resnet(self):
        self.compare(Case("resnet", 7, 12, True, 0.1, 2, 6, (16, False, (2, 1))), 5e-5)

    def test_small_resnet_of_bottlenecks(self):
        self.compare(Case("resnet", 7, 12, True, 0.0, 2, 6, (8, True, (1, 2))), 2e-5)

    def test_published_stem_of_resnet(self):
        self.compare(Case("resnet", 11, 50, False, 0.0, 1, 4, (16, False, (1, 1, 1))), 2e-5)

    def test_whole_resnet18_for_cifar(self):
        # ReLU cuts likewise, of fewer layers: 0.001 on one processor, less on others.
        self.compare(Case("resnet", 10, 32, True, 0.0, 1, 4, (64, False, (2, 2, 2, 2))), 5e-3, torch.float32, 0.001)

    def test_names_and_shapes_are_torchvisions(self):
        try:
            from torchvision import models
        except ImportError:
            self.skipTest("torchvision is not installed")
        pairs = ((MobileNetV2(), models.mobilenet_v2()), (ResNet(), models.resnet18()),
                 (ResNet(bottlenecks=True, stages=(3, 4, 6, 3)), models.resnet50()))
        for ours, theirs in pairs:
            self.assertEqual({name: value.shape for name, value in ours.state_dict().items()},
                             {name: value.shape for name, value in theirs.state_dict().items()})
            # With their weights it computes the same: strides and paddings have no names.
            ours.load_state_dict(theirs.state_dict())
            pixels = torch.randn(1, 3, 64, 64)
            with torch.no_grad():
                torch.testing.assert_close(ours.eval()(pixels), theirs.eval()(pixels))

    def test_counts_parameters(self):
        for model, parameters in ((MobileNetV2(), 3504872), (ResNet(), 11689512),
                                  (ResNet(bottlenecks=True, stages=(3, 4, 6, 3)), 25557032)):
            self.assertEqual(sum(parameter.numel() for parameter in model.parameters()), parameters)


if __name__ == "__main__":
    del sys.argv[1:]
    torch.set_num_threads(1)
    unittest.main()
