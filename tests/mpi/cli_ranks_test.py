#!/usr/bin/env python3
"""Runs the program on several ranks with input that is wrong: each fault is told once.

    python3 cli_ranks_test.py TRIREME MPIEXEC
"""
import json
import os
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
from cli_testing import ProgramTest, fabric_dump  # noqa: E402


class Ranks(ProgramTest):
    mpiexec = ""

    def refuse(self, status, message, *arguments):
        return self.expect_refusal(status, message, *arguments, before=[self.mpiexec, "-n", 4])

    def test_tells_wrong_arguments_once(self):
        # bad input: `trireme`: an unknown command | unknown command 'trian'; did you mean train? | 2
        self.refuse(2, "unknown command 'trian'; did you mean train?", "trian")
        # bad input: a flag that the command does not have | unknown flag --inptu; did you mean --input? | 2
        self.refuse(2, "did you mean --model.width?", "train", "--model.widht", 3)
        # bad input: `data`, `checkpoint`, `prepare --images` under a launcher of several processes | trireme data
        # is one process, but mpiexec started 4; start it alone | 2
        self.refuse(2, "trireme data is one process, but mpiexec started 4", "data", "list", "x")
        self.refuse(2, "trireme prepare --images is one process, but mpiexec started 4", "prepare", "x", "--output", "y",
                    "--images", "true")
        text = self.expect_done("train", "--help", before=[self.mpiexec, "-n", 4])
        self.assertEqual(text.count("usage: trireme train"), 1)

    def test_all_ranks_have_the_same_arguments(self):
        data = self.prepare() / "train.h5"
        train = ["train", "--model.preset", "test-gpt", "--data.train", data, "--run.steps", 1]
        bench = ["bench", "comm", "--to", "1K"]
        # bad input: ranks with different flags, or of another commit of the program | rank 1 has --run.seed 2, rank 0
        # has --run.seed 1: all ranks need the same flags | 2
        for first, second, line in (
                ([*train, "--run.seed", 1], [*train, "--run.seed", 2], "rank 1 has --run.seed 2, rank 0 has --run.seed 1"),
                (train, [*train, "--new.flag", 1], "rank 1 has --new.flag 1, rank 0 has no --new.flag"),
                ([*bench, "--json", "x"], bench, "rank 1 has no --json, rank 0 has --json x")):
            with self.subTest(line=line):
                done = self.run_program(*second, before=[self.mpiexec, "-n", 1, self.program, *first, ":", "-n", 1])
                self.assertEqual((done.returncode, done.stderr), (2, f"trireme: {line}: all ranks need the same flags\n"))
        # The same arguments in another order, and in the other way of writing them.
        self.expect_done("bench", "comm", "--to=1K", "--repeats", 2,
                         before=[self.mpiexec, "-n", 1, self.program, "bench", "comm", "--repeats", 2, "--to", "1K", ":",
                                 "-n", 1])

    def test_standard_output_that_cannot_be_written(self):
        self.prepare()
        small = ("--model.layers", 1, "--model.width", 16, "--model.heads", 2, "--model.context", 8, "--batch.global", 4,
                 "--batch.micro", 2, "--run.threads", 1, "--eval.every", 0, "--log.every", 1)
        train = ("train", *small, "--data.train", "data/train.h5", "--run.steps", 3, "--run.folder")
        full, closed, unread = ('exec "$@" > /dev/full', 'exec "$@" >&-', 'exec 3> >(true); sleep 0.2; exec "$@" >&3')

        def run(redirected, *command):
            return self.run_program(*command, before=[self.mpiexec, "-n", 2, "bash", "-c", redirected, "bash"])
        self.expect_done(*train, "run", before=[self.mpiexec, "-n", 2])
        commands = (("eval", "--checkpoint", "run", "--data", "data/train.h5", "--threads", 1),
                    ("generate", "--checkpoint", "run", "--prompt", "ab", "--tokens", 2, "--threads", 1, "--grid.tensor", 2),
                    ("export", "--checkpoint", "run", "--output", "exported{}"),
                    ("bench", "comm", "--to", "1K", "--repeats", 2), ("doctor", "--each"), (*train, "more{}"))
        for command in commands:
            for redirected, why in ((full, "No space left on device"), (closed, "Bad file descriptor"), (unread, None)):
                done = run(redirected, *(str(word).format(len(why or "")) for word in command))
                self.assertEqual(done.returncode, 5, (command, redirected, done.stderr))
                self.assertEqual([line for line in done.stderr.splitlines() if "standard output" in line],
                                 [f"trireme: standard output cannot be written: {why}"] if why else [], (command, redirected))
        # The run went on to its end, and says so, once.
        runs = list(self.folder.glob("more*"))
        self.assertEqual(len(runs), 3)
        for folder in runs:
            events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
            self.assertEqual(len([event for event in events if event["event"] == "output"]), 1, events)
            self.assertTrue((folder / "checkpoints" / "step-00000003.h5").exists())
        # Another status stays; the lines of one rank count, which is the first.
        self.assertEqual(run(full, "train", *small, "--data.train", "none.h5", "--run.folder", "new").returncode, 3)
        bench = ("bench", "comm", "--to", "1K", "--repeats", 2)
        self.expect_done(*bench, before=[self.mpiexec, "-n", 1, self.program, *bench, ":", "-n", 1, "bash", "-c", full, "bash"])

    def test_outputs_are_taken_before_the_work(self):
        for command in (("bench", "comm", "--json"), ("bench", "step", "--json"), ("topo", "probe", "--json"),
                        ("topo", "probe", "--network")):
            done = self.refuse(5, "none/x.partial: cannot be opened: No such file or directory", *command, "none/x")
            self.assertEqual(done.stdout, "", command)

    def test_the_start_has_a_limit(self):
        # bad input: a rank that ends before MPI starts, or cannot be reached | rank 0 of 2 (...): MPI has not started
        # within 300 s (TRIREME_MPI_INIT_LIMIT): a rank may have ended before it, or a node cannot be reached | 76
        bench = ["bench", "comm", "--to", "1K"]
        done = self.run_program(*bench, before=[self.mpiexec, "-n", 1, "sleep", 30, ":", "-n", 1],
                                environment={"TRIREME_MPI_INIT_LIMIT": "1"})
        self.assertEqual(done.returncode, 76, done.stderr)
        self.assertIn("rank 1 of 2", done.stderr)
        # bad input: a TRIREME_MPI_INIT_LIMIT that is no number | TRIREME_MPI_INIT_LIMIT=soon: must be a number of
        # seconds from 0.001 to 86400 | 2
        self.refuse_with({"TRIREME_MPI_INIT_LIMIT": "soon"}, "must be a number of seconds from 0.001 to 86400", *bench)

    def refuse_with(self, environment, message, *arguments):
        self.expect_refusal(2, message, *arguments, before=[self.mpiexec, "-n", 2], environment=environment)

    def test_a_suspended_job_is_no_hang(self):
        data = self.prepare() / "train.h5"
        command = [self.mpiexec, "-n", "2", self.program, "train", "--model.preset", "test-gpt", "--data.train", data,
                   "--run.threads", "1", "--run.steps", "100000000", "--log.every", "1", "--comm.timeout", "2",
                   "--check.copies", "0", "--checkpoint.every", "0"]
        with open(self.folder / "out", "w+", encoding="utf-8") as out:
            with subprocess.Popen([str(word) for word in command], stdout=out, stderr=out, cwd=self.folder) as job:
                while "\nstep " not in (self.folder / "out").read_text(encoding="utf-8"):
                    time.sleep(0.1)
                ranks = subprocess.run(["pgrep", "-P", subprocess.run(["pgrep", "-P", str(job.pid)], check=True, text=True,
                                                                      capture_output=True).stdout.strip()],
                                       check=True, text=True, capture_output=True).stdout.split()
                self.assertEqual(len(ranks), 2)
                for number, pause in ((signal.SIGSTOP, 4), (signal.SIGCONT, 1), (signal.SIGTERM, 0)):
                    for rank in ranks:
                        os.kill(int(rank), number)
                    time.sleep(pause)
                status = job.wait(100)
        self.assertEqual(status, 75, (self.folder / "out").read_text(encoding="utf-8")[-2000:])

    def test_tells_wrong_input_once(self):
        data = self.prepare() / "train.h5"
        model = ["--model.preset", "test-gpt", "--model.vocabulary", 257]
        # bad input: `train`: a grid that the ranks do not fill | grid 3 x 1 x 1 needs 3 ranks, and there
        # are 4: ... would fit | 2
        self.refuse(2, "tensor=3 needs a multiple of 3 ranks, and there are 4: 3 or 6 would fit",
                    "train", *model, "--data.train", data, "--grid.tensor", 3)
        self.refuse(2, "needs", "train", *model, "--data.train", data, "--grid.data", 2,
                    "--grid.tensor", 1, "--grid.pipeline", 1)
        self.refuse(3, "nowhere.h5", "train", *model, "--data.train", "nowhere.h5")
        self.refuse(2, "cuda", "train", *model, "--data.train", data, "--run.device", "cuda")

    def test_topo_probe_tells_leaves_apart(self):
        # Ranks of one machine that a launcher says are on different nodes.
        launched, probe = [self.mpiexec], ["topo", "probe", "--network", "rates.json", "--json", "probe.json"]
        for leaf, node in ((1, "n1"), (2, "n2"), (1, "n3"), (2, "n4")):
            launched += ["-n", 1, "-env", "SLURMD_NODENAME", node, "-env", "SLURM_TOPOLOGY_ADDR", f"spine.leaf{leaf}.{node}",
                         "-env", "SLURM_TOPOLOGY_ADDR_PATTERN", "switch.switch.node", self.program, *probe, ":"]
        text = self.run_program(*probe, before=launched[:-len(probe) - 2]).stdout
        self.assertIn("4 ranks on 4 nodes, 2 tiers of blocks, ", text)
        self.assertRegex(text, r"(?m)^across leaves +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+$")
        rates, data = (json.loads((self.folder / name).read_text()) for name in ("rates.json", "probe.json"))
        self.assertEqual((rates["hosts"], rates["tiers"]), (["n1", "n2", "n3", "n4"], [[0, 1, 0, 1]]))
        self.assertEqual(len(rates["distances"]), 3)
        self.assertTrue(all(each["flow"] > 0 and each["latency"] > 0 for each in rates["distances"]))
        self.assertGreater(rates["distances"][2]["block"], 0)
        # Collectives were timed by algorithms, among just these ranks, and explain says it.
        self.assertEqual({one["ranks"] for one in rates["collectives"]}, {4})
        times = {one["algorithm"]: one["seconds"] for one in rates["collectives"]
                 if (one["collective"], one["bytes"]) == ("all_reduce", 1024)}
        self.assertGreater(len(times), 1)
        self.assertRegex(text, r"(?m)^collective +bytes +chosen +predicted, us +measured, us +fastest\nall_reduce +1 KiB  \w+ ")
        for size in ("1K", "2K"):
            explained = self.expect_done("topo", "explain", "all_reduce", size, "--network", "rates.json", "--json", "why.json")
            self.assertEqual("no time was measured of this size; there are times of 1024, " in explained, size == "2K")
            measured = {one["algorithm"]: one["measured_s"] for one in json.loads((self.folder / "why.json").read_text())["candidates"]
                        if "measured_s" in one}
            self.assertEqual(measured, times if size == "1K" else {})
        self.assertIn("\nno time was measured among these ranks\n", self.expect_done(
            "topo", "explain", "all_reduce", "1K", "--network", "rates.json", "--ranks", "3"))
        pairs = {(each["from"], each["to"], each["distance"]) for each in data["streams"]}
        self.assertEqual({pair for pair in pairs if pair[2] == 1},
                         {("n1", "n3", 1), ("n3", "n1", 1), ("n2", "n4", 1), ("n4", "n2", 1)})
        # bad input: `topo probe`: a description without some of the job's hosts | the place of n4 in the network is
        # not known: only nodes are told apart (--slurm and --dump read descriptions) | 0
        (self.folder / "topology.conf").write_text("SwitchName=leaf1 Nodes=other\n")

        def probe_of(nodes, cache, slurm="topology.conf", *more):
            words = ["topo", "probe", "--slurm", slurm, "--collectives", "false", *more]
            launched = ["env", f"XDG_CACHE_HOME={cache}", self.mpiexec]
            for node in nodes:
                launched += ["-n", 1, "-env", "SLURMD_NODENAME", node, self.program, *words, ":"]
            return self.expect_done(*words, before=launched[:-len(words) - 2])

        text = probe_of(("n1", "n2"), self.folder / "cache")
        self.assertRegex(text, r"(?m)^stored in .*/cache/trireme/network-.*[.]json$")
        self.assertRegex(text, r"(?m)^the place of n\[1-2\] in the network is not known: only nodes are told apart")
        # Where two descriptions disagree, Slurm's counts, and a remark names both.
        (self.folder / "two.conf").write_text("SwitchName=a Nodes=n1\nSwitchName=b Nodes=n2\nSwitchName=s Switches=a,b\n")
        (self.folder / "fabric.txt").write_text(
            'switchguid=0xa1(a1)\nSwitch\t2 "S-00000000000000a1"\t\t# "sw" base port 0 lid 2 lmc 0\n'
            + "".join(f'[{i}]\t"H-00000000000000b{i}"[1](b{i}1) \t\t# "n{i} mlx5_0" lid {i} 4xHDR\n' for i in (1, 2))
            + "".join(f'\ncaguid=0xb{i}\nCa\t1 "H-00000000000000b{i}"\t\t# "n{i} mlx5_0"\n'
                      f'[1](b{i}1) \t"S-00000000000000a1"[{i}]\t\t# lid {i} lmc 0 "sw" lid 2 4xHDR\n' for i in (1, 2)))
        text = probe_of(("n1", "n2"), self.folder / "cache", "two.conf", "--dump", "fabric.txt")
        self.assertIn("host 'n2': Slurm puts it below 'b', ibnetdiscover below 'sw (00000000000000a1)'; Slurm counts\n", text)
        # The file of a whole cluster stays.
        self.assertRegex(probe_of(("n1", "n1"), self.folder / "cache"),
                         r"(?m)^not stored: these are the rates of one node alone; --network names a file$")
        # bad input: `topo probe`: the usual place of rates cannot be written | not stored: FILE: Not a directory;
        # --network names a file | 0
        self.assertRegex(probe_of(("n1", "n2"), self.folder / "topology.conf"),
                         r"(?m)^not stored: \S*topology.conf/trireme/network-\S*: .*; --network names a file$")

    def test_doctor_of_several_nodes_is_one_summary(self):
        # Ranks of one machine that a launcher says are on different nodes; n3 has two.
        few_files = ["sh", "-c", 'ulimit -n 256; exec "$@"', "sh"]
        launched = [self.mpiexec]
        for node in ("n2", "n1", "n3", "n3"):
            launched += ["-n", 1, "-env", "SLURMD_NODENAME", node, *(few_files if node == "n1" else []), self.program,
                         "doctor", ":"]
        done = self.run_program("doctor", before=launched[:-3])
        text = done.stdout
        self.assertTrue(text.startswith("3 nodes: n[1-3]\n\nthe same on all 3 nodes\n"), text + done.stderr)
        self.assertEqual(text.count("HDF5  "), 1, text)
        self.assertRegex(text, r"(?m)^ok +launch +MPICH .*; 4 tasks by mpiexec$")
        self.assertIn("warning   open files      on n1: a process may open 256; raise the limit", text)
        # What the measurement finds comes last: if it hangs, all else has been said.
        self.assertRegex(text, r"\n\nthe network between the nodes\n\w+ +network +[^\n]*\n(\w+ +network [^\n]*\n)*\n\w+ ")
        self.assertRegex(text, r"\n\n(no problems|problems on all nodes); warnings on (all nodes|n\S+)\n\Z")
        self.assertEqual(done.returncode, 71 if "\nproblem " in text else 0, text)
        self.assertNotIn("remark: ", text)  # nothing describes these nodes
        # Each node for itself, also if MPI does not work.
        text = self.run_program("doctor", "--each", before=[self.mpiexec, "-n", 2]).stdout
        self.assertTrue(text.startswith("node "), text)
        self.assertNotIn("the same on all", text)

    def test_doctor_compares_nodes_with_a_dump(self):
        # One end of n1's cable runs at half width.
        (self.folder / "fabric.txt").write_text(fabric_dump([["n1", "n2"], ["n3"]]).replace(
            '"n1 mlx5_0" lid 9 4xHDR', '"n1 mlx5_0" lid 9 2xHDR'))
        slow = (r"ibnetdiscover says that its cable has 100 Gbit/s; usual at leaf1 \(0{12}aa01\) is 200 Gbit/s; see to its "
                r"cable")
        remark = r"(?m)^remark: fabric.txt, line \d+: the ends of a cable have different rates; the lower one counts$"
        launched = [self.mpiexec]
        for node in ("n1", "n2", "n4"):
            launched += ["-n", 1, "-env", "SLURMD_NODENAME", node, self.program, "doctor", "--dump", "fabric.txt", ":"]
        done = self.run_program("doctor", "--dump", "fabric.txt", before=launched[:-5])
        self.assertRegex(done.stdout, rf"(?m)^problem +cable mlx5_0 +on n1: {slow}")
        self.assertRegex(done.stdout, r"(?m)^not here +cable +on n4: what describes the fabric does not have this node$")
        self.assertRegex(done.stdout, remark)
        self.assertEqual(done.returncode, 71, done.stdout)
        done = self.run_program("doctor", "--dump", "fabric.txt", environment={"SLURMD_NODENAME": "n1"})
        self.assertRegex(done.stdout, rf"(?m)^problem +cable mlx5_0 +{slow}")
        self.assertRegex(done.stdout, remark)
        # bad input: `doctor`: `--dump` or `--slurm` names a file that cannot be read | --dump FILE: cannot be read: No
        # such file or directory | 2
        self.expect_refusal(2, "--dump nothing: cannot be read: No such file or directory", "doctor", "--dump", "nothing")


if __name__ == "__main__":
    ProgramTest.program = Path(sys.argv.pop(1)).resolve()
    Ranks.mpiexec = sys.argv.pop(1)
    unittest.main()
