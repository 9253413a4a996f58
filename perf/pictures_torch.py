#!/usr/bin/env python3
"""The peer of the reading part of pictures_bench: torchvision's transforms under PyTorch's DataLoader, on one thread.

    perf/pictures_torch.py ARCHIVE      such as cifar10-jpeg.tar.xz

The pictures lie decoded in memory, as torchvision.datasets.CIFAR10 holds them: nothing is read from a file. Each is
cropped with padding 4, flipped, made float and normalised, once by the transforms of PIL images, which torchvision's
own training references take, once by those of tensors (v2); batches are 128. pictures_bench reads from the shard.
Needs PyPI's torch, torchvision and pillow, as in build/venv-torch (tests/support/torch_venv.sh).
"""

import io
import sys
import tarfile
import time

import numpy
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms
from torchvision.transforms import v2

COUNT = 10_000
SECONDS = 2
MEAN, DEVIATION = (0.491, 0.482, 0.447), (0.247, 0.243, 0.262)


class Pictures(Dataset):
    def __init__(self, pictures, transform):
        self.pictures, self.transform = pictures, transform

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, index):
        return self.transform(self.pictures[index]), 0


def decoded(path):
    found = []
    with tarfile.open(path) as archive:
        for member in archive:
            if member.isfile() and member.name.endswith(".jpg"):
                found.append(numpy.asarray(Image.open(io.BytesIO(archive.extractfile(member).read())).convert("RGB")))
                if len(found) == COUNT:
                    break
    return found


def measure(what, pictures, transform):
    loader = DataLoader(Pictures(pictures, transform), batch_size=128, shuffle=True, num_workers=0)
    count, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < SECONDS:
        for batch, _ in loader:
            count += len(batch)
    seconds = time.perf_counter() - begin
    print(f"{what:<52} {count / seconds:>10.0f} pictures/s {1e6 * seconds / count:>9.1f} us each")


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: perf/pictures_torch.py ARCHIVE")
    torch.set_num_threads(1)
    pictures = decoded(sys.argv[1])
    if not pictures:
        sys.exit(f"{sys.argv[1]} has no .jpg")
    side = pictures[0].shape[0]
    measure("torchvision, PIL, crop with padding 4 and flip", pictures, transforms.Compose(
        [Image.fromarray, transforms.RandomCrop(side, padding=4), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
         transforms.Normalize(MEAN, DEVIATION)]))
    tensors = [torch.from_numpy(picture.copy()).permute(2, 0, 1).contiguous() for picture in pictures]
    measure("torchvision, v2 on tensors, the same", tensors, v2.Compose(
        [v2.RandomCrop(side, padding=4), v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True),
         v2.Normalize(MEAN, DEVIATION)]))


if __name__ == "__main__":
    main()
