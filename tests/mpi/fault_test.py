#!/usr/bin/env python3
"""Runs fault_program once per fault on 8 ranks and checks how the job ends.

fault_test.py PROGRAM [FAULT...]

For each fault: the status of the job, the number of lines that say why, the exact set of ranks that
these lines name, and words that they must hold. How long it took is bounded by the test's timeout.
"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
import fault_testing  # noqa: E402

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
    "kill": (None, 0, set(), ["Killed (signal 9)"]),
}

fault_testing.main(RANKS, EXPECTED)
