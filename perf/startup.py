#!/usr/bin/env python3
"""Seconds from the launcher's start to the first finished step of a tiny model, and where they go.

usage: startup.py [--launcher mpiexec|srun] [--ranks N,N,...] [--repeats N] [--torch PYTHON]
       startup.py --checkpoint [--grid.tensor N] [--before PROGRAM] [--ranks N,N,...] [--repeats N]

srun wants an allocation or a cluster with as many free CPUs as ranks:
    tests/slurm/cluster.sh run --cpus 16 -- perf/startup.py --launcher srun
--torch: beside torchrun and PyTorch (DDP over gloo) of that Python, as perf/train_step.sh makes it.

--checkpoint: a model of 12 million parameters that goes on from a checkpoint of 145 MB, instead. Seconds until the first
step begins, and of these for the model and for the checkpoint (checking it, reading it); --before: those of another
program too, in turns with this one.

Columns: total, the median; of that run: launch (the launcher, until rank 0's process starts, and its line's way
back), then what the run says of itself: program (until main, twice loaded), MPI, world (ranks' places), grid
(communicators), data, model, folder and checkpoint together, step (of the slowest rank). cpu: seconds of processor time of all
processes to the end of the run, divided by the ranks (mpiexec alone: srun's ranks are not its children).
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "build/release/bin/trireme"
PHASES = ("program", "MPI", "world", "grid", "data", "model")
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
    print("step 1/ done", flush=True)
dist.destroy_process_group()
"""


def seconds_to_first_step(command):
    """Wall time until the line of the first step, and the processor time of all to the end."""
    begin = time.perf_counter()
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env={**os.environ, "OMP_NUM_THREADS": "1"})
    seconds = None
    for line in process.stdout:
        if re.match(r"step +1/", line):
            seconds = time.perf_counter() - begin
    errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0 or seconds is None:
        raise SystemExit(f"failed: {command}\n{errors}")
    return seconds, usage.ru_utime + usage.ru_stime


def trireme(launcher, ranks, folder, number):
    launch = ["mpiexec", "-n", ranks]
    if launcher == "srun":
        launch = ["srun", "--mpi=pmi2", f"--nodes={min(ranks, 4)}", f"--ntasks={ranks}"]
    run = folder / f"run-{ranks}-{number}"
    seconds, cpu = seconds_to_first_step([*launch, PROGRAM, "train", "--config", folder / "run.ini", "--run.folder", run])
    start = json.loads((run / "events.jsonl").read_text().splitlines()[0])
    phases = {name: float(value) for name, value in re.findall(r"(\w+) (\d+\.\d+) s", start["detail"])}
    step = json.loads((run / "metrics.jsonl").read_text().splitlines()[0])["step_s"]
    row = [seconds, seconds - start["seconds"] - step, *(phases[name] for name in PHASES)]
    row += [start["seconds"] - sum(phases[name] for name in PHASES), step, cpu / ranks]
    return row


def resume(program, ranks, folder, number, tensor):
    run = folder / f"resumed-{ranks}-{number}-{program.stat().st_ino}"
    tensor = min(tensor, ranks)
    # The run does one step and writes a checkpoint. The time of neither counts.
    command = ["mpiexec", "-n", ranks, program, "train", "--config", folder / "run.ini", "--run.folder", run,
               "--run.resume", folder / "first/checkpoints/step-00000001.h5", "--grid.tensor", tensor]
    subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"})
    start = json.loads((run / "events.jsonl").read_text().splitlines()[0])
    shutil.rmtree(run)
    phases = dict(re.findall(r"(\w+) (\d+\.\d+) s", start["detail"]))
    return start["seconds"], float(phases["model"]), float(phases["checkpoint"])


def with_checkpoint(given, folder):
    programs = [given.before.resolve(), PROGRAM] if given.before else [PROGRAM]
    write_configuration(folder, programs[0], "layers = 15\nwidth = 256\nheads = 8\ncontext = 16\n")
    subprocess.run([programs[0], "train", "--config", folder / "run.ini", "--run.steps", "1", "--run.folder", folder / "first"],
                   check=True, stdout=subprocess.DEVNULL)
    print("| ranks |" + " total | model | checkpoint |" * len(programs))
    print("|---" * (1 + 3 * len(programs)) + "|")
    for ranks in map(int, given.ranks.split(",")):
        rows = [[] for _ in programs]
        for number in range(given.repeats):
            for program, row in zip(programs, rows):
                row.append(resume(program, ranks, folder, number, given.tensor))
        cells = [f"{statistics.median(column):.2f}" for row in rows for column in zip(*row)]
        print(f"| {ranks} | " + " | ".join(cells) + " |", flush=True)


def write_configuration(folder, program=PROGRAM, model="layers = 2\nwidth = 32\nheads = 2\ncontext = 16\n"):
    text = "".join(f"Line {i} of a text that stands for a corpus.\n" for i in range(2000))
    (folder / "text.txt").write_text(text)
    subprocess.run([program, "prepare", folder / "text.txt", "--output", folder / "data", "--tokenizer", "byte"],
                   check=True, stdout=subprocess.DEVNULL)
    (folder / "run.ini").write_text(
        f"[model]\n{model}[batch]\nglobal = 64\nmicro = 1\n"
        f"[data]\ntrain = {folder}/data/train.h5\n[run]\nsteps = 2\nthreads = 1\n[log]\nevery = 1\n")


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].removeprefix("usage: "))
    parser.add_argument("--launcher", choices=("mpiexec", "srun"), default="mpiexec")
    parser.add_argument("--ranks", default="1,2,4,8,16,32,64")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--torch")
    parser.add_argument("--checkpoint", action="store_true")
    parser.add_argument("--grid.tensor", dest="tensor", type=int, default=1)
    parser.add_argument("--before", type=pathlib.Path)
    given = parser.parse_args()
    if given.checkpoint:
        with tempfile.TemporaryDirectory() as name:
            return with_checkpoint(given, pathlib.Path(name))
    names = ("total", "launch", *PHASES, "folder", "step", "cpu")
    print("| ranks | " + " | ".join(names) + (" | torchrun |" if given.torch else " |"))
    print("|---" * (len(names) + (2 if given.torch else 1)) + "|")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_configuration(folder)
        (folder / "peer.py").write_text(PEER)
        for ranks in map(int, given.ranks.split(",")):
            rows = sorted(trireme(given.launcher, ranks, folder, i) for i in range(given.repeats))
            row = rows[len(rows) // 2]
            row[-1] = statistics.median(one[-1] for one in rows)
            cells = [f"{value:.2f}" for value in row]
            if given.launcher == "srun":
                cells[-1] = ""
            if given.torch:
                peer = [given.torch, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
                theirs = [seconds_to_first_step([*peer, folder / "peer.py"])[0] for _ in range(given.repeats)]
                cells.append(f"{statistics.median(theirs):.2f}")
            print(f"| {ranks} | " + " | ".join(cells) + " |", flush=True)


main()
