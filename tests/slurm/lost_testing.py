"""What the tests of lost ranks, nodes and switches share: jobs that run for ever, and what became of them."""
import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from slurm_testing import Cluster, Program, clean_environment

RUN = ("--run.steps", 10_000_000, "--comm.timeout", 6, "--checkpoint.every", 40, "--checkpoint.keep", 1000,
       "--log.every", 1000000, "--schedule.warmup", 0,
       "--model.width", 64, "--model.context", 32)


def environment_of(pid):
    try:
        text = Path(f"/proc/{pid}/environ").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    return dict(line.split("=", 1) for line in text.split("\0") if "=" in line)


class LostTest(unittest.TestCase):
    """Tests on a cluster with a network of its own; OPTIONS are those of cluster.sh."""
    OPTIONS = ()
    program = mpiexec = ""

    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(Cluster("--mode", "network", *cls.OPTIONS))
        cls.folder = Path(tempfile.mkdtemp(prefix="trireme_slurm."))
        cls.addClassCleanup(shutil.rmtree, cls.folder, True)
        cls.trireme = Program(cls.program, cls.folder)
        cls.site = cls.folder / "site.ini"
        cls.site.write_text("[slurm]\nextra = --exclusive\n[environment]\nvariables = UCX_TLS=tcp,self OMP_NUM_THREADS=1\n", encoding="utf-8")

    def submit(self, run, nodes, *more):
        flags = self.trireme.train(run, *RUN)[2:]
        said = self.cluster.call(self.trireme.path, "job", "several_nodes", *flags, "--site", self.site, "--nodes",
                                 nodes, "--time", 30, "--name", run, "--log", self.cluster.scratch / "%j.log",
                                 "--submit", *more)
        job = re.match(r"Submitted batch job (\d+)\n", said)[1]
        self.addCleanup(self.cancel, job)
        return job

    def cancel(self, job):
        self.cluster.call("scancel", job)
        self.cluster.wait_for(f"the end of job {job}", lambda: not self.cluster.call("squeue", "-h", "-j", job))

    def wait(self, what, job, condition, seconds=90):
        return self.cluster.wait_for(what, condition, seconds, lambda: self.cluster.log(job))

    def wait_for_steps(self, run, job, count):
        """Waits for so many more steps than there are now."""
        aim = self.trireme.steps(run) + count
        self.wait(f"{aim} steps of {run}", job, lambda: self.trireme.steps(run) >= aim)

    def wait_for_restart(self, run, job, number):
        """Waits until the run has gone on for the number-th time, and some steps beyond; returns its events."""
        self.wait(f"restart {number} of {run}", job, lambda: len(self.events(run, "restart")) >= number, 90)
        print(f"{run}: {self.events(run, 'restart')[number - 1]['detail']}")  # perf/RESULTS.md
        self.wait_for_steps(run, job, 50)

    def events(self, run, kind):
        path = self.folder / run / "events.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [event for event in map(json.loads, lines) if event["event"] == kind]

    def lost_nodes(self, run):
        """The nodes of each failure that the job recorded. A rank that sees another vanish may have recorded the same
        one as it ended, before the job does; it knows of no nodes."""
        return [event["nodes"] for event in self.events(run, "failure") if "nodes" in event]

    def ranks(self, job):
        """{rank: (process, node)} of the step that runs now."""
        found = {}
        for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
            of = environment_of(pid)
            if of.get("SLURM_JOB_ID") == job and of.get("SLURM_CONF") == self.cluster.environment["SLURM_CONF"] \
                    and "PMI_RANK" in of and os.path.realpath(f"/proc/{pid}/exe") == str(self.trireme.path):
                found.setdefault(int(of["SLURM_STEP_ID"]), {})[int(of["SLURM_PROCID"])] = \
                    (pid, of["SLURMD_NODENAME"])
        return found[max(found)]

    def stepd_of(self, pid):
        return int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[1])

    def link(self, node, state):
        subprocess.run(["ip", "link", "set", f"{self.prefix()}h{node[1:]}", state], check=True)

    def prefix(self):
        """What the names of the cluster's links and namespaces begin with."""
        text = (self.cluster.folder / "slurm.conf").read_text(encoding="utf-8")
        return re.search(r"ClusterName=(\w+)", text)[1]

    def daemon(self, *command):
        subprocess.run(command, check=True, env={**self.cluster.environment,
                                                 "TRIREME_CLUSTER_DAEMON": str(self.cluster.folder)},
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def end_daemon(self, name, how):
        pid = int((self.cluster.folder / f"{name}.pid").read_text(encoding="utf-8"))
        os.kill(pid, how)
        self.cluster.wait_for(f"the end of {name}", lambda: not Path(f"/proc/{pid}").exists())
        return pid

    def expect_curve(self, run, replicas, same_until=None):
        """Expects the curve of a run that lost nothing: the same bits up to a step, and for a hundred steps more to
        rounding."""
        curve = self.trireme.curve(run)
        self.assertEqual([step["step"] for step in curve], list(range(1, len(curve) + 1)))
        same = len(curve) if same_until is None else same_until
        curve = curve[:same + 100]  # rounding grows with the steps
        whole = f"whole-{run}"
        flags = self.trireme.train(whole, *RUN, "--run.steps", len(curve))
        subprocess.run([self.mpiexec, "-n", str(replicas), *flags], check=True, capture_output=True,
                       env=clean_environment(), timeout=120)
        expected = self.trireme.curve(whole)
        self.assertEqual(curve[:same], expected[:same])
        for one, other in zip(curve[same:], expected[same:]):
            self.assertAlmostEqual(one["loss"], other["loss"], delta=2e-3 * other["loss"])
