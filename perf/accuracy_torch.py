#!/usr/bin/env python3
"""The peer of the accuracy of jobs/hybrid.sh: PyTorch trains MobileNetV2 on the same shards with the same settings.

    perf/accuracy_torch.py --data runs/hybrid/data [--epochs N] [--drop SHARE] [--steps N] [--threads N]
                           [--init torch|torchvision]

Micro-batches of 32 whose gradients add up to a step of 128 pictures, Adam at 0.001, and at a tenth of it after the
share --drop (0.8) of --epochs, which the script rounds up to whole epochs; crops of pictures padded by 4 zeros, flips;
batch norm over each micro-batch. It prints the mean loss of each 100 steps, and after each epoch the share of the test
pictures that are right. It ends after --steps steps where they are fewer, with the learning rate of the whole run.
"""

import argparse
import math
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests/support"))
from torch_pictures import MobileNetV2  # noqa: E402

BATCH, MICRO, PADDING, RATE = 128, 32, 4, 1e-3


class Shard:
    def __init__(self, path):
        with h5py.File(path) as file:
            self.images, self.labels = file["images"][:], file["labels"][:].astype(np.int64)
        self.mean, self.deviation = None, None

    def normalised(self, pixels, of):
        scaled = (pixels.astype(np.float32) / 255 - of.mean) / of.deviation
        return torch.from_numpy(scaled.transpose(0, 3, 1, 2)).contiguous(memory_format=torch.channels_last)


def augmented(pixels, draws):
    """Each picture cropped from its padded self, and flipped half of the time."""
    side = pixels.shape[1]
    padded = np.pad(pixels, ((0, 0), (PADDING, PADDING), (PADDING, PADDING), (0, 0)))
    result = np.empty_like(pixels)
    for i, (y, x) in enumerate(draws.integers(0, 2 * PADDING + 1, (len(pixels), 2))):
        crop = padded[i, y:y + side, x:x + side]
        result[i] = crop[:, ::-1] if draws.random() < 0.5 else crop
    return result


def as_torchvision(model):
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out")
        elif isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, 0, 0.01)
            nn.init.zeros_(module.bias)


@torch.no_grad()
def accuracy(model, shard, of):
    model.eval()
    right = 0
    for at in range(0, len(shard.labels), 500):
        outputs = model(shard.normalised(shard.images[at:at + 500], of))
        right += int((outputs.argmax(1).numpy() == shard.labels[at:at + 500]).sum())
    model.train()
    return right / len(shard.labels)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--drop", type=float, default=0.8)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--init", choices=("torch", "torchvision"), default="torchvision")
    options = parser.parse_args()
    if not 0 <= options.drop <= 1:
        parser.error(f"--drop must be a share of the epochs, from 0 to 1, not {options.drop}")
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    draws = np.random.default_rng(1)
    train, test = Shard(options.data / "train.h5"), Shard(options.data / "validation.h5")
    train.mean = train.images.mean((0, 1, 2)) / 255
    train.deviation = train.images.std((0, 1, 2)) / 255
    train.mean, train.deviation = train.mean.astype(np.float32), train.deviation.astype(np.float32)
    model = MobileNetV2(10, True).to(memory_format=torch.channels_last)
    if options.init == "torchvision":
        as_torchvision(model)
    count = len(train.labels)
    all_steps = options.epochs * count // BATCH + (options.epochs * count % BATCH > 0)
    full_rate_steps = math.ceil(options.drop * options.epochs * count / BATCH)
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    order, losses, began, epoch = np.empty(0, np.int64), [], time.monotonic(), 1
    for step in range(1, min(all_steps, options.steps or all_steps) + 1):
        rate = RATE if step <= full_rate_steps else 0.1 * RATE
        for group in optimizer.param_groups:
            group["lr"] = rate
        while len(order) < BATCH:
            order = np.concatenate([order, draws.permutation(count)])
        chosen, order = order[:BATCH], order[BATCH:]
        pixels = augmented(train.images[np.sort(chosen)], draws)
        labels = train.labels[np.sort(chosen)]
        mixed = draws.permutation(BATCH)
        optimizer.zero_grad(set_to_none=True)
        loss_of_step = 0.0
        for at in range(0, BATCH, MICRO):
            part = mixed[at:at + MICRO]
            loss = F.cross_entropy(model(train.normalised(pixels[part], train)), torch.from_numpy(labels[part]))
            (loss * (MICRO / BATCH)).backward()
            loss_of_step += loss.item() * MICRO / BATCH
        optimizer.step()
        losses.append(loss_of_step)
        if step % 100 == 0:
            print(f"step {step}/{all_steps}  loss {np.mean(losses[-100:]):.4f}  lr {rate:.0e}  "
                  f"{(time.monotonic() - began) / step:.3f} s a step", flush=True)
        if step * BATCH >= epoch * count or step == all_steps:
            print(f"epoch {epoch}, step {step}: top-1 {accuracy(model, test, train):.4f}", flush=True)
            epoch += 1


if __name__ == "__main__":
    main()
