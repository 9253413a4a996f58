#!/usr/bin/env python3
"""cluster.sh: nodes that run jobs, several clusters side by side, and nothing that stays behind.

    python3 cluster_test.py
"""
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from slurm_testing import SCRIPT, SKIPPED, Cluster, clean_environment, main


def cluster(*arguments, environment=None, **options):
    return subprocess.run([SCRIPT, *map(str, arguments)], env=environment or clean_environment(),
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100,
                          check=False, **options)


def processes_of(folder):
    """Command lines of what runs and has the folder in its command line, environment or open files."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if process.joinpath("stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                continue
            command = process.joinpath("cmdline").read_bytes()
            # slurmstepd writes its title over its environment.
            files = " ".join(os.readlink(file) for file in process.glob("fd/*")
                             ) if command.startswith(b"slurmstepd") else ""
            if str(folder).encode() in command + process.joinpath("environ").read_bytes() + files.encode():
                found.append(command.replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


def links():
    """Names of namespaces and interfaces that clusters have made on this host."""
    names = []
    for command in (["ip", "netns", "list"], ["ip", "-o", "link", "show"]):
        text = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        names += re.findall(r"\bt[0-9a-f]{7}[a-z][0-9]*", text)
    return names


class ClusterTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="trireme_slurm."))
        self.folder.chmod(0o755)
        self.addCleanup(shutil.rmtree, self.folder, True)

    def expect_nothing_left(self, folder, name=""):
        self.assertEqual(processes_of(folder), [], name)
        self.assertFalse(folder.exists(), name)
        self.assertEqual(self.new_links(folder), [], name)

    def new_links(self, folder):
        """The new links of this cluster alone: others may run on this host."""
        number = subprocess.run(["cksum"], input=f"{folder}\n", capture_output=True, text=True,
                                check=True).stdout.split()[0]
        prefix = f"t{int(number) & 0xfffffff:07x}"
        return [name for name in links() if name.startswith(prefix)]

    def test_nodes_topology_gpus_and_partitions(self):
        with Cluster("--nodes", "3", "--cpus", "5", "--leaves", "2", "--gpus", "2") as one:
            self.assertEqual(one.call("sinfo", "-h", "-N", "-p", "batch", "-o", "%N %T %c %G").splitlines(),
                             [f"n{n} idle 5 gpu:2" for n in (1, 2, 3)])
            self.assertIn("n3", cluster("status", "--folder", one.folder).stdout)
            where = one.call("srun", "-N3", "printenv", "SLURM_TOPOLOGY_ADDR").split()
            self.assertEqual(sorted(where), ["spine1.leaf1.n1", "spine1.leaf1.n2", "spine1.leaf2.n3"])
            bound = one.call("srun", "-N1", "-n2", "--gpus-per-task=1", "--gpu-bind=map_gpu:0,1",
                             "printenv", "CUDA_VISIBLE_DEVICES").split()
            self.assertEqual(len(bound), 2)
            tiers = one.call("scontrol", "show", "partition", "--oneliner")
            self.assertRegex(tiers, r"(?m)^PartitionName=batch .*PriorityTier=1 ")
            self.assertRegex(tiers, r"(?m)^PartitionName=urgent .*PriorityTier=10 ")

    def test_nodes_have_a_quota_of_processor_time(self):
        folder = self.folder / "cluster"
        arguments = ("--nodes", "2", "--leaves", "1", "--quota", "0.25", "--folder", folder)
        for mode in ("plain", "network"):
            with self.subTest(mode=mode):
                # What a job's process finds: its group, and what the group may take of each 10 ms.
                done = cluster("run", *arguments, "--mode", mode, "--", "srun", "-N2", "-l", "bash", "-c",
                               'group=$(sed -n "s/^[0-9]*:\\([^:]*,\\)\\?cpu\\(,[^:]*\\)\\?://p" /proc/self/cgroup); '
                               'group=${group:-$(sed -n "s/^0:://p" /proc/self/cgroup)}; echo "$group"; '
                               'cat /sys/fs/cgroup/{cpu*,.}/"$group"/{cpu.max,cpu.cfs_quota_us} 2> /dev/null | head -1')
                if done.returncode == SKIPPED:
                    self.skipTest(done.stderr)
                self.assertEqual(done.returncode, 0, done.stderr)
                said = [line.split(": ", 1)[1] for line in sorted(done.stdout.splitlines())]
                groups, shares = sorted(line for line in said if "/" in line), [line for line in said if "/" not in line]
                self.assertEqual([group[-3:] for group in groups], ["-n1", "-n2"])
                self.assertEqual([share.split()[0] for share in shares], ["2500"] * 2)
                self.expect_nothing_left(folder)
                for group in groups:
                    # Groups of version 2 lie below the mount itself, of version 1 below the folder of a kind.
                    for pattern in (group.lstrip("/"), f"*/{group.lstrip('/')}"):
                        self.assertEqual(list(Path("/sys/fs/cgroup").glob(pattern)), [])

    def test_two_side_by_side(self):
        for mode in ("plain", "network"):
            with self.subTest(mode=mode):
                arguments = ("--nodes", "2", "--mode", mode)
                if mode == "network" and cluster("run", *arguments, "--", "true").returncode == SKIPPED:
                    self.skipTest("network mode is not possible here")
                with Cluster(*arguments) as first:
                    with Cluster(*arguments) as second:
                        second.call("srun", "-N2", "true")
                        self.assertNotEqual(first.call("scontrol", "show", "config"),
                                            second.call("scontrol", "show", "config"))
                    # The end of one is not felt by the other.
                    first.call("srun", "-N2", "true")
                    if mode == "network":
                        self.assertEqual(first.call("srun", "-N2", "-l", "hostname").split().count("n2"), 1)
                    folders = first.folder, second.folder
                for folder in folders:
                    self.expect_nothing_left(folder)

    def test_down_ends_jobs_and_may_be_repeated(self):
        folder = self.folder / "cluster"
        up = cluster("up", "--folder", folder, "--nodes", "2")
        self.assertEqual(up.stdout, f"export SLURM_CONF={folder}/slurm.conf\n", up.stderr)
        environment = {**clean_environment(), "SLURM_CONF": f"{folder}/slurm.conf"}
        again = cluster("up", "--folder", folder)
        # bad input: `cluster.sh`: a folder that is not empty, or holds a cluster | ... is not empty; ...
        # holds a cluster; end it: ... | 2
        self.assertEqual((again.returncode, again.stderr), (
            2, f"cluster.sh: {folder} holds a cluster; end it: cluster.sh down --folder {folder}\n"))
        # A batch job, one of its children that has left its process group, and a waiting srun.
        subprocess.run(["sbatch", "-o", "/dev/null", "--wrap", "setsid sleep 1000 & srun sleep 1000"],
                       env=environment, cwd=self.folder, check=True, capture_output=True)
        with subprocess.Popen(["srun", "-w", "n2", "sleep", "1000"], env=environment,
                              stderr=subprocess.DEVNULL) as waiting:
            end = time.monotonic() + 30
            while sum("sleep 1000" in p for p in processes_of(folder)) < 4 and time.monotonic() < end:
                time.sleep(0.1)
            # Who only has SLURM_CONF in his environment is left alone.
            with subprocess.Popen(["sleep", "1000"], env=environment) as bystander:
                for _ in range(2):
                    down = cluster("down", environment=environment)
                    self.assertEqual((down.returncode, down.stderr), (0, ""))
                self.assertIsNone(bystander.poll())
                bystander.kill()
            self.assertNotEqual(waiting.wait(timeout=10), 0)
        self.expect_nothing_left(folder)

    def test_interrupted_up_leaves_nothing(self):
        network = cluster("run", "--nodes", "1", "--leaves", "1", "--mode", "network", "--",
                          "true").returncode != SKIPPED
        for number, moment in ((signal.SIGTERM, 0.0), (signal.SIGINT, 0.06), (signal.SIGTERM, 0.12),
                               (signal.SIGHUP, 0.2), (signal.SIGTERM, 0.3)):
            folder = self.folder / f"cluster_{moment}"
            mode = "network" if network else "plain"
            with subprocess.Popen([SCRIPT, "up", "--folder", folder, "--mode", mode],
                                  env=clean_environment(), stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL,
                                  preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)) as up:
                while not folder.exists() and up.poll() is None:
                    time.sleep(0.001)
                time.sleep(moment)
                up.send_signal(number)
                status = up.wait(timeout=60)
            if status == 0:  # it was faster
                cluster("down", "--folder", folder)
            else:
                self.assertEqual(status, 128 + number)
            self.expect_nothing_left(folder, f"{number} after {moment} s: {status}")

    def test_killed_up_is_cleared_by_down(self):
        folder = self.folder / "cluster"
        with subprocess.Popen([SCRIPT, "up", "--folder", folder], env=clean_environment(),
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as up:
            while not (folder / "slurmctld.pid").exists() and up.poll() is None:
                time.sleep(0.001)
            up.kill()
        self.assertNotEqual(processes_of(folder), [])
        self.assertEqual(cluster("down", "--folder", folder).returncode, 0)
        self.expect_nothing_left(folder)

    def test_run_gives_the_commands_status_and_ends_with_it(self):
        folder = self.folder / "cluster"
        run = ("run", "--folder", folder, "--nodes", "1", "--leaves", "1", "--")
        done = cluster(*run, "sh", "-c", "srun hostname; exit 7")
        self.assertEqual(done.returncode, 7, done.stderr)
        self.assertEqual(done.stdout.split(), [os.uname().nodename.split(".")[0]])
        self.expect_nothing_left(folder)

    def test_interrupted_run_ends_the_command(self):
        folder = self.folder / "cluster"
        with subprocess.Popen([SCRIPT, "run", "--folder", folder, "--nodes", "1", "--leaves", "1", "--",
                               "sh", "-c", "echo started; srun sleep 1000"], env=clean_environment(),
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as run:
            self.assertEqual(run.stdout.readline(), b"started\n")
            run.terminate()
            self.assertEqual(run.wait(timeout=30), 143)
        self.expect_nothing_left(folder)

    def test_what_is_wrong_is_said(self):
        (self.folder / "file").touch()
        for arguments, message in (
                # bad input: `cluster.sh`: no or an unknown command, an unknown option, one without its
                # value | '...' is none of up, run, status, down; no option is called '...'; ... needs a
                # value | 2
                ((), "'' is none of up, run, status, down"),
                (("up", "--node", "3"), "no option is called '--node'"),
                (("up", "--nodes"), "--nodes needs a value"),
                # bad input: `cluster.sh`: a number, a rate, a burst or a quota out of range, more leaves than nodes | --nodes
                # must be a number from 1 to 200, not '...' | 2
                (("up", "--nodes", "0"), "--nodes must be a number from 1 to 200, not '0'"),
                (("up", "--nodes", "many"), "not 'many'"),
                (("up", "--nodes", "2", "--leaves", "3"), "3 leaves are more than 2 nodes"),
                (("up", "--mode", "fast"), "--mode must be plain or network, not 'fast'"),
                (("up", "--host-rate", "fast"), "--host-rate must be a rate such as"),
                (("up", "--burst", "96"), "--burst must be a size from 1k to 99999k, such as 96k, not '96'"),
                (("up", "--burst", "999999999k"), "--burst must be a size from 1k to 99999k, such as 96k, not '999999999k'"),
                (("up", "--quota", "0"), "--quota must be a number of processors from 0.1 to 999, such as 0.5, not '0'"),
                (("up", "--quota", "half"), "not 'half'"),
                (("up", "--folder", "here"), "--folder must be an absolute path"),
                (("up", "--folder", self.folder), f"{self.folder} is not empty"),
                (("run", "--nodes", "2"), "run needs a command"),
                (("down",), "down needs --folder D, or SLURM_CONF")):
            with self.subTest(arguments=arguments):
                done = cluster(*arguments)
                self.assertEqual(done.returncode, 2)
                self.assertRegex(done.stderr, r"\Acluster.sh: [^\n]+\n\Z")
                self.assertIn(message, done.stderr)
        done = cluster("status", "--folder", self.folder)
        self.assertEqual((done.returncode, done.stderr),
                         (1, f"cluster.sh: no cluster in {self.folder}\n"))

    def test_skips_where_rights_or_packages_are_missing(self):
        for tool in ("basename", "bash", "id"):
            (self.folder / tool).symlink_to(shutil.which(tool))
        bare = self.folder / "cluster.sh"
        bare.write_text(SCRIPT.read_text(encoding="utf-8").replace(":/usr/local/sbin:/usr/sbin:/sbin", ""),
                        encoding="utf-8")
        done = subprocess.run(["bash", bare, "up"], env={"PATH": str(self.folder)}, capture_output=True,
                              text=True, timeout=10, check=False)
        self.assertEqual(done.returncode, SKIPPED, done.stderr)
        self.assertIn("not installed: slurmctld slurmd munged", done.stderr)
        if os.geteuid() == 0:
            shutil.copy(SCRIPT, bare)
            for options in (("--mode", "network"), ("--gpus", "1"), ("--quota", "0.5")):
                done = subprocess.run([bare, "up", *options], user="nobody", group="nogroup",
                                      extra_groups=[], env=clean_environment(), capture_output=True,
                                      text=True, timeout=10, check=False)
                self.assertEqual(done.returncode, SKIPPED)
                # bad input: `cluster.sh`: packages or rights are missing | not installed: ...; --mode
                # network, --gpus and --quota need root; ... | 77
                self.assertEqual(done.stderr, "cluster.sh: --mode network, --gpus and --quota need root; this is "
                                              "the user nobody\n")

    def test_script_is_clean(self):
        if not shutil.which("shellcheck"):
            self.skipTest("shellcheck is not installed")
        done = subprocess.run(["shellcheck", SCRIPT], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)


if __name__ == "__main__":
    with Cluster("--nodes", "1", "--leaves", "1"):
        pass  # skips where none can be made
    main()
