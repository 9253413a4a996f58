#!/usr/bin/env python3
"""Runs fault_program once per fault on 8 ranks and checks how the job ends.

fault_test.py PROGRAM [FAULT...]

For each fault: the status of the job, the number of lines that say why, the exact set of ranks that
these lines name, and words that they must hold. How long it took is bounded by the test's timeout.
"""
import re
import subprocess
import sys
import tempfile

RANKS = 8
# fault: (status, lines, ranks named, words)
EXPECTED = {
    "none": (0, 0, set(), []),
    "requeue": (75, 0, set(), []),
    "throw_one": (3, 1, {5}, ["shard 3 is truncated"]),
    "throw_two": (4, 2, {2, 5}, ["shard 3 is truncated", "step 4 is truncated"]),
    "throw_all": (2, 1, set(), ["model.layers is 0"]),
    "sleep": (76, 1, {3}, ["waits for nothing"]),
    "stop": (76, 1, {6}, ["does not answer"]),
    "stop_first": (76, 1, {0}, ["does not answer"]),
    "receive": (76, 1, {0, 2}, ["wait for each other", "receive 4 from 0 of pipeline"]),
    "hdf5": (76, 1, {4}, []),
    "hdf5_aggregator": (76, 1, {0}, ["H5Dwrite"]),
    "device": (0, 0, set(), []),
    "device_throw": (3, 1, {5}, ["shard 3 is truncated"]),
    "device_stuck": (76, 1, {3}, ["waits for nothing"]),
    "exit": (76, 1, {1}, ["exit(3)"]),
    "crash_in_finalize": (5, 0, set(), []),
    # Hydra kills the other ranks at once: nobody is left to speak.
    "kill": (None, 0, set(), []),
}


def run(program, fault, folder):
    """Status and the program's lines."""
    done = subprocess.run(["mpiexec", "-n", str(RANKS), program, fault, folder],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace")
    lines = [line for line in done.stdout.splitlines() if line.startswith("trireme: ")]
    return done.returncode, lines, done.stdout


def check(program, fault, folder):
    status, count, ranks, words = EXPECTED[fault]
    got_status, lines, output = run(program, fault, folder)
    named = {int(rank) for rank in re.findall(r"rank (\d+) \(", "\n".join(lines))}
    faults = []
    if status is None and got_status == 0:
        faults.append("status 0, expected a failure")
    if status is not None and got_status != status:
        faults.append(f"status {got_status}, expected {status}")
    if len(lines) != count:
        faults.append(f"{len(lines)} lines, expected {count}")
    if named != ranks:
        faults.append(f"ranks {sorted(named)} are named, expected {sorted(ranks)}")
    if status is not None and len(output.splitlines()) != count:
        faults.append("something else is printed")
    faults += [f"no line says '{word}'" for word in words if word not in "\n".join(lines)]
    print(f"{'ok  ' if not faults else 'FAIL'} {fault}: {'; '.join(faults or lines)}", flush=True)
    if faults:
        print(output, flush=True)
    return not faults


def main():
    program, chosen = sys.argv[1], sys.argv[2:] or list(EXPECTED)
    with tempfile.TemporaryDirectory() as folder:
        results = [check(program, fault, folder) for fault in chosen]
    sys.exit(0 if all(results) else 1)


main()
