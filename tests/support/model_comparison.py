"""What the comparisons of a family's models with those of PyTorch share."""
import re
import subprocess
import tempfile
import unittest

import named_arrays
import torch

RATE = 0.05


class ModelComparison(unittest.TestCase):
    """PyTorch computes in fp64: what may deviate is our fp32 alone."""
    model_program = ""

    def near(self, ours, theirs, tolerance, what):
        """The difference as a share of the whole tensor's length."""
        theirs = theirs.detach().flatten().double()
        self.assertEqual(ours.numel(), theirs.numel(), what)
        error = ((ours - theirs).norm() / theirs.norm()).item()
        self.largest = max(self.largest, (error, what))
        self.assertLess(error, tolerance, what)

    def run_ours(self, asked, given):
        with tempfile.TemporaryDirectory() as folder:
            named_arrays.write(f"{folder}/input", given)
            subprocess.run([self.model_program, f"{folder}/input", f"{folder}/output", *asked], check=True)
            return named_arrays.read(f"{folder}/output")

    def compare(self, case, asked, given, model, ours_of, logits, loss, tolerance, without_effect=()):
        """Logits, a loss, its gradients, and two steps of SGD.

        `case` has the numbers of micro-batches and of samples in each; `asked` tells our program which model it
        computes: see of_family and of_run. `given` are the fields that it gets and, unless a run holds them, the
        parameters. `ours_of(name, tensor)` lists our names and our layout of what is in their parameter, or in
        its gradient. `logits` are theirs of the first micro-batch, `loss()` is theirs of a step. Parameters whose names
        end in one of `without_effect` have no gradient in exact arithmetic.
        """
        self.largest = (0.0, "")
        ours = self.run_ours(asked, {"batch": torch.tensor([case.micro_batches, case.samples, RATE]), **given})
        self.near(ours["logits"], logits, tolerance, "logits")

        def loss_with_gradients():
            model.zero_grad()
            value = loss()
            value.backward()
            return value.reshape(1)

        self.near(ours["loss"], loss_with_gradients(), tolerance, "loss")
        gradients = [part for name, parameter in model.named_parameters() for part in ours_of(name, parameter.grad)]
        self.assertEqual({name for name in ours if name.startswith("gradient/")},
                         {"gradient/" + name for name, _ in gradients})
        for name, gradient in gradients:
            if without_effect and name.endswith(without_effect):
                self.assertLess(ours["gradient/" + name].abs().max(), 1e-6, name)
                continue
            self.near(ours["gradient/" + name], gradient, tolerance, "gradient of " + name)
        optimizer = torch.optim.SGD(model.parameters(), RATE)
        for step in ("1", "2"):
            self.near(ours["loss/" + step], loss_with_gradients(), tolerance, "loss of step " + step)
            optimizer.step()
        for name, parameter in model.named_parameters():
            for our_name, values in ours_of(name, parameter):
                self.near(ours["trained/" + our_name], values, tolerance, "after two steps " + our_name)
        print(f"{case}: largest deviation {self.largest[0]:.1e}, {self.largest[1]}")


def renamed(name, parts):
    """The name with the first match of each pattern replaced, in the order of the pairs (theirs, ours)."""
    for theirs, ours in parts:
        name = re.sub(theirs, ours, name, count=1)
    return name


def of_family(family, **keys):
    """The model of a family with these keys."""
    return [family, *(f"{key}={value}" for key, value in keys.items())]


def of_run(folder):
    """The model of a run, whose newest checkpoint holds the weights."""
    return ["--run", str(folder)]


def main(program):
    ModelComparison.model_program = program
    torch.set_num_threads(1)
    unittest.main(argv=[""])
