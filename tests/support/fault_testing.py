"""How a job ends that a test's program breaks on purpose, once per fault."""
import re
import subprocess
import sys
import tempfile


def check(program, ranks, fault, expected, folder):
    """Whether the job ended as `expected`: (status, lines, ranks named, words). A status of None
    stands for any but 0: the launcher ended the job, and the words are its own."""
    status, count, named_ranks, words = expected
    done = subprocess.run(["mpiexec", "-n", str(ranks), program, fault, folder], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                          check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("trireme: ")]
    named = {int(rank) for rank in re.findall(r"rank (\d+) \(", "\n".join(lines))}
    faults = []
    if status is None and done.returncode == 0:
        faults.append("status 0, expected a failure")
    if status is not None and done.returncode != status:
        faults.append(f"status {done.returncode}, expected {status}")
    if len(lines) != count:
        faults.append(f"{len(lines)} lines, expected {count}")
    if named != named_ranks:
        faults.append(f"ranks {sorted(named)} are named, expected {sorted(named_ranks)}")
    if status is not None and len(done.stdout.splitlines()) != count:
        faults.append("something else is printed")
    said = done.stdout if status is None else "\n".join(lines)
    faults += [f"no line says '{word}'" for word in words if word not in said]
    print(f"{'ok  ' if not faults else 'FAIL'} {fault}: {'; '.join(faults or lines)}", flush=True)
    if faults:
        print(done.stdout, flush=True)
    return not faults


def main(ranks, expected):
    """PROGRAM [FAULT...] of the command line: all faults, or those."""
    program, chosen = sys.argv[1], sys.argv[2:] or list(expected)
    with tempfile.TemporaryDirectory() as folder:
        results = [check(program, ranks, fault, expected[fault], folder) for fault in chosen]
    sys.exit(0 if all(results) else 1)
