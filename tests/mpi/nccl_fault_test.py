#!/usr/bin/env python3
"""Runs nccl_fault_program once per fault on 4 ranks and checks how the job ends.

nccl_fault_test.py PROGRAM [FAULT...]

For each fault: the status of the job, the number of lines that say why, the exact set of ranks that
these lines name, and words that they must hold. How long it took is bounded by the test's timeout.
"""
import re
import subprocess
import sys

RANKS = 4
# fault: (status, lines, ranks named, words)
EXPECTED = {
    "none": (0, 0, set(), []),
    "call": (71, 1, {1}, ["NCCL could not", "all_reduce of tensor", "scripted error 2"]),
    "state": (71, 1, {3}, ["NCCL could not", "scripted error 2"]),
    "state_in_mpi": (71, 1, {3}, ["NCCL could not", "scripted error 2"]),
    "throw": (3, 1, {2}, ["shard 3 is truncated"]),
    "throw_slowly": (3, 1, {2}, ["shard 3 is truncated"]),
    "abort_stuck": (76, 1, {2}, ["did not end"]),
    "group_abort_stuck": (76, 1, {2}, ["did not end"]),
    "throw_stuck": (3, 1, {2}, ["shard 3 is truncated"]),
    "missing": (76, 1, {3}, ["waits for nothing"]),
    "missing_replay": (76, 1, {3}, ["waits for nothing"]),
    "replay_state": (71, 1, {3}, ["NCCL could not", "scripted error 2"]),
    "sleep": (76, 1, {0}, ["waits for nothing", "on GPUs"]),
    "version": (71, 1, {0, 2}, ["2.27.3", "2.28.9"]),
    "shared": (2, 1, set(), ["ranks 0 and 1", "--comm.backend mpi"]),
}


def check(program, fault):
    status, count, ranks, words = EXPECTED[fault]
    done = subprocess.run(["mpiexec", "-n", str(RANKS), program, fault], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("trireme: ")]
    named = {int(rank) for rank in re.findall(r"rank (\d+) \(", "\n".join(lines))}
    faults = []
    if done.returncode != status:
        faults.append(f"status {done.returncode}, expected {status}")
    if len(lines) != count or len(done.stdout.splitlines()) != count:
        faults.append(f"{len(lines)} lines, expected {count}")
    if named != ranks:
        faults.append(f"ranks {sorted(named)} are named, expected {sorted(ranks)}")
    faults += [f"no line says '{word}'" for word in words if word not in "\n".join(lines)]
    print(f"{'ok  ' if not faults else 'FAIL'} {fault}: {'; '.join(faults or lines)}", flush=True)
    if faults:
        print(done.stdout, flush=True)
    return not faults


def main():
    program, chosen = sys.argv[1], sys.argv[2:] or list(EXPECTED)
    results = [check(program, fault) for fault in chosen]
    sys.exit(0 if all(results) else 1)


main()
