#!/usr/bin/env python3
"""System calls fail under every command, and the program neither loses nor forgets anything.

An undisturbed run of each command is recorded: which system calls it makes on which files that it was given or
makes. From these pairs some are drawn by a seed, and the command runs again while the system refuses that call on that
file. Then the exit status is a documented one that blames no fault of the program, nothing is superseded, nothing is
gone or changed that an undisturbed run keeps, and the undisturbed repeat makes the same bytes as an undisturbed run.

usage: failing_calls_test.py TRIREME [--seed N] [--seconds N] [--only COMMAND] [--case NUMBER]

Needs strace. TRIREME_TESTS=full takes every pair; otherwise as many as fit into some seconds.
"""
import argparse
import hashlib
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
import made_pictures  # noqa: E402
from cli_testing import LAUNCHER  # noqa: E402

CALLS = {  # what fails: the calls of the system that do it, and the errors that it may give
    "open": ("openat", ("EIO", "EACCES", "ESTALE", "ENOTDIR", "EMFILE")),
    "stat": ("newfstatat,statx", ("EIO", "EACCES", "ESTALE", "ENOTDIR")),
    "list": ("getdents64", ("EIO", "ESTALE")),
    "read": ("read,pread64,readv", ("EIO", "ESTALE")),
    "write": ("write,pwrite64,writev", ("ENOSPC", "EIO", "EDQUOT")),
    "sync": ("fsync,fdatasync", ("EIO", "ENOSPC")),
    "rename": ("rename,renameat,renameat2", ("EACCES", "EIO", "ENOSPC")),
    "remove": ("unlink,unlinkat,rmdir", ("EACCES", "EIO")),
}
KIND_OF = {call: kind for kind, (calls, _) in CALLS.items() for call in calls.split(",")}
DOCUMENTED = {0, 2, 3, 4, 5, 6, 71, 75, 76}

GPT = ("--model.layers 1 --model.width 16 --model.heads 2 --model.context 16 --batch.global 4 --batch.micro 2 "
       "--data.train data/train.h5 --data.validation data/validation.h5 --eval.every 2 --eval.batches 1 "
       "--checkpoint.every 2 --log.tensorboard true --run.threads 1 ").split()
VIT = ("--model.family vit --model.preset vit-tiny-cifar --model.layers 1 --model.patch 8 --model.image 24 "
       "--batch.global 4 --batch.micro 4 --data.train pictures/train.h5 --run.threads 1 ").split()
SCALE = ("scale --data.train data/train.h5 --output study --nodes 1 --launcher mpiexec --model.layers 1 "
         "--model.width 16 --model.heads 2 --model.context 16 --batch.global 4 --batch.micro 2 --threads 1 --steps 3 "
         "--warmup 1").split()
BYTES = "--tokenizer byte --threads 1 --validation tail:2000".split()
SETUP = (
    ["prepare", "text.txt", "--output", "data", *BYTES],
    ["prepare", "--images", "sorted", "--output", "pictures", "--threads", "1", "--validation", "class:0.25"],
    ["train", *GPT, "--run.folder", "run", "--run.steps", "4"],
    ["train", *VIT, "--run.folder", "seen", "--run.steps", "2"],
    ["export", "--checkpoint", "run", "--output", "weights"],
    SCALE,
)
# Name, arguments, standard input.
COMMANDS = (
    ("train anew", ["train", *GPT, "--run.folder", "new", "--run.steps", "2"], ""),
    ("train on", ["train", *GPT, "--run.folder", "run", "--run.steps", "6"], ""),
    ("train by its file", ["train", "--config", "run/config.ini", "--run.steps", "5"], ""),
    ("train from weights", ["train", *GPT, "--run.folder", "new", "--run.steps", "1", "--run.start_from", "run"], ""),
    ("train from a branch", ["train", *GPT, "--run.folder", "new", "--run.steps", "3", "--run.resume",
                             "run/checkpoints/step-00000002.h5"], ""),
    ("train with the same bits", ["train", *GPT, "--run.folder", "new", "--run.steps", "1", "--run.same_bits",
                                  "true"], ""),
    ("train on pictures", ["train", *VIT, "--run.folder", "seen", "--run.steps", "3"], ""),
    ("eval", ["eval", "--checkpoint", "run", "--data", "data/validation.h5"], ""),
    ("generate", ["generate", "--checkpoint", "run", "--tokens", "3"], "Line\nof text\n"),
    ("predict", ["predict", "--checkpoint", "seen", "--input", "sorted", "--json", "said.jsonl"], ""),
    ("prepare text", ["prepare", "text.txt", "--output", "other", *BYTES], ""),
    ("prepare text again", ["prepare", "text.txt", "--output", "data", *BYTES, "--seed", "2"], ""),
    ("prepare a folder", ["prepare", "texts", "--output", "other", "--tokenizer", "bpe:300", "--threads", "1"], ""),
    ("prepare pictures", ["prepare", "--images", "sorted", "--output", "other", "--threads", "1"], ""),
    ("import", ["import", "--from", "weights", "--output", "new"], ""),
    ("export", ["export", "--checkpoint", "run", "--output", "other"], ""),
    ("export a graph", ["export", "--checkpoint", "run", "--output", "other", "--format", "onnx"], ""),
    ("checkpoint list", ["checkpoint", "list", "run"], ""),
    ("checkpoint inspect", ["checkpoint", "inspect", "run"], ""),
    ("checkpoint verify", ["checkpoint", "verify", "run"], ""),
    ("checkpoint prune", ["checkpoint", "prune", "run", "--superseded", "true"], ""),
    ("data list", ["data", "list", "data"], ""),
    ("data verify", ["data", "verify", "data"], ""),
    ("top", ["top", "run"], ""),
    ("top, a page", ["top", "run", "--html", "page.html"], ""),
    ("memory", ["memory", "--config", "run/config.ini", "--json", "memory.json"], ""),
    ("job", ["job", "single_node", "--config", "run/config.ini", "--site", "site.ini", "--output", "job.sh"], ""),
    ("topo show", ["topo", "show", "--slurm", "topology.conf", "--json", "fabric.json"], ""),
    ("topo order", ["topo", "order", "--slurm", "topology.conf", "--grid", "2x1x1"], ""),
    ("scale", SCALE, ""),
)
# What each run writes anew with times in it, or about itself.
OF_THE_MOMENT = re.compile(r"(^|/)(events\.jsonl|metrics\.jsonl|ranks\.json|lease[^/]*|communication\.json|branch\.json|"
                           r".*\.html|events\.out\.tfevents[^/]*)$|^study/")
# What these say depends on the files alone.
SAY_THE_SAME = ("eval", "generate", "checkpoint", "data", "memory", "topo")


def unquoted(text):
    return text.encode().decode("unicode_escape")


class Calls:
    """How often each pair of a kind of call and a file occurs, and the spellings of the file's name."""
    LINE = re.compile(r"^\d+ +(?P<call>[a-z0-9_]+)\((?P<rest>.*)")

    def __init__(self, log, work):
        self.spellings, self.pairs = {}, {}
        for line in log.read_text(errors="replace").splitlines():
            found = self.LINE.match(line)
            if not found or found["call"] not in KIND_OF:
                continue
            names = re.findall(r'"((?:[^"\\]|\\.)*)"', found["rest"]) if "at" in found["call"] or found["call"] in (
                "rename", "unlink", "rmdir", "statx") else []
            descriptor = re.match(r"(?:AT_FDCWD|\d+)<([^>]*)>", found["rest"])
            for name in names[:2] if found["call"].startswith("rename") else names[:1]:
                if name:
                    self.add(found["call"], work, os.path.join(work, unquoted(name)), unquoted(name))
            if not names or names[0] == "":
                if descriptor:
                    self.add(found["call"], work, unquoted(descriptor[1]), unquoted(descriptor[1]))

    def add(self, call, work, path, spelling):
        path = os.path.normpath(path)
        # Where a program has an empty part in its path of libraries, the loader looks for them here.
        if path != work and path.startswith(work) and ".so" not in path:
            pair = (KIND_OF[call], path[len(work) + 1:])
            self.pairs[pair] = self.pairs.get(pair, 0) + 1
            self.spellings.setdefault(path[len(work) + 1:], set()).update((spelling, path))


def said(done):
    """Standard output without the speeds in it."""
    return re.sub(rb"(?m)^tokens/s .*\n", b"", done.stdout)


def contents(folder):
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            found[str(path.relative_to(folder))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


class Bench:
    """A folder `work` of a fresh state, in which the program runs."""

    def __init__(self, program, scratch):
        self.program, self.scratch = program, scratch
        self.work, self.fresh = scratch / "work", scratch / "fresh"
        own = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHER)}
        self.environment = {**own, "TRIREME_FILE_PATIENCE": "0.3", "TRIREME_LEASE_SILENCE": "1",
                            "OMP_NUM_THREADS": "1", "UCX_NET_DEVICES": "lo"}

    def run(self, arguments, text, before=()):
        return subprocess.run([*before, str(self.program), *arguments], input=text.encode(), cwd=self.work,
                              env=self.environment, capture_output=True, timeout=60, check=False)

    def make_fresh(self):
        self.work.mkdir()
        (self.work / "text.txt").write_text("".join(f"Line {i} of a text.\n" for i in range(600)), encoding="utf-8")
        for part in ("a", "b"):
            (self.work / "texts").mkdir(exist_ok=True)
            (self.work / "texts" / f"{part}.txt").write_text("".join(f"A text called {part} with the number {i * 7919 % 1000}.\n" for i in range(300)), encoding="utf-8")
        made_pictures.write_folder(self.work / "sorted", 8)
        (self.work / "topology.conf").write_text("SwitchName=a Nodes=n1,n2\n", encoding="utf-8")
        (self.work / "site.ini").write_text("[slurm]\npartition = batch\n", encoding="utf-8")
        for arguments in SETUP:
            done = self.run(arguments, "")
            if done.returncode != 0:
                sys.exit(f"setting up: {' '.join(arguments)}: {done.returncode}: {done.stderr.decode()}")
        self.work.rename(self.fresh)

    def restore(self):
        shutil.rmtree(self.work, ignore_errors=True)
        shutil.copytree(self.fresh, self.work, symlinks=True)

    def undisturbed(self, arguments, text):
        """The pairs of calls and files, the output, and what lies in the folder afterwards."""
        self.restore()
        log = self.scratch / "calls"
        every = ",".join(calls for calls, _ in CALLS.values())
        done = self.run(arguments, text, ["strace", "-f", "--seccomp-bpf", "-y", "-s", "4096", "-o", log, "-e",
                                          f"trace={every}", "-e", "signal=none"])
        return Calls(log, str(self.work)), done, contents(self.work)


class Command:
    """What is known of a command from undisturbed runs."""

    def __init__(self, bench, name, arguments, text):
        self.bench, self.name, self.arguments, self.text = bench, name, arguments, text
        self.before = contents(bench.fresh)
        calls, first, after = bench.undisturbed(arguments, text)
        again, second, after_again = bench.undisturbed(arguments, text)
        if first.returncode != 0 or second.returncode != 0:
            sys.exit(f"{name}: ends with {first.returncode} undisturbed: {first.stderr.decode()}")
        # Names with a process's number in them are others each time.
        self.pairs = {pair: min(count, again.pairs[pair]) for pair, count in sorted(calls.pairs.items())
                      if pair in again.pairs}
        self.spellings = calls.spellings
        self.after = {name: digest for name, digest in after.items() if after_again.get(name) == digest and
                      not OF_THE_MOMENT.search(name)}
        self.supersedes = any("superseded" in name for name in after)
        # These an undisturbed run leaves as they are. A page says the second in which it was written.
        self.kept = {name: digest for name, digest in self.before.items()
                     if after.get(name) == digest and not name.endswith(".html")}
        # An undisturbed run may replace these, or append to them.
        self.left = set(self.before) & set(after)
        self.output = said(first) if name.startswith(SAY_THE_SAME) else None
        if self.output not in (None, said(second)):
            sys.exit(f"{name}: says another thing each time: {said(first)} {said(second)}")

    def check(self, kind, path, error, when):
        """What is wrong after a run in which this call fails, as a list of lines."""
        bench, wrong = self.bench, []
        bench.restore()
        names = [word for spelling in sorted(self.spellings[path]) for word in ("-P", spelling)]
        calls = CALLS[kind][0]
        log = bench.scratch / "injected"
        try:
            done = bench.run(self.arguments, self.text,
                             ["strace", "-f", "--seccomp-bpf", "-o", log, *names, "-e", f"trace={calls}", "-e",
                              "signal=none", "-e", f"inject={calls}:error={error}:when={when}"])
        except subprocess.TimeoutExpired:
            return False, ["it hangs"]
        hit = "(INJECTED)" in log.read_text(errors="replace")
        words = done.stderr.decode(errors="replace").strip()
        if done.returncode not in DOCUMENTED:
            wrong.append(f"status {done.returncode}: {words[-300:]}")
        elif done.returncode != 0 and not words:
            wrong.append(f"status {done.returncode} without a word")
        now = contents(bench.work)
        if not self.supersedes and any("superseded" in name for name in now):
            wrong.append("something is superseded")
        for name, digest in self.kept.items():
            if now.get(name) != digest:
                wrong.append(f"{name} is {'changed' if name in now else 'gone'}")
        wrong += [f"{name} is gone" for name in sorted(self.left - set(now) - set(self.kept))
                  if not name.startswith("data/") or self.name != "prepare text again"]
        if done.returncode == 0:
            wrong += self.differences(now, "status 0, no word on standard error") if not words else []
            if not words and self.output not in (None, said(done)):
                wrong.append("status 0, no word on standard error, and another output")
        again = bench.run(self.arguments, self.text)
        words = again.stderr.decode(errors="replace").strip()
        if again.returncode != 0:
            refuses = "already" in words and self.name.startswith(("export", "import"))
            if not (refuses and done.returncode == 0):
                wrong.append(f"after status {done.returncode} the repeat ends with {again.returncode}: {words[-300:]}")
        else:
            wrong += self.differences(contents(bench.work), "after the repeat")
        return hit, wrong

    def differences(self, now, when):
        return [f"{when}: {name} {'differs' if name in now else 'is missing'}" for name, digest in self.after.items()
                if now.get(name) != digest]


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("program", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=25.0)
    parser.add_argument("--only", default="")
    parser.add_argument("--case", type=int)
    given = parser.parse_args()
    if not shutil.which("strace") or subprocess.run(["strace", "-o", os.devnull, "true"], check=False,
                                                    capture_output=True).returncode != 0:
        print("skipped: no strace that may trace")
        sys.exit(77)
    full = os.environ.get("TRIREME_TESTS") == "full"
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(given.program.resolve(), Path(scratch).resolve())
        bench.make_fresh()
        commands = [Command(bench, *command) for command in COMMANDS if command[0].startswith(given.only)]
        cases = []
        for number, command in enumerate(commands):
            for pair, count in command.pairs.items():
                draw = random.Random(f"{given.seed} {command.name} {pair}")
                first = draw.randint(1, count)
                cases.append((command, *pair, draw.choice(CALLS[pair[0]][1]), draw.choice(("1+", str(first), f"{first}+"))))
        if not full and given.case is None:
            random.Random(given.seed).shuffle(cases)
        numbered = list(enumerate(cases))
        if given.case is not None:
            numbered = [numbered[given.case]]
        until = time.monotonic() + (1e9 if full else given.seconds)
        ran = hits = failures = 0
        for number, (command, kind, path, error, when) in numbered:
            if time.monotonic() > until:
                break
            hit, wrong = command.check(kind, path, error, when)
            ran += 1
            hits += hit
            for line in wrong:
                print(f"case {number}: {command.name}: {kind} of {path} gives {error} ({when}): {line}", flush=True)
            failures += bool(wrong)
        print(f"{ran} of {len(cases)} pairs of a call and a file ({hits} hit) under {len(commands)} commands, seed "
              f"{given.seed}: {failures} failed")
        sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
