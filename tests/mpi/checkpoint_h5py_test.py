"""Reads a checkpoint as io/CHECKPOINTS.md says: with h5py, in three lines. Status 77: skipped."""

import os
import subprocess
import sys
import tempfile

program, environment = sys.argv[1:3]
python = os.path.join(environment, "bin", "python3")

READER = '''
import sys
import h5py, numpy as np
path = sys.argv[1]

import h5py
with h5py.File(path) as file:
    weight = file["parameters/blocks.0.attention.query.weight"][:]

assert weight.dtype == np.float32 and weight.shape == (6, 4), weight
assert (weight == np.arange(24).reshape(6, 4)).all(), weight
file = h5py.File(path)
assert {name: file.attrs[name] for name in file.attrs} == {
    "format_version": 1, "step": 1000, "samples": 32000, "seed": 7,
    "config": "[model]\\nlayers=2\\n"}, dict(file.attrs)

# The checksum, as io/CHECKPOINTS.md defines it.
def mix(n):
    n = n + np.uint64(0x9E3779B97F4A7C15)
    n = (n ^ (n >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    n = (n ^ (n >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (n ^ (n >> np.uint64(31))) | np.uint64(1)

def checksum(tensor):
    word = np.frombuffer(tensor.tobytes(), "<u4").astype(np.uint64)
    at = np.arange(word.size, dtype=np.uint64)
    key = mix(np.uint64(2**32) + at // np.uint64(4096)) * mix(at % np.uint64(4096))
    return (key * word).sum(dtype=np.uint64)

names = file["checksums"].attrs["tensors"].split()
assert names == ["parameters/blocks.0.attention.query.weight"], names
with np.errstate(over="ignore"):
    for name, expected in zip(names, file["checksums"]):
        assert checksum(file[name][:]) == expected, name
print("read", weight.shape)
'''


def prepare():
    if not os.path.exists(python):
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    probe = [python, "-c", "import h5py, numpy"]
    if subprocess.run(probe, capture_output=True).returncode != 0:
        subprocess.run([python, "-m", "pip", "install", "--quiet", "h5py", "numpy"],
                       check=True, timeout=150)


try:
    prepare()
except (subprocess.SubprocessError, OSError) as error:
    print("SKIPPED: h5py cannot be installed here:", error)
    sys.exit(77)

with tempfile.TemporaryDirectory(prefix="trireme-") as folder:
    subprocess.run(["mpiexec", "-n", "2", program, folder], check=True)
    path = os.path.join(folder, "step-00001000.h5")
    sys.exit(subprocess.run([python, "-c", READER, path]).returncode)
