"""What the tests on a Slurm cluster share: the cluster, jobs, and the program `trireme`."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

SCRIPT = Path(__file__).with_name("cluster.sh")
SKIPPED = 77
# Jobs in these states run no more, and will not again.
ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL",
         "DEADLINE", "OUT_OF_MEMORY"}


def clean_environment():
    """Ours, without what another scheduler or launcher may have left in it."""
    return {name: value for name, value in os.environ.items()
            if not name.startswith(("SLURM_", "SRUN_", "SBATCH_", "PMI_", "UCX_"))}


class NoCluster(unittest.SkipTest, SystemExit):
    """Within a test it skips the test; outside of tests it ends the file as skipped."""

    def __init__(self, said):
        super().__init__(said)
        self.code = SKIPPED
        print("skipped:", said.strip(), file=sys.stderr)


class _Result(unittest.TextTestResult):
    passed = 0

    def addSuccess(self, test):
        super().addSuccess(test)
        self.passed += 1


class _Runner(unittest.TextTestRunner):
    resultclass = _Result


def main():
    """unittest.main, but with the status of a skipped file where tests were skipped and none passed or failed."""
    result = unittest.main(testRunner=_Runner, exit=False).result
    if result.wasSuccessful() and result.skipped and not result.passed:
        print("skipped:", result.skipped[0][1].strip())
        sys.exit(SKIPPED)
    sys.exit(not result.wasSuccessful())


class Cluster:
    """`with Cluster("--nodes", "2") as cluster:` Where no cluster can be made the test ends as skipped."""

    def __init__(self, *options):
        self.options = options
        self.folder = Path()
        self.environment = {}

    def __enter__(self):
        # Ours to remove, and not in the way of cluster.sh, which makes one of its own inside.
        self.scratch = Path(tempfile.mkdtemp(prefix="trireme_slurm."))
        self.scratch.chmod(0o755)
        self.folder = self.scratch / "cluster"
        done = subprocess.run([SCRIPT, "up", "--folder", self.folder, *self.options],
                              env=clean_environment(), stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=60, check=False)
        if done.returncode != 0:
            shutil.rmtree(self.scratch, ignore_errors=True)
            if done.returncode == SKIPPED:
                raise NoCluster(done.stderr)
            print(done.stderr, end="", file=sys.stderr)
            raise RuntimeError(f"cluster.sh up ended with {done.returncode}")
        self.environment = {**clean_environment(), "SLURM_CONF": str(self.folder / "slurm.conf")}
        return self

    def __exit__(self, *_):
        subprocess.run([SCRIPT, "down", "--folder", self.folder], timeout=60, check=True)
        shutil.rmtree(self.scratch, ignore_errors=True)

    def call(self, *command, status=0, environment=None, timeout=60):
        """Standard output of a command on the submitting host."""
        done = subprocess.run([*map(str, command)], env={**self.environment, **(environment or {})},
                              cwd=self.scratch, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=timeout, check=False)
        if done.returncode != status:
            raise AssertionError(f"{command} ended with {done.returncode}, not {status}:\n"
                                 f"{done.stdout}{done.stderr}")
        return done.stdout

    def sbatch(self, script, *options):
        """Submits the text of a script; its id. The job's output: `log(id)`."""
        path = self.scratch / f"job_{time.monotonic_ns()}.sh"
        path.write_text(script, encoding="utf-8")
        return self.call("sbatch", "--parsable", "--output", self.scratch / "%j.log", *options, path).strip()

    def log(self, job):
        path = self.scratch / f"{job}.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def job(self, job):
        """What `scontrol show job` knows of it: {"JobState": "RUNNING", "Restarts": "1", ...}."""
        words = self.call("scontrol", "--oneliner", "show", "job", job).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def resume_nodes(self, reason=""):
        """Brings back the nodes that are drained for a reason that begins so, as an administrator would."""
        for line in self.call("sinfo", "-h", "-N", "-p", "batch", "-t", "drain", "-o", "%N %E").splitlines():
            node, why = line.split(" ", 1)
            if why.startswith(reason):
                self.call("scontrol", "update", f"NodeName={node}", "State=RESUME")

    def wait_for(self, what, condition, seconds=90, show=lambda: ""):
        """Waits until `condition()` is true, and returns its value."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if value := condition():
                return value
            time.sleep(0.1)
        raise AssertionError(f"waited {seconds} s for {what}\n{show()}\n{self.describe()}")

    def describe(self):
        """What Slurm thinks, and the end of what its controller wrote down."""
        said = ""
        for command in (["sinfo", "-N", "-h"], ["squeue"], ["squeue", "--steps"]):
            done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=30,
                                  check=False)
            said += done.stdout + done.stderr
        log = self.folder / "log/slurmctld.log"
        return said + "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-30:])

    def wait_for_state(self, job, states, seconds=90):
        """What is known of the job once it is in one of these states."""
        states = {states} if isinstance(states, str) else set(states)

        def reached():
            now = self.job(job)
            if now["JobState"] in ENDED and now["JobState"] not in states:
                raise AssertionError(f"job {job} is {now['JobState']}, not {states}:\n{self.log(job)}")
            return now if now["JobState"] in states else None
        return self.wait_for(f"job {job} to be {states}", reached, seconds, lambda: self.log(job))


class Program:
    """`trireme` with data and a small model, in a folder of its own."""

    MODEL = ("--model.layers 2 --model.width 32 --model.heads 4 --model.context 16 --batch.global 12 "
             "--batch.micro 2 --model.dropout 0.1 --optim.lr 3e-3 --schedule.name constant "
             "--log.every 1000 --eval.every 0 --comm.timeout 30 --threads 1").split()

    def __init__(self, path, folder):
        self.path = Path(path).resolve()
        self.folder = Path(folder)
        words = [f"{a}{b}" for a in ("ro", "sa", "mi", "te", "lu") for b in ("wing", "ls", "st", "r")]
        text = " ".join(words[(i * i + i // 7) % len(words)] for i in range(6000))
        (self.folder / "text.txt").write_text(text, encoding="utf-8")
        subprocess.run([self.path, "prepare", "--input", self.folder / "text.txt", "--output",
                        self.folder / "data", "--tokenizer", "byte"], check=True, capture_output=True,
                       env=clean_environment())

    def train(self, run, *more):
        """The words of the command that trains in the run folder of this name."""
        flags = ["--data.train", str(self.folder / "data/train.h5"), "--run.folder",
                 str(self.folder / run), *self.MODEL, *map(str, more)]
        last = dict(zip(flags[::2], flags[1::2]))  # a flag may be given once only
        return [str(self.path), "train", *(word for pair in last.items() for word in pair)]

    def steps(self, run):
        """How many steps the run's metrics tell of so far."""
        path = self.folder / run / "metrics.jsonl"
        return path.read_text(encoding="utf-8").count("\n") if path.exists() else 0

    def curve(self, run):
        """What of each step does not depend on the clock."""
        lines = (self.folder / run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        keys = ("step", "loss", "grad_norm", "lr", "tokens")
        return [{key: value for key, value in json.loads(line).items() if key in keys} for line in lines]
