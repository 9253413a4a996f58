#!/usr/bin/env python3
"""A kernel that spills registers must not compile: takes the very command that compiles the kernels
of src/ops and gives it one that needs more registers than it may have.

    python3 kernel_spills_test.py BUILD_FOLDER

Ends with 77, skipped, in a build without CUDA.
"""
import json
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

KERNEL = """
__global__ void needs_many_registers(const float* x, float* y) {
  float values[64];
#pragma unroll
  for (int i = 0; i < 64; ++i) values[i] = x[64 * threadIdx.x + i];
#pragma unroll
  for (int round = 0; round < 4; ++round) {
#pragma unroll
    for (int i = 0; i < 64; ++i) values[i] = values[i] * values[(i * 7 + 1) % 64] + values[63 - i];
  }
#pragma unroll
  for (int i = 0; i < 64; ++i) y[64 * threadIdx.x + i] = values[i];
}
"""


def command_of_kernels(build):
    for entry in json.loads(Path(build, "compile_commands.json").read_text(encoding="utf-8")):
        if entry["file"].endswith("src/ops/rotary_gpu.cu") and "nvcc" in entry["command"]:
            return shlex.split(entry["command"]), entry["file"]
    return None


def compiles(command, file, folder, more):
    source, output = Path(folder, "kernel.cu"), Path(folder, "kernel.o")
    source.write_text(KERNEL, encoding="utf-8")
    words = [str(source) if word == file else word for word in command]
    words[words.index("-o") + 1] = str(output)
    if "-MF" in words:
        words[words.index("-MF") + 1] = str(Path(folder, "kernel.d"))
    return subprocess.run(words + more, cwd=folder, capture_output=True, text=True, check=False)


def main():
    found = command_of_kernels(sys.argv[1])
    if found is None:
        print("skipped: this build has no CUDA")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        good = compiles(*found, folder, [])
        assert good.returncode == 0, good.stderr
        spilled = compiles(*found, folder, ["-maxrregcount=24"])
        assert spilled.returncode != 0, "a kernel that spills has compiled"
        assert "spill" in spilled.stdout + spilled.stderr, spilled.stderr


if __name__ == "__main__":
    main()
