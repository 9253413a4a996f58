#!/usr/bin/env python3
"""Seconds from the launcher's start to the first finished step of a tiny model: mpiexec and Trireme beside
torchrun and PyTorch (DDP over gloo), in turn.

usage: startup.py [TORCH_PYTHON]   (default: build/venv-torch/bin/python, made by perf/train_step.sh)
"""

import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BENCH = ROOT / "build/release/perf/train_step_bench"
PEER = """
import torch, torch.distributed as dist
from torch import nn
dist.init_process_group("gloo")
torch.set_num_threads(1)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Embedding(67, 32), nn.Linear(32, 67)))
optimizer = torch.optim.AdamW(model.parameters())
tokens = torch.randint(0, 67, (1, 17))
loss = nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
loss.backward()
optimizer.step()
dist.barrier()
if dist.get_rank() == 0:
    print("first step done", flush=True)
dist.destroy_process_group()
"""


def seconds_to_first_step(command):
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                               env={**os.environ, "OMP_NUM_THREADS": "1"})
    seconds = None
    for line in process.stdout:
        if "first step done" in line:
            seconds = time.perf_counter() - begin
    if process.wait() != 0 or seconds is None:
        raise SystemExit(f"failed: {command}")
    return seconds


def main():
    python = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/venv-torch/bin/python")
    with tempfile.TemporaryDirectory() as folder:
        peer = pathlib.Path(folder) / "peer.py"
        peer.write_text(PEER)
        print("ranks  trireme   torchrun   (median of 5 and of 3, seconds)")
        for ranks in (1, 2, 4, 8):
            ours = [seconds_to_first_step(["mpiexec", "-n", str(ranks), str(BENCH), "test-gpt", str(ranks),
                                           "16", "fp32", "1", "1", str(ranks), "1", "1"])
                    for _ in range(5)]
            theirs = [seconds_to_first_step([str(python), "-m", "torch.distributed.run", "--standalone",
                                             f"--nproc-per-node={ranks}", str(peer)]) for _ in range(3)]
            print(f"{ranks:5}  {statistics.median(ours):7.2f}  {statistics.median(theirs):9.2f}", flush=True)


main()
