#!/usr/bin/env python3
"""Runs nccl_fault_program once per fault on 4 ranks and checks how the job ends.

nccl_fault_test.py PROGRAM [FAULT...]

For each fault: the status of the job, the number of lines that say why, the exact set of ranks that
these lines name, and words that they must hold. How long it took is bounded by the test's timeout.
"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
import fault_testing  # noqa: E402

RANKS = 4
# fault: (status, lines, ranks named, words)
EXPECTED = {
    "none": (0, 0, set(), []),
    "host_only": (70, 1, set(), ["communicator grid was given a tensor of a GPU"]),
    # bad input: NCCL fails on a rank | rank 1 (...): NCCL could not carry out all_reduce of tensor: ... |
    # 71
    "call": (71, 1, {1}, ["NCCL could not", "all_reduce of tensor", "scripted error 2"]),
    "state": (71, 1, {3}, ["NCCL could not", "scripted error 2"]),
    "state_in_mpi": (71, 1, {3}, ["NCCL could not", "scripted error 2"]),
    "throw": (3, 1, {2}, ["shard 3 is truncated"]),
    "throw_slowly": (3, 1, {2}, ["shard 3 is truncated"]),
    # bad input: an abort of NCCL that does not return after a fault | rank 2 (...): after a fault,
    # communication between GPUs did not end within 10 s | 76
    "abort_stuck": (76, 1, {2}, ["did not end"]),
    "group_abort_stuck": (76, 1, {2}, ["did not end"]),
    "throw_stuck": (3, 1, {2}, ["shard 3 is truncated"]),
    "missing": (76, 1, {3}, ["waits for nothing"]),
    "missing_replay": (76, 1, {3}, ["waits for nothing"]),
    "replay_state": (71, 1, {3}, ["NCCL could not", "scripted error 2"]),
    "replay_throw": (3, 1, {2}, ["shard 3 is truncated"]),
    "sleep": (76, 1, {0}, ["waits for nothing", "on GPUs"]),
    # bad input: NCCL that differs between ranks, is too old, or is not there | rank 2 (...) has NCCL
    # 2.27.3, but rank 0 (...) has 2.28.9: all ranks need the same (...) | 71
    "version": (71, 1, {0, 2}, ["2.27.3", "2.28.9"]),
    # bad input: several ranks on one GPU with NCCL | ranks 0 and 1 on ... share one GPU (...), which NCCL
    # refuses: --comm.backend mpi lets them, or ... | 2
    "shared": (2, 1, set(), ["ranks 0 and 1", "--comm.backend mpi"]),
}

fault_testing.main(RANKS, EXPECTED)
