"""A rank is killed while a checkpoint is written: the last complete one is there and is used."""

import subprocess
import sys
import tempfile

program = sys.argv[1]
failures = []


def start(ranks, *arguments):
    return subprocess.run(
        ["mpiexec", "-n", str(ranks), program, *arguments],
        capture_output=True, text=True, timeout=60)


for ranks in (1, 2, 4):
    for when in ("begin", "middle", "rename"):
        with tempfile.TemporaryDirectory(prefix="trireme-") as folder:
            killed = start(ranks, folder, "write", when)
            after = start(1 if ranks > 1 else 2, folder, "check")
            line = after.stdout.strip()
            print(f"{ranks} ranks, killed at {when}: status {killed.returncode}; {line}")
            expected = "step 1, 0 wrong bytes, 0 refused; 1 file after the next"
            if killed.returncode == 0 or after.returncode != 0 or line != expected:
                failures.append((ranks, when, killed.stderr, after.stderr))

for failure in failures:
    print("FAILED:", *failure, sep="\n")
sys.exit(1 if failures else 0)
