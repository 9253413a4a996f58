#!/usr/bin/env python3
"""Runs the program as its users do, most of all with input that is wrong.

    python3 cli_test.py TRIREME
"""
import fcntl
import json
import os
import pwd
import re
import shutil
import signal
import struct
import subprocess
import sys
import time
import unittest
import zlib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
from cli_testing import ProgramTest  # noqa: E402

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)  # that end a command
LONG_PLAN = ("plan", "--gpu", "h100", "--nodes", "1-512", "--model.preset", "llama3-70b", "--json")  # and an output


def nobody():
    """The user that may read nothing of ours; none where we are not root."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("nobody").pw_uid
    except KeyError:
        return None


class Commands(ProgramTest):
    def test_lists_the_commands(self):
        text = self.expect_done()
        self.assertEqual(text, self.expect_done("--help"))
        for command in ("train", "prepare", "data", "checkpoint", "memory", "top", "bench", "version"):
            self.assertRegex(text, rf"(?m)^  {command} +\S")
            self.assertIn("usage: trireme " + command, self.expect_done(command, "--help"))

    def test_version_says_what_is_used(self):
        text = self.expect_done("version")
        for line in (r"^trireme \d+\.\d+", "^compiler .*GCC|Clang", r"^MPI .*\d", r"^files .*HDF5 \d",
                     r"oneDNN \d", r"^CUDA +(no|\d+\.\d\S* for \S+.*; cuBLASLt \d.*)$",
                     r"^NCCL +(no|\d\S+)$", r"^instructions +\S",
                     r"^fp32 products +.*: ", "^bf16 products +.*: (native|storage bf16, compute fp32)",
                     "^fp16 products +.*: storage fp16, compute fp32$"):
            self.assertRegex(text, f"(?m){line}")
        forced = self.expect_done("version", environment={"TRIREME_MATMUL": "own",
                                                          "TRIREME_ISA": "baseline"})
        self.assertRegex(forced, "instructions +baseline")
        self.assertRegex(forced, r"fp32 products +own kernels .*: TRIREME_MATMUL=own asks for it")
        self.assertRegex(forced, r"bf16 products +own kernels .*: storage bf16, compute fp32")

    def test_standard_output_that_cannot_be_written(self):
        self.prepare()
        small = ("--model.layers", 1, "--model.width", 16, "--model.heads", 2, "--model.context", 8, "--batch.global", 4,
                 "--batch.micro", 2, "--run.threads", 1, "--eval.every", 0)
        train = ("train", *small, "--data.train", "data/train.h5", "--run.folder")
        self.expect_done(*train, "run", "--run.steps", 2)
        commands = (("completion", "bash"), ("version",), ("train", "--help"), ("memory", *small),
                    ("data", "list", "data"), ("checkpoint", "verify", "run"),
                    ("generate", "--checkpoint", "run", "--prompt", "ab", "--tokens", 2, "--threads", 1),
                    ("prepare", "text.txt", "--output", "again", "--tokenizer", "byte"), (*train, "more", "--run.steps", 2))
        for command in commands:
            # bad input: standard output that is full, or closed | standard output cannot be written: No space left on
            # device; ...: Bad file descriptor | 5
            for redirected, why in (("> /dev/full", "No space left on device"), (">&-", "Bad file descriptor")):
                done = self.run_program(*command, before=("sh", "-c", f'exec "$@" {redirected}', "sh"))
                self.assertEqual(done.returncode, 5, (command, redirected, done.stderr))
                self.assertIn(f"trireme: standard output cannot be written: {why}\n", done.stderr)
            # bad input: a pipe as standard output whose reader has ended | (nothing is said) | 5
            done = self.run_program(*command, before=("bash", "-c", '{ sleep 0.2; "$@"; echo $? > status; } | true', "sh"))
            self.assertEqual((self.folder / "status").read_text(), "5\n", (command, done.stderr))
            self.assertNotIn("standard output", done.stderr)
        # The run went on, and says so.
        events = [json.loads(line) for line in (self.folder / "more" / "events.jsonl").read_text().splitlines()]
        self.assertIn(("output", "standard output cannot be written: No space left on device; the run goes on"),
                      [(event["event"], event.get("detail")) for event in events])
        self.assertTrue((self.folder / "more" / "checkpoints" / "step-00000002.h5").exists())
        # Another status stays.
        done = self.run_program("train", "--data.train", "none.h5", "--run.folder", "new",
                                before=("sh", "-c", 'exec "$@" > /dev/full', "sh"))
        self.assertEqual(done.returncode, 3, done.stderr)

    def test_outputs_that_flags_name(self):
        self.prepare()
        (self.folder / "topology.conf").write_text("SwitchName=a Nodes=n1,n2\n", encoding="utf-8")
        memory = ("memory", "--model.preset", "test-gpt", "--json")
        topo, network = ("--slurm", "topology.conf"), ("topo", "choose", "--slurm", "topology.conf", "--json")
        for command in (memory, ("topo", "show", *topo, "--svg"), network,
                        ("topo", "order", *topo, "--grid", "2x1x1", "--output"),
                        ("job", "single_node", "--data.train", "data/train.h5", "--output")):
            self.check_output(command)
        with open(self.folder / "busy.partial", "w", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            # bad input: an output that another command is writing | busy: another trireme is writing it | 5
            self.expect_refusal(5, "busy: another trireme is writing it", *memory, "busy")
        self.expect_done(*memory, "busy")
        # bad input: a pipe as output that nobody reads | pipe: cannot be written: it is a pipe that nobody reads | 5
        os.mkfifo(self.folder / "pipe")
        self.expect_refusal(5, "pipe: cannot be written: it is a pipe that nobody reads", *memory, "pipe")
        # bad input: two outputs that are standard output | standard output (-) is given for two outputs: name a file
        # | 2
        self.expect_refusal(2, "standard output (-) is given for two outputs: name a file", "topo", "show", "--slurm",
                            "topology.conf", "--json", "-", "--svg", "-")
        # bad input: an output that is a folder | sub: cannot be written: Is a directory | 5
        (self.folder / "sub").mkdir()
        self.expect_refusal(5, "sub: cannot be written: Is a directory", *memory, "sub")
        # bad input: one file as two outputs | both is given for two outputs: name two files | 2
        self.expect_refusal(2, "both is given for two outputs: name two files", "topo", "show", "--slurm",
                            "topology.conf", "--json", "both", "--svg", "both")

    # The file that is there stays, and no NAME.partial is left.
    def test_a_signal_takes_what_is_unfinished(self):
        (self.folder / "plain").write_text("old", encoding="utf-8")
        for number in SIGNALS:
            with self.start_ended_by(number, self.program, *LONG_PLAN, "plain") as process:
                until = time.monotonic() + 60
                while not (self.folder / "plain.partial").exists() and time.monotonic() < until:
                    time.sleep(0.01)
                process.send_signal(number)
                self.assertEqual(process.wait(60), -number)
            self.check_old_file()

    # UCX takes SIGHUP where nobody else has it, and goes on.
    def test_a_signal_comes_while_the_file_is_made(self):
        if not shutil.which("strace") or subprocess.run(["strace", "-o", os.devnull, "true"], check=False,
                                                        capture_output=True).returncode:
            self.skipTest("no strace that may trace")
        (self.folder / "plain").write_text("old", encoding="utf-8")
        for number in SIGNALS:
            traced = ("strace", "-f", "-o", os.devnull, "-P", "plain.partial", "-e",
                      f"inject=openat:signal={number.name}:when=1")
            with self.start_ended_by(number, *traced, self.program, *LONG_PLAN, "plain") as process:
                self.assertEqual(process.wait(60), -number)
            self.check_old_file()

    def start_ended_by(self, number, *command):
        # Who runs the tests in the background may ignore a signal for all of them.
        return subprocess.Popen(command, cwd=self.folder, stdout=subprocess.DEVNULL,
                                preexec_fn=lambda: signal.signal(number, signal.SIG_DFL))

    def check_old_file(self):
        self.assertEqual([path.name for path in self.folder.glob("plain*")], ["plain"])
        self.assertEqual((self.folder / "plain").read_text(encoding="utf-8"), "old")

    def check_output(self, command):
        """What a command does with what stands in the place of its output."""
        def contents(name):
            return (self.folder / name).read_text(encoding="utf-8")
        for name in ("plain", "target", "other"):
            (self.folder / name).unlink(missing_ok=True)
            (self.folder / name).write_text("old", encoding="utf-8")
        (self.folder / "plain").chmod(0o600)
        for name, target in (("link", "target"), ("plain.partial", "other")):
            (self.folder / name).unlink(missing_ok=True)
            (self.folder / name).symlink_to(target)
        # bad input: an output in a folder that does not exist | none/x.partial: cannot be opened: No such file or
        # directory | 5
        self.assertEqual(self.expect_refusal(5, "none/plain", *command, "none/plain").stdout, "")  # before the work
        self.run_program(*command, "plain")
        text = contents("plain")
        self.assertNotIn(text, ("", "old"))
        self.assertEqual((self.folder / "plain").stat().st_mode & 0o777, 0o600)
        self.assertEqual(contents("other"), "old")
        self.run_program(*command, "link")
        self.assertTrue((self.folder / "link").is_symlink())
        self.assertEqual(contents("target"), text)
        self.assertFalse(list(self.folder.glob("*.partial")))
        done = self.run_program(*command, "-")
        self.assertEqual((done.returncode, done.stdout), (0, text), done.stderr)
        self.assertFalse((self.folder / "-").exists())
        self.assertIn(text, self.run_program(*command, "/dev/stdout").stdout)
        os.mkfifo(self.folder / "fifo")
        with subprocess.Popen(["cat", "fifo"], cwd=self.folder, stdout=subprocess.PIPE, text=True) as reader:
            self.assertEqual(self.run_program(*command, "fifo").returncode, 0)
            self.assertEqual(reader.communicate(timeout=100)[0], text)
        self.assertTrue((self.folder / "fifo").is_fifo())
        (self.folder / "fifo").unlink()
        self.assertEqual(self.run_program(*command, "/dev/null").returncode, 0)
        self.assertTrue(Path("/dev/null").is_char_device())

    def memory(self, *arguments):
        """What `trireme memory` prints, and what it writes for programs."""
        path = self.folder / "memory.json"
        text = self.expect_done("memory", "--json", path, *arguments)
        return text, json.loads(path.read_text())

    def test_memory_says_what_each_kind_of_rank_holds(self):
        text, said = self.memory("--model.preset", "gpt2-124m", "--batch.global", "16", "--batch.micro", "4",
                                 "--grid.data", "3", "--grid.pipeline", "2")
        self.assertIn("parameters on 3 x 2 x 1 (data x pipeline x tensor)", text)
        kinds = said["kinds"]
        # 4 micro-batches among 3 replicas: one has 2.
        self.assertEqual([(kind["place"]["pipeline"], kind["micro_batches"], kind["ranks"]) for kind in kinds],
                         [(0, 2, 1), (0, 1, 2), (1, 2, 1), (1, 1, 2)])
        self.assertEqual(len(re.findall(r"(?m)^ +\d+ +0 .* (forward|backward) of micro-batch \d$", text)), 4)
        held = [sum(kind["at_peak"].values()) for kind in kinds]
        self.assertEqual(held, [kind["peak_bytes"] for kind in kinds])
        # The tied matrix is on both stages.
        elements = sum(kind["at_peak"]["parameters"] for kind in kinds if kind["micro_batches"] == 2) / 4
        self.assertAlmostEqual(elements / (124439808 + 50257 * 768), 1, delta=0.001)
        for kind in kinds:
            self.assertEqual(kind["at_peak"]["optimizer"], 2 * kind["at_peak"]["parameters"])
            sums = [one for one in kind["step"]["traffic"]
                    if (one["communicator"], one["operation"]) == ("data", "all_reduce")]
            self.assertEqual([one["ranks"] for one in sums], [3])
            self.assertAlmostEqual(sums[0]["bytes"] / kind["at_peak"]["gradients"], 1, delta=0.001)

    def test_memory_compares_the_schedules(self):
        model = ("--model.layers", "30", "--model.width", "64", "--model.vocabulary", "257", "--batch.micro", "1",
                 "--grid.pipeline", "4")
        text, said = self.memory(*model, "--batch.global", "16", "--grid.schedule", "zb-v")
        rows = {row["name"]: row for row in said["schedules"]}
        self.assertEqual(list(rows), ["gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"])
        self.assertEqual({name: row["held"] for name, row in rows.items()},
                         {"gpipe": 16, "1f1b": 4, "interleaved": 5.5, "zb-h1": 4, "zb-v": 4})
        self.assertLess(rows["zb-h1"]["idle"], rows["1f1b"]["idle"])
        self.assertRegex(text, rf"(?m)^zb-v +2 +{100 * rows['zb-v']['idle']:.1f} +4.0  \(this run's\)$")
        _, fewer = self.memory(*model, "--batch.global", "6")
        self.assertNotIn("interleaved", [row["name"] for row in fewer["schedules"]])
        alone, said = self.memory("--model.preset", "gpt2-124m", "--batch.global", "4", "--batch.micro", "1")
        self.assertEqual(said["schedules"], [])
        self.assertNotIn("schedule", alone)

    def test_memory_of_a_machine_that_is_not_here(self):
        text, said = self.memory("--model.layers", "80", "--model.width", "8192", "--model.heads", "64",
                                 "--model.kv_heads", "8", "--model.hidden", "28672", "--model.activation", "swiglu",
                                 "--model.vocabulary", "128256", "--model.context", "8192", "--model.tied", "false",
                                 "--run.precision", "bf16", "--batch.global", "1024", "--batch.micro", "1",
                                 "--grid.data", "64", "--grid.pipeline", "8", "--grid.tensor", "8")
        self.assertIn("on 64 x 8 x 8", text)
        self.assertIn("workspace is that of one thread a rank: --run.threads N for more", text)
        self.assertEqual(sum(kind["ranks"] for kind in said["kinds"]), 4096)
        self.assertGreater(said["parameters"], 70e9)

    def test_memory_refuses_groups_that_fit_no_parameter(self):
        for groups, why in (("wte*: lion", "wte*: no parameter of the model has such a name; there are embedding.weight, "),
                            ("*.bias: muon", "gives muon to blocks.0.norm1.bias, which is no matrix: its patterns ")):
            done = self.run_program("memory", "--model.preset", "test-gpt", "--optim.groups", groups)
            self.assertEqual(done.returncode, 2)
            self.assertIn(f"trireme: optim.groups {why}", done.stderr)
        frozen = self.run_program("memory", "--model.preset", "test-gpt", "--optim.freeze", "embedding.*",
                                  "--optim.groups", "embedding.*: sgd")
        self.assertEqual((frozen.returncode, frozen.stderr),
                         (2, "trireme: optim.groups embedding.*: optim.freeze takes all of these parameters\n"))
        self.memory("--model.preset", "test-gpt", "--optim.name", "muon", "--grid.data", "2", "--grid.tensor", "2")

    def test_memory_says_what_a_captured_step_adds(self):
        model = ("--model.preset", "test-gpt", "--batch.global", "4", "--batch.micro", "1", "--cuda.graphs", "true")
        line = "a captured step (cuda.graphs) keeps what is taken, and evaluation needs memory of its own besides"
        self.assertIn(line, self.memory(*model, "--gpu-memory", "80G")[0])
        self.assertNotIn(line, self.memory(*model)[0])

    def test_memory_reads_the_file_of_a_job(self):
        config = self.folder / "run.ini"
        config.write_text("[job]\nnodes=2\n\n[grid]\ndata=2\n")
        text, _ = self.memory("--config", str(config))
        self.assertIn("on 2 x 1 x 1", text)

    def test_memory_is_that_of_one_island(self):
        model = ("--model.preset", "test-gpt", "--grid.data", "2")
        alone, said = self.memory(*model)
        self.assertEqual(said["islands"], 1)
        text, several = self.memory(*model, "--grid.islands", "3")
        self.assertIn(" (data x pipeline x tensor), one island of 3; memory in MiB", text)
        self.assertNotIn("island", alone)
        self.assertEqual((several["islands"], several["kinds"][0]["ranks"]), (3, 2))
        # The outer weights and their momentum.
        self.assertGreater(several["kinds"][0]["peak_bytes"],
                           said["kinds"][0]["peak_bytes"] + 2 * 4 * said["parameters"])
        self.expect_refusal(2, "on 1048576 islands has more than 1048576 ranks: give a smaller one", "memory",
                            *model, "--grid.islands", "1048576")

    def test_memory_of_fewer_tokens_than_tensor_ranks(self):
        text, _ = self.memory("--model.vocabulary", "1", "--grid.tensor", "2")
        self.assertIn("on 1 x 1 x 2", text)

    def test_memory_refuses_what_cannot_run(self):
        self.expect_refusal(2, "more parts than blocks: grid.pipeline is 4 and each stage has 2 chunks", "memory",
                            "--grid.pipeline", "4", "--model.layers", "5", "--grid.schedule", "zb-v")
        # bad input: `memory`: more replicas than micro-batches | 8 micro-batches a step (batch.global 8
        # / batch.micro 1) are fewer than 64 data replicas: each needs one at least | 2
        self.expect_refusal(2, "are fewer than 64 data replicas: each needs one at least",
                            "memory", "--batch.global", "8", "--batch.micro", "1", "--grid.data", "64")
        # bad input: `memory`: a grid of more than 2^20 ranks | the grid ... has more than 1048576 ranks: give a
        # smaller one | 2
        self.expect_refusal(2, "has more than 1048576 ranks: give a smaller one", "memory", "--grid.data", "1000000",
                            "--grid.tensor", "1000")
        # bad input: `memory`: thousands of stages, or a vocabulary and micro-batches out of proportion | dry runs of
        # ... stages, ... blocks and micro-batches of ... positions would take too long: ... | 2
        self.expect_refusal(2, "dry runs of 4096 stages, 4096 blocks and", "memory", "--model.layers", "4094",
                            "--grid.pipeline", "4096", "--batch.global", "16384", "--batch.micro", "1")
        self.expect_refusal(2, "micro-batches of 16777216 positions would take too long", "memory", "--model.vocabulary",
                            "16777216", "--model.context", "1048576", "--batch.micro", "16", "--batch.global", "16")
        # Only the hidden tokens of masked texts count.
        self.expect_done("memory", "--model.family", "bert", "--model.layers", "1", "--model.vocabulary", "16777216",
                         "--model.context", "4096", "--batch.micro", "4096", "--batch.global", "4096",
                         "--data.mask_share", "0.001")
        # bad input: `memory`: a rank that no address space could hold | a rank of this grid would need more than 8 EiB:
        # ... | 2
        self.expect_refusal(2, "a rank of this grid would need more than 8 EiB", "memory", "--model.layers", "512",
                            "--model.width", "1048576", "--model.heads", "1024", "--model.hidden", "8388608",
                            "--model.context", "256", "--batch.micro", "1", "--batch.global", "16777216",
                            "--grid.schedule", "gpipe")
        # bad input: `memory`: `--gpu-memory` of ranks that compute on CPUs | --gpu-memory is of ranks with GPUs, but
        # run.device is cpu: leave one out | 2
        self.expect_refusal(2, "--gpu-memory is of ranks with GPUs, but run.device is cpu", "memory", "--device", "cpu",
                            "--gpu-memory", "80G")
        # bad input: `memory`: ranks with GPUs of unknown memory | memory of ranks with GPUs (run.device cuda)
        # needs --gpu-memory, as in --gpu-memory 80G | 2
        self.expect_refusal(2, "needs --gpu-memory, as in --gpu-memory 80G", "memory", "--device", "cuda")
        # bad input: `memory`: `--gpu-memory` that is none | --gpu-memory 80X: expected an amount of memory, as in
        # 1500M, 64G or 1T | 2
        self.expect_refusal(2, "--gpu-memory 80X: expected an amount of memory, as in", "memory",
                            "--gpu-memory", "80X")
        # bad input: `memory`: tensor ranks that do not divide the heads | the message of training | 2
        self.expect_refusal(2, "heads", "memory", "--grid.tensor", "5", "--batch.global", "8")

    def test_memory_counts_the_blocks_that_are_recomputed(self):
        model = ("--model.preset", "gpt2-124m", "--batch.global", "4", "--batch.micro", "4")
        full = ("--recompute.mode", "full", "--recompute.blocks")

        def held(*flags):
            _, said = self.memory(*model, *flags)
            return said["kinds"][0]["peak_bytes"]
        by_blocks = [held(), *(held(*full, blocks) for blocks in ("2", "6", "12"))]
        self.assertEqual(by_blocks, sorted(set(by_blocks), reverse=True))
        self.assertEqual(held(*full, "14"), held(*full, "auto"))
        # bad input: `train`, `memory`, ...: `recompute.blocks` beyond the model's | recompute.blocks is 15, but the model
        # has 14 blocks, of which the first and the last are the embedding and the head: auto recomputes all | 2
        self.expect_refusal(2, "recompute.blocks is 15, but the model has 14 blocks, of which the first and the last are "
                            "the embedding and the head: auto recomputes all", "memory", *model, *full, "15")

    def test_memory_estimates_what_nccl_takes(self):
        model = ("--model.preset", "gpt2-124m", "--grid.data", "2", "--batch.global", "8", "--batch.micro", "4")
        text, said = self.memory(*model, "--gpu-memory", "80G")
        kind = said["kinds"][0]
        self.assertIn(f"NCCL takes about {kind['nccl_bytes'] // 2**20} MiB of a GPU besides (an estimate: ", text)
        self.assertNotIn("it may run out", text)
        for flags in ((), ("--gpu-memory", "80G", "--comm.backend", "mpi")):
            text, others = self.memory(*model, *flags)
            self.assertEqual(others["kinds"][0]["nccl_bytes"], 0)
            self.assertNotIn("NCCL", text)
        _, few = self.memory(*model, "--gpu-memory", "80G", "--nccl.max_channels", "6")
        self.assertEqual(4 * few["kinds"][0]["nccl_bytes"], kind["nccl_bytes"])
        text, small = self.memory(*model, "--gpu-memory", "4500")
        tensors = -(-small["kinds"][0]["peak_bytes"] // 2**20)
        self.assertIn(f"memory: a rank's tensors take {tensors} MiB of its GPU, which has 4500, and NCCL takes about",
                      text)
        self.assertIn("it may run out", text)

    def test_memory_names_a_setting_that_fits_the_gpu(self):
        sizes = ("--model.preset", "gpt2-124m", "--grid.data", "4", "--batch.global", "32", "--batch.micro", "8")
        # bad input: `memory`: a rank that does not fit `--gpu-memory` | the table, then memory: a rank needs about ... MiB
        # of its GPU (...), which has 4096: --recompute.mode full, which fits | 2
        small = self.expect_refusal(2, "MiB of its GPU", "memory", *sizes, "--gpu-memory", "4G", "--json", "memory.json")
        self.assertRegex(small.stderr, r"a rank needs about \d+ MiB of its GPU .*, which has 4096: "
                                       r"--recompute\.mode full, which fits")
        self.assertIn("a rank needs 128 MiB besides", small.stdout)
        self.assertTrue((self.folder / "memory.json").exists())
        self.expect_done("memory", *sizes, "--gpu-memory", "80G")
        self.expect_done("memory", *sizes, "--gpu-memory", "4G", "--recompute.mode", "full")
        self.expect_refusal(2, "more ranks or a smaller model", "memory", *sizes, "--gpu-memory", "100")

    def test_doctor_gives_a_verdict_on_everything(self):
        done = self.run_program("doctor")
        text = done.stdout
        self.assertEqual(done.returncode, 71 if "\nproblem " in text else 0, text)
        *lines, blank, count = text.splitlines()[2:]
        self.assertEqual(blank, "")
        for line in lines:
            self.assertRegex(line, r"^(ok|warning|problem|not here) +\S")
        for subject in ("launch", "HDF5", "processors", "memory", "RDMA network", "GPU"):
            self.assertRegex(text, rf"(?m)^(ok|warning|problem|not here) +{subject}")
        self.assertRegex(count, r"^\d+ ok, \d+ warnings?, \d+ problems?, \d+ not here$")
        rank = {"PMI_SIZE": "2", "PMI_RANK": "1", "MPI_LOCALRANKID": "1"}
        self.assertEqual(self.expect_done("doctor", environment=rank), "")
        rank["MPI_LOCALRANKID"] = "0"  # the first of its node
        self.assertIn("2 tasks by mpiexec", self.run_program("doctor", environment=rank).stdout)
        # A shell that salloc has given.
        shell = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "4"}
        self.assertIn("remark: this is one of the 4 nodes of job 7; srun --mpi=pmi2 --ntasks-per-node=1 trireme doctor "
                      "examines them all\n", self.run_program("doctor", environment=shell).stdout)

    def test_refuses_a_completion_of_nothing(self):
        # bad input: `completion`: no word, or not a shell's | completion takes one word, bash or zsh or
        # man, not 'fish' | 2
        self.expect_refusal(2, "completion takes one word, bash or zsh or man, not ''", "completion")
        self.expect_refusal(2, "bash or zsh or man, not 'fish'", "completion", "fish")

    def test_refuses_a_bench_of_nothing(self):
        self.expect_refusal(2, "bench takes one word, comm or ops or products or step, not ''", "bench")
        self.expect_refusal(2, "bench takes one word, comm or ops or products or step, not 'comm ops'", "bench", "comm", "ops")
        # bad input: `bench`: no word, two, or another | bench com: unknown; did you mean comm? | 2
        self.expect_refusal(2, "bench com: unknown; did you mean comm?", "bench", "com")
        # bad input: `topo probe` in a single process | topo probe measures between ranks: start several, with srun
        # --mpi=pmi2 or mpiexec | 2
        self.expect_refusal(2, "topo probe measures between ranks: start several", "topo", "probe")
        # bad input: `bench comm`: an algorithm that is none; one beside a GPU | --algorithm quick: there are all,
        # table, ... | 2
        self.expect_refusal(2, "--algorithm quick: there are all, table, ", "bench", "comm", "--algorithm",
                            "table,quick")
        self.expect_refusal(2, "leave out --device cuda", "bench", "comm", "--peer", "--device", "cuda")
        # bad input: `bench`: a flag of another measurement | bench comm takes no --dtype; it takes --from,
        # ... | 2
        self.expect_refusal(2, "bench comm takes no --dtype; it takes --from, ", "bench", "comm", "--dtype", "bf16")
        self.expect_refusal(2, "bench step takes no --from; it takes --preset, ", "bench", "step", "--from=1K")
        # bad input: `bench comm`: a size that is none; more from than to | --from 1XB: expected bytes, at
        # least 4 and at most 1024G, as in 512, 64K or 16M | 2
        self.expect_refusal(2, "--from 1XB: expected bytes, ", "bench", "comm", "--from", "1XB")
        self.expect_refusal(2, "--from 4M is more than --to 1M", "bench", "comm", "--from", "4M", "--to", "1M")
        self.expect_refusal(2, "--repeats 0: must be at least 1", "bench", "ops", "--repeats", 0)
        self.expect_refusal(2, "--preset gpt3", "bench", "ops", "--preset", "gpt3")
        self.expect_refusal(2, "--dtype fp64", "bench", "step", "--dtype", "fp64")

    def test_refuses_what_it_does_not_know(self):
        # bad input: `trireme`: an unknown command | unknown command 'trian'; did you mean train? | 2
        self.expect_refusal(2, "unknown command 'trian'; did you mean train?", "trian")
        self.expect_refusal(2, "unknown command 'frobnicate'; there are prepare, ", "frobnicate")
        self.expect_refusal(2, "unknown flag --verbos; --help lists them all", "version", "--verbos")
        self.expect_refusal(2, "unknown flag --model.widht; did you mean --model.width?",
                            "train", "--model.widht", "3")
        # bad input: an argument that is no flag, where none is taken | unexpected argument '...' | 2
        self.expect_refusal(2, "unexpected argument 'now'", "version", "now")
        # bad input: `TRIREME_MATMUL` with another word | TRIREME_MATMUL is '...'; it may be one of onednn, onednn-primitives, onednn-sgemm, own
        # | 2
        self.expect_refusal(2, "TRIREME_MATMUL is 'fast'", "version",
                            environment={"TRIREME_MATMUL": "fast"})

    def test_only_the_first_of_several_processes_speaks(self):
        second = {"PMI_RANK": "1", "PMI_SIZE": "2"}
        for arguments, status in ((["trian"], 2), (["train", "--x"], 2), (["--help"], 0)):
            done = self.run_program(*arguments, environment=second)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (status, "", ""))
        for first in ({"PMI_RANK": "0", "PMI_SIZE": "2"},
                      {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2"}):
            # bad input: `data`, `checkpoint`, `prepare --images` under a launcher of several processes | trireme
            # data is one process, but mpiexec started 4; start it alone | 2
            self.expect_refusal(2, "started 2; start it alone", "data", "list", "y",
                                environment=first)

    def test_starts_no_mpi_where_it_needs_none(self):
        # MPI would fail on a connection to a launcher that is not there.
        launched = {"PMI_RANK": "0", "PMI_SIZE": "1", "PMI_FD": "77"}
        self.expect_done("version", environment=launched)
        (self.folder / "text").write_text("text\n", encoding="utf-8")
        self.expect_done("prepare", "text", "--output", "data", "--tokenizer", "byte",
                         environment=launched)
        self.assertNotEqual(self.run_program("train", environment=launched).returncode, 0)

    def test_openmp_threads_do_not_spin(self):
        def shown(**environment):
            done = self.run_program("version", environment={**environment, "OMP_DISPLAY_ENV": "verbose"})
            self.assertEqual(done.returncode, 0, done.stderr)
            return re.findall("GOMP_SPINCOUNT = '(.*)'", done.stderr)
        # Once as it is started, and once as it starts itself anew.
        self.assertEqual((len(shown()), shown()[-1]), (2, "0"))
        self.assertEqual(shown(GOMP_SPINCOUNT="7"), ["7"])
        self.assertEqual(len(shown(OMP_WAIT_POLICY="ACTIVE")), 1)


class Prepare(ProgramTest):
    def refuse(self, status, message, *arguments, **options):
        return self.expect_refusal(status, message, "prepare", *arguments, **options)

    def text(self, name, content="a line\nanother line\n"):
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content, encoding="utf-8")
        return path

    def test_makes_shards_and_a_summary(self):
        self.text("corpus/a", "one\n\ntwo\n\n")
        self.text("b", "three\n\nfour")
        for inputs in (["--input", "corpus,b"], ["corpus", "b"], ["--input", "corpus", "b"]):
            text = self.expect_done("prepare", *inputs, "--output", "out", "--tokenizer", "byte",
                                    "--document-separator", r"\n\x0a", "--threads", 2)
            self.assertRegex(text, "(?m)^documents +4 in train$")
            self.assertRegex(text, "(?m)^bytes of text +15 in train$")
            self.assertRegex(text, "(?m)^tokens +19 in train$")
            self.assertRegex(text, "(?m)^bytes per token +0.789$")
            self.assertTrue((self.folder / "out/train.h5").exists())
        self.assertFalse((self.folder / "out/validation.h5").exists())

    def test_reads_standard_input_and_holds_out(self):
        text = self.expect_done("prepare", "-", "--output", "out", "--tokenizer", "byte",
                                "--validation", "tail:300", "--limit", 1000, text=b"some text\n" * 200)
        self.assertRegex(text, "(?m)^bytes of text +700 in train, 300 in validation$")
        self.assertRegex(text, "(?m)^files +out/train.h5, out/validation.h5$")

    def test_a_signal_takes_back_what_was_begun(self):
        self.text("a")
        before = self.expect_done("prepare", "a", "--output", "out", "--tokenizer", "byte")
        self.assertIn("out/train.h5", before)
        whole = (self.folder / "out/train.h5").read_bytes()
        for number in (signal.SIGINT, signal.SIGTERM):
            with subprocess.Popen([str(self.program), "prepare", "-", "--output", "out", "--tokenizer", "byte",
                                   "--threads", "1"], cwd=self.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True) as process:
                process.stdin.write("a line\n" * 1000000)  # it has begun once these are read
                process.send_signal(number)
                time.sleep(0.3)
                _, said = process.communicate("a line\n" * 1000000, timeout=60)
            self.assertEqual(process.returncode, 75, said)
            self.assertRegex(said, rf"\Atrireme: stopped by {number.name} \(as .*\); out is as it was before\n\Z")
            self.assertEqual([path.name for path in (self.folder / "out").iterdir()], ["train.h5"])
            self.assertEqual((self.folder / "out/train.h5").read_bytes(), whole)

    def test_a_signal_ends_a_wait_for_input(self):
        with subprocess.Popen([str(self.program), "prepare", "-", "--output", "out", "--tokenizer", "byte"],
                              cwd=self.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True) as process:
            while not (self.folder / "out/.writing").exists():
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.wait(timeout=30), 75)  # and nothing came
            said = process.stderr.read()
        self.assertEqual(said, "trireme: stopped by SIGINT (as by Ctrl-C); what is unfinished in out goes with the next "
                               "prepare\n")
        self.text("a")
        self.expect_done("prepare", "a", "--output", "out", "--tokenizer", "byte")
        self.assertEqual([path.name for path in (self.folder / "out").iterdir()], ["train.h5"])

    def test_reads_records(self):
        self.text("in/a.jsonl", '{"title": "a", "body": "b"}\n{"title": "c"}\n')
        self.text("in/.hidden", "x")
        (self.folder / "in/picture.png").write_bytes(png(4, 4, (1, 2, 3)))
        byte = ["--output", "out", "--tokenizer", "byte"]
        self.refuse(3, "in/a.jsonl: line 2, column 1: no field 'body', but 'title'", "in", *byte, "--field", "title,body")
        text = self.expect_done("prepare", "in", *byte, "--field", "title,body", "--join", r"\t", "--skip-bad", "true")
        self.assertRegex(text, "(?m)^bytes of text +3 in train$")
        self.assertRegex(text, r"(?m)^left out +1 hidden file, 1 binary file \(in/picture.png\)$")
        self.assertRegex(text, "(?m)^bad records +1 left out; the first: in/a.jsonl: line 2, ")
        # bad input: `prepare --join` without several fields | --join goes between several fields: --field title,text
        # | 2
        self.refuse(2, "--join goes between several fields: --field title,text", "in", *byte, "--join", "x")
        self.refuse(2, "--field body,body: names a field twice", "in", *byte, "--field", "body,body")
        # bad input: `prepare --vocabulary` alone | --vocabulary needs the number of the token that ends texts:
        # --end-of-text NUMBER | 2
        self.refuse(2, "--vocabulary needs the number of the token that ends texts: --end-of-text NUMBER", "in",
                    "--output", "out", "--tokens", "--vocabulary", "10")
        self.refuse(2, "--token-type is for --tokens true", "in", *byte, "--token-type", "uint32")
        # bad input: `prepare`: records and --as-bytes | --as-bytes takes no records; leave --field, --join and
        # --skip-bad out | 2
        self.refuse(2, "--as-bytes takes no records", "in", *byte, "--as-bytes", "true", "--field", "a")
        # bad input: `prepare`: a --field without a name | --field a,: write the name of a field, as in text,
        # meta.body or title,text; or none | 2
        self.refuse(2, "--field a,: write the name of a field", "in", *byte, "--field", "a,")

    def test_takes_tokens_of_others(self):
        (self.folder / "made.bin").write_bytes(struct.pack("<2000H", *([1, 2, 3, 4, 0] * 400)))
        made = ["made.bin", "--tokens", "true", "--output", "out"]
        text = self.expect_done("prepare", *made, "--vocabulary", 5, "--end-of-text", 0, "--validation", "tail:100")
        self.assertRegex(text, "(?m)^tokens +1875 in train, 125 in validation$")
        self.assertRegex(text, "(?m)^tokenizer +numbers, 5 tokens, ")
        self.assertIn("million tokens/s", text)
        self.expect_done("data", "verify", "out")
        text = self.expect_done("train", "--data.train", "out/train.h5", "--data.validation", "out/validation.h5",
                                "--model.family", "gpt", "--model.width", 16, "--model.layers", 1, "--model.heads", 1,
                                "--model.context", 8, "--run.steps", 2, "--run.folder", "run")
        text = self.expect_done("eval", "--checkpoint", "run", "--data", "out/validation.h5")
        self.assertRegex(text, "(?m)^tokens +[0-9]+, in windows of 8$")
        self.assertNotIn("bits per byte", text)
        self.refuse(2, "tokens that are made already need their tokenizer: ", *made)
        # bad input: `prepare --tokens`: options that are for text | --tokens takes whole files: leave --field, ...
        # out; --vocabulary is for --tokens true; ... | 2
        self.refuse(2, "--tokens takes whole files: leave --field", *made, "--vocabulary", 5, "--limit", 9)
        self.refuse(2, "--vocabulary is for --tokens true", "made.bin", "--output", "out", "--vocabulary", 5)
        self.refuse(2, "--vocabulary is for tokens without a --tokenizer", *made, "--vocabulary", 5, "--tokenizer", "byte")
        self.refuse(2, "--vocabulary 5 --end-of-text 5: expected 2 to ", *made, "--vocabulary", 5, "--end-of-text", 5)

    def test_refuses_flags(self):
        self.text("t")
        good = ["t", "--output", "out"]
        # bad input: a flag that the command does not have | unknown flag --inptu; did you mean --input? | 2
        self.refuse(2, "unknown flag --inptu; did you mean --input?", "--inptu", "t")
        # bad input: a flag without its value | --tokenizer: a value must follow | 2
        self.refuse(2, "--tokenizer: a value must follow", *good, "--tokenizer")
        self.refuse(2, "prepare needs text: --input PATH", "--output", "out")
        # bad input: `prepare` without a text, or without a folder | prepare needs text: --input PATH ...;
        # prepare needs a folder to write to: --output DIR | 2
        self.refuse(2, "prepare needs a folder to write to: --output DIR", "t")
        # bad input: `prepare`: standard input twice | standard input (-) is given twice; it can be read
        # once | 2
        self.refuse(2, "standard input (-) is given twice", "-", "-", "--output", "out")
        # bad input: `prepare`: a limit, threads or a seed of 0 or less, or no number | --limit 0: must be
        # at least 1 | 2
        for flag in ("--limit", "--threads"):
            for value in ("0", "-1"):
                self.refuse(2, f"{flag} {value}: ", *good, flag, value)
        self.refuse(2, "--seed -1: ", *good, "--seed", "-1")
        self.refuse(2, "--limit many: ", *good, "--limit", "many")
        for split in ("tail:0", "tail:-5", "hash:0", "hash:1.5", "half"):
            # bad input: `prepare`: a validation split that is none, of 0 or of more than all | --validation
            # ...: write hash:0.01 to hold out 1 % of the documents, or tail:1000000 ...; or none | 2
            self.refuse(2, f"--validation {split}: write hash:0.01 to hold out 1 % of the documents, or ", *good,
                        "--validation", split)
        for tokenizer in ("word", "bpe", "no/such/model"):
            # bad input: `prepare`: a tokenizer that is neither a word of it nor a file | tokenizer '...':
            # there is no such file; expected byte, ... | 2
            self.refuse(2, f"tokenizer '{tokenizer}': there is no such file; expected byte, ", *good, "--tokenizer", tokenizer)
        for tokenizer in ("bpe:0", "bpe:-3", "unigram:many"):
            # bad input: `prepare`: a vocabulary that is no number, 0 or negative | tokenizer 'bpe:0':
            # expected a vocabulary, as in bpe:4096 | 2
            self.refuse(2, f"tokenizer '{tokenizer}': expected a vocabulary", *good,
                        "--tokenizer", tokenizer)
        for tokenizer in ("bpe:299", "unigram:1"):
            # bad input: `prepare`: a vocabulary below 300; no folder is made | tokenizer 'bpe:299': a
            # vocabulary needs at least 300 tokens | 2
            self.refuse(2, f"tokenizer '{tokenizer}': a vocabulary needs at least 300 tokens", *good,
                        "--tokenizer", tokenizer)
        for separator in (r"\q", r"\x1", r"\xg0", "\\"):
            # bad input: `prepare`: an escape in the separator that is none | '\q' stands for nothing; \n,
            # \t, \0, \\ and \xNN do | 2
            self.refuse(2, r"stands for nothing; \n, \t, \0, \\ and \xNN do", *good,
                        "--document-separator", separator)
        self.assertFalse((self.folder / "out").exists())

    def test_reads_a_tokenizer_file(self):
        given = Path(__file__).resolve().parents[1] / "io/tokenizers"
        self.text("text", "ROMEO:\n\nI'll think: <think> 1234, <|im_end|>\n" * 100)
        text = self.expect_done("prepare", "text", "--output", "data", "--tokenizer", given / "qwen2.json",
                                "--end-of-text", "<|im_end|>")
        self.assertIn("Hugging Face's byte-level BPE, 503 tokens", text)
        text = self.expect_done("data", "inspect", "data/train.h5")
        self.assertRegex(text, r"(?m)^tokenizer +huggingface:<\|im_end\|>, ")
        self.expect_done("data", "verify", "data/train.h5")
        text = self.expect_done("prepare", "text", "--output", "words", "--tokenizer", given / "bert_cased.json")
        self.assertIn("Hugging Face's WordPiece, 500 tokens", text)
        model = json.loads((given / "gpt2.json").read_text(encoding="utf-8"))
        model["model"]["type"] = "WordLevel"
        self.text("words.json", json.dumps(model))
        self.refuse(3, "words.json: the model WordLevel is not supported", "text", "--output", "out", "--tokenizer",
                    "words.json")
        self.text("empty.json", "")
        self.refuse(3, "empty.json: the tokenizer model is empty", "text", "--output", "out", "--tokenizer", "empty.json")

    def test_refuses_texts(self):
        byte = ["--output", "out", "--tokenizer", "byte"]
        self.refuse(3, "missing.txt", "missing.txt", *byte)
        self.text("empty", "")
        # bad input: `prepare`: no text at all | there is no text in ... | 3
        self.refuse(3, "there is no text in empty", "empty", *byte)
        (self.folder / "folder").mkdir()
        self.refuse(3, "folder", "folder", *byte)
        self.refuse(3, "there is no text in -", "-", *byte)
        self.text("small")
        # bad input: `prepare`: too little text for the vocabulary | cannot train a vocabulary of 4096
        # tokens on 19 bytes of text; a smaller vocabulary or more text is needed (at most 284) | 3
        self.refuse(3, "bytes of text; a smaller vocabulary or more text is needed (at most 2", "small", "--output", "out", "--tokenizer", "bpe:4096")
        self.refuse(2, "holds no tokenizer (tokenizer.json", "small", "--output", "out", "--tokenizer", "folder")
        # bad input: `prepare`: an end of text beside a tokenizer that has its own | --end-of-text is for a
        # tokenizer.json; the tokenizer byte has its own end of text | 2
        for tokenizer in ("byte", "bpe:400", "unigram:400"):
            self.refuse(2, f"--end-of-text is for a tokenizer.json; the tokenizer {tokenizer} has its own end of text",
                        "small", "--output", "out", "--tokenizer", tokenizer, "--end-of-text", "x")
        # bad input: `prepare`: a tokenizer file that is no SentencePiece model | ...: not a SentencePiece
        # model | 3
        self.refuse(3, "small: not a SentencePiece model, but a text; tokenizer.json", "small", "--output", "out",
                    "--tokenizer", "small")
        # bad input: `prepare`: a tail that is all of the text | the validation split takes all of the text
        # (... bytes), nothing is left to train on | 3
        self.refuse(3, "the validation split takes all of the text", "small", *byte,
                    "--validation", "tail:999")
        self.assertEqual(list(self.folder.glob("out/*")), [])

    def as_other_user(self):
        """Options that run the program as somebody who may write nothing here."""
        if os.geteuid() != 0:
            return {}
        if nobody() is None:
            self.skipTest("root may read and write everything, and there is no user nobody")
        self.program = shutil.copy(self.program, self.folder / "trireme")
        return {"user": nobody(), "extra_groups": []}

    def test_refuses_an_unreadable_file(self):
        options = self.as_other_user()
        self.text("secret").chmod(0)
        (self.folder / "out").mkdir()
        (self.folder / "out").chmod(0o777)
        # bad input: `prepare`: a text that is missing or unreadable | ...: cannot be read: Permission denied |
        # 3
        self.refuse(3, "secret: cannot be read: Permission denied", "secret", "--output", "out", "--tokenizer", "byte", **options)

    def test_refuses_an_unwritable_output(self):
        options = self.as_other_user()
        self.text("t")
        self.refuse(5, "t: cannot be made: Not a directory", "t", "--output", "t")
        (self.folder / "out").mkdir()
        (self.folder / "out").chmod(0o555)
        self.refuse(5, "out", "t", "--output", "out", "--tokenizer", "byte", **options)
        # bad input: `prepare`: a folder that cannot be made or written to | ...: cannot be made: Permission
        # denied | 5
        self.refuse(5, "out/below: cannot be made: Permission denied", "t",
                    "--output", "out/below", "--tokenizer", "byte", **options)

    def test_refuses_a_full_output(self):
        (self.folder / "full").mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", self.folder / "full"]
        if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
            self.skipTest("only who may mount a file system can make a full one")
        self.addCleanup(subprocess.run, ["umount", self.folder / "full"], check=True)
        self.text("t", "a line of text\n" * 100000)
        # bad input: `prepare`: a full disk | ...: No space left on device | 5
        self.refuse(5, "No space left on device", "t", "--output", "full", "--tokenizer", "byte")
        self.assertEqual(list((self.folder / "full").iterdir()), [])


def png(height, width, colour):
    """A PNG file of one colour."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = (b"\0" + bytes(colour) * width) * height
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


class PrepareImages(ProgramTest):
    def pictures(self, root="pets"):
        """Three classes of pictures to train on and to test."""
        for split, count in (("train", 4), ("test", 1)):
            for label, name in enumerate(("cat", "dog", "emu")):
                folder = self.folder / root / split / name
                folder.mkdir(parents=True)
                for i in range(count):
                    (folder / f"{i}.png").write_bytes(png(6, 8, (10 * label, 20 * i, 255)))
        return root

    def refuse(self, status, message, *arguments):
        return self.expect_refusal(status, message, "prepare", "--images", *arguments)

    def test_makes_shards_and_a_summary(self):
        self.pictures()
        (self.folder / "pets/README").write_text("about pets", encoding="utf-8")
        (self.folder / "pets/train/cat/bad.jpg").write_bytes(b"no picture")
        text = self.expect_done("prepare", "--images", "pets", "--output", "out", "--threads", 2,
                                "--skip-bad", "true")
        for line in ("pictures +12 in train, 3 in validation", "classes +3: cat, dog, emu",
                     "height x width +6 x 8", r"mean +0\.0392 0\.1176 1\.0000",
                     r"deviation +0\.0320 0\.0877 0\.0000", r"left out +1 file: hidden, or no name of a picture .*",
                     "bad pictures +1 left out:", r" +pets/train/cat/bad\.jpg: neither JPEG nor PNG",
                     r"time +[0-9.]+ s, [0-9]+ pictures/s", "files +out/train.h5, out/validation.h5"):
            self.assertRegex(text, f"(?m)^{line}$")
        self.assertEqual(sorted(path.name for path in (self.folder / "out").iterdir()),
                         ["train.h5", "validation.h5"])

    def test_reads_an_archive(self):
        self.pictures()
        subprocess.run(["tar", "cJf", "pets.tar.xz", "pets"], cwd=self.folder, check=True)
        subprocess.run(["tar", "cf", "pets.tar", "--format=pax", "-C", "pets", "."], cwd=self.folder, check=True)
        outputs = []
        for i, (path, text) in enumerate((("pets.tar.xz", b""), ("pets.tar", b""), ("pets", b""),
                                          ("-", (self.folder / "pets.tar").read_bytes()))):
            said = self.expect_done("prepare", "--images", path, "--output", f"out{i}", "--size", "4x4", text=text)
            self.assertRegex(said, "(?m)^pictures +12 in train, 3 in validation$")
            outputs.append(re.search("(?m)^mean.*\ndeviation.*$", said).group())
        self.assertEqual(set(outputs), {outputs[0]})

    def test_draws_from_each_class(self):
        self.pictures()
        text = self.expect_done("prepare", "--images", "pets/train", "--output", "out", "--validation", "class:0.25")
        self.assertRegex(text, "(?m)^pictures +9 in train, 3 in validation$")

    def test_refuses_flags(self):
        good = [self.pictures(), "--output", "out"]
        # bad input: `prepare --images` without pictures | prepare needs pictures: --input PATH ... | 2
        self.refuse(2, "prepare needs pictures: --input PATH", "--output", "out")
        # bad input: `prepare --images`: a size that is none | --size 0: expected a side of 1 to 4096 pixels, as
        # in 224, or height x width, as in 192x256 | 2
        for size in ("0", "-1", "5000", "4x", "big"):
            self.refuse(2, f"--size {size}: expected a side of 1 to 4096 pixels", *good, "--size", size)
        # bad input: `prepare --images`: an option that is for text, and the other way round | --limit is for
        # text, not for pictures (--images true); --size is for pictures: --images true | 2
        for flag, value in (("--limit", 5), ("--tokenizer", "byte"), ("--document-separator", "x")):
            self.refuse(2, f"{flag} is for text, not for pictures", *good, flag, value)
        for flag, value in (("--size", 5), ("--class-folder", "inner")):
            self.expect_refusal(2, f"{flag} is for pictures: --images true", "prepare", *good, flag, value)
        self.refuse(2, "pictures are held out by --validation class:FRACTION", *good, "--validation", "tail:5")
        self.expect_refusal(2, "text is held out by --validation hash:FRACTION or tail:BYTES", "prepare", *good,
                            "--validation", "class:0.5")
        self.assertFalse((self.folder / "out").exists())

    def test_refuses_pictures(self):
        self.pictures()
        (self.folder / "pets/test/dog/cut.png").write_bytes(png(60, 80, (1, 2, 3))[:-30])
        self.refuse(3, "pets/test/dog/cut.png: damaged: ", "pets", "--output", "out")
        self.refuse(3, "nothing: cannot be read: No such file or directory", "nothing", "--output", "out")
        self.assertEqual(list(self.folder.glob("out/*")), [])

    def test_data_looks_at_them(self):
        self.pictures()
        self.expect_done("prepare", "--images", "pets", "--output", "out")
        lines = self.expect_done("data", "list", "out").splitlines()
        self.assertRegex(lines[1], "^ +12 pictures +3 classes .* train +6 x 8 +out/train.h5$")
        self.assertRegex(lines[3], "^ +15 pictures in 2 shards$")
        text = self.expect_done("data", "inspect", "out/train.h5")
        for line in ("format version +1", "checked +headers by the closing record, pictures as they are read",
                     "pictures +12, contiguous", "height x width +6 x 8", "class 2 +emu", "source +pets",
                     "checksum +xxh64:[0-9a-f]{16}"):
            self.assertRegex(text, f"(?m)^{line}$")
        self.assertEqual(self.expect_done("data", "verify", "out").count(": good, "), 2)
        shard = self.folder / "out/train.h5"
        whole = shard.read_bytes()
        at = whole.index(bytes((0, 20, 255)) * 8)
        shard.write_bytes(whole[:at] + b"\1" + whole[at + 1:])
        done = self.expect_refusal(3, "out/train.h5: damaged: picture 1 or its label does not match its checksum",
                                   "data", "verify", "out")
        self.assertIn("out/validation.h5: good, 3 pictures, 3 classes, ", done.stdout)
        # bad input: `train`: an image shard in the place of text | ...: an image shard, not a token shard (made by
        # `trireme prepare`) | 3
        self.expect_refusal(3, "out/validation.h5: an image shard, not a token shard", "train", "--data.train",
                            "out/validation.h5", "--model.preset", "test-gpt", "--run.steps", 1)


class Checkpoint(ProgramTest):
    def train(self):
        data = self.prepare()
        self.expect_done("train", "--data.train", data / "train.h5", "--model.preset", "test-gpt",
                         "--model.vocabulary", 257, "--model.context", 16, "--batch.global", 2,
                         "--batch.micro", 2, "--run.steps", 2, "--checkpoint.every", 1)
        return self.folder / "run/checkpoints/step-00000002.h5"

    def refuse(self, status, message, *arguments):
        return self.expect_refusal(status, message, "checkpoint", *arguments)

    def test_looks_at_good_ones(self):
        newest = self.train()
        for path in ("run", "run/checkpoints"):
            lines = self.expect_done("checkpoint", "list", path).splitlines()
            self.assertEqual([line.split()[0] for line in lines], ["step", "1", "2"])
            self.assertEqual(self.expect_done("checkpoint", "verify", path).count(": good, step "), 2)
        for path in ("run", newest):
            text = self.expect_done("checkpoint", "inspect", path)
            for line in ("^step +2$", "^samples +4$", "^parameters +[0-9]+ tensors", r"^layers = 7$",
                         r"^  parameters/\S+ +fp32 \("):
                self.assertRegex(text, f"(?m){line}")
        self.assertIn("good, step 2", self.expect_done("checkpoint", "verify", newest))

    def test_refuses_words(self):
        self.refuse(2, "checkpoint list|inspect|verify|prune PATH")
        # bad input: `checkpoint`: no action, an unknown one, no path, two paths | checkpoint verfy:
        # unknown; did you mean verify? | 2
        self.refuse(2, "checkpoint verfy: unknown; did you mean verify?", "verfy", "run")
        self.refuse(2, "checkpoint list takes one PATH, not 0", "list")
        self.refuse(2, "checkpoint list takes one PATH, not 2", "list", "a", "b")
        # bad input: `checkpoint prune` without `--superseded`, another action with it | checkpoint prune
        # removes nothing without --superseded: ... | 2
        self.refuse(2, "checkpoint prune removes nothing without --superseded", "prune", "run")
        self.refuse(2, "checkpoint verify takes no --superseded; prune does", "verify", "--superseded", "run")
        # bad input: `data`: a path where nothing is; a folder without shards | nowhere: No such file or
        # directory; ...: the folder holds no shards (*.h5) | 3
        # bad input: `checkpoint prune`: a folder that is not there; a move that is not complete | ...; the
        # next start of the run completes that, prune afterwards | 5
        self.refuse(5, "nowhere: No such file or directory; expected the folder of a run", "prune", "--superseded", "nowhere")
        self.assertIn(".: nothing is superseded", self.expect_done("checkpoint", "prune", "--superseded", "."))

    def test_prunes_what_is_superseded_alone(self):
        newest = self.train()
        old = self.folder / "run/superseded/4/checkpoints"
        old.mkdir(parents=True)
        shutil.copy(newest, old)
        kept = self.folder / "run/superseded/mine"
        kept.mkdir()
        text = self.expect_done("checkpoint", "prune", "run", "--superseded")
        self.assertRegex(text, "run/superseded/4: removed, 1 checkpoint, [0-9.]+ [kM]i?B")
        self.assertTrue(kept.exists() and newest.exists() and not old.exists())
        # What the run goes on from is not removed under it.
        shutil.copytree(kept, old)
        origin = {"generation": 5, "origin": "superseded/4/checkpoints/step-00000002.h5", "jobs": []}
        (self.folder / "run/branch.json").write_text(json.dumps(origin), encoding="utf-8")
        for path in newest.parent.iterdir():
            path.unlink()
        self.assertIn("kept, the run goes on from superseded/4",
                      self.expect_done("checkpoint", "prune", "run", "--superseded"))
        self.assertTrue(old.exists())

    def test_refuses_what_is_no_checkpoint(self):
        shard = self.prepare() / "train.h5"
        for action in ("list", "inspect", "verify"):
            self.refuse(4, "nowhere: No such file or directory; expected a checkpoint", action, "nowhere")
            (self.folder / "itself").unlink(missing_ok=True)
            (self.folder / "itself").symlink_to("itself")
            self.refuse(4, "itself: cannot be read: Too many levels of symbolic links", action, "itself")
            # bad input: `checkpoint`: a path where nothing is, or no checkpoint | ...: there are no
            # checkpoints, neither there nor in its folder checkpoints | 4
            self.refuse(4, "there are no checkpoints", action, ".")
            # bad input: `checkpoint`: a token shard, another HDF5 file, or another file altogether | ...:
            # not a checkpoint; ...: not a complete checkpoint: its closing record is missing ... | 4
            self.refuse(4, "train.h5: not a checkpoint", action, shard)
            self.refuse(4, "text.txt: not a complete checkpoint: ", action, "text.txt")

    def test_finds_damage(self):
        newest = self.train()
        whole = newest.read_bytes()
        middle = len(whole) // 2
        # bad input: `checkpoint verify`: a truncated or altered file | ...: damaged: tensor ... does not
        # match its checksum | 4
        for damaged, message in ((whole[:middle], "step-00000002.h5: "),
                                 (b"", "step-00000002.h5: "),
                                 (whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1:],
                                  "does not match its checksum")):
            newest.write_bytes(damaged)
            done = self.refuse(4, message, "verify", "run")
            self.assertIn("step-00000001.h5: good, step 1", done.stdout)
            self.assertNotIn("step-00000002.h5", done.stdout)


class Data(ProgramTest):
    def shards(self, count=2):
        """Shards of some blocks each, in the folder many."""
        text = self.folder / "long.txt"
        text.write_text("a line of text that is repeated\n" * 1000, encoding="utf-8")
        many = self.folder / "many"
        many.mkdir()
        for i in range(count):
            self.expect_done("prepare", "--input", text, "--tokenizer", "byte", "--output", self.folder / f"p{i}")
            (self.folder / f"p{i}/train.h5").rename(many / f"{i}.h5")
        return [many / f"{i}.h5" for i in range(count)]

    def refuse(self, status, message, *arguments):
        return self.expect_refusal(status, message, "data", *arguments)

    def test_looks_at_good_ones(self):
        first, second = self.shards()
        for words in (["many"], [first, second], [f"{first}=0.7,{second}=0.3"]):
            lines = self.expect_done("data", "list", *words).splitlines()
            self.assertEqual([line.split()[0] for line in lines], ["tokens", "32001", "32001", "64002"])
            self.assertEqual(self.expect_done("data", "verify", *words).count(": good, 32001 tokens, "), 2)
            text = self.expect_done("data", "inspect", *words)
            for line in ("^format version +2$", "^tokens +32001 of 2 bytes, contiguous$", "^vocabulary +257$",
                         "^checked +headers by the closing record, tokens as they are read$",
                         "^checksum +xxh64:[0-9a-f]{16}$"):
                self.assertRegex(text, f"(?m){line}")

    def test_shows_no_control_characters_of_a_shard(self):
        given = Path(__file__).resolve().parents[1] / "io/tokenizers"
        model = json.loads((given / "qwen2.json").read_text(encoding="utf-8"))
        model["added_tokens"][-1]["content"] = "\x1b[2J\nx"
        (self.folder / "model.json").write_text(json.dumps(model), encoding="utf-8")
        (self.folder / "\x1b[31mred.txt").write_text("a text\n" * 100, encoding="utf-8")
        self.expect_done("prepare", "\x1b[31mred.txt", "--output", "out", "--tokenizer", "model.json",
                         "--end-of-text", "\x1b[2J\nx")
        for action in ("list", "inspect"):
            text = self.expect_done("data", action, "out/train.h5")
            self.assertIn("huggingface:\\x1b[2J\\nx", text)
            self.assertNotIn("\x1b", text)

    def test_refuses_words(self):
        self.refuse(2, "data list|inspect|verify PATH...: nothing is given")
        # bad input: `data`: no action, an unknown one, no path | data verfy: unknown; did you mean verify?
        # | 2
        self.refuse(2, "data verfy: unknown; did you mean verify?", "verfy", "many")
        self.refuse(2, "data list needs a PATH", "list")
        self.refuse(2, "data a.h5=x: ", "list", "a.h5=x")

    def test_refuses_what_is_no_shard(self):
        (self.folder / "none").mkdir()
        (self.folder / "text.txt").write_text("no shard", encoding="utf-8")
        (self.folder / "itself").symlink_to("itself")
        for action in ("list", "inspect", "verify"):
            self.refuse(3, "itself: cannot be read: Too many levels of symbolic links", action, "itself")
            done = self.run_program("data", action, f"{'a' * 300}=0.5,b=1")  # longer than the name of a file
            self.assertEqual((done.returncode, done.stderr.count("cannot be ")), (3, 2), done.stderr)
            self.refuse(3, "nowhere: ", action, "nowhere")
            self.refuse(3, "none: the folder holds no shards (*.h5)", action, "none")
            self.refuse(3, "text.txt: not an HDF5 file but a text; trireme prepare makes shards of texts and pictures",
                        action, "text.txt")

    def test_finds_damage(self):
        first, second = self.shards()
        whole = first.read_bytes()
        offset = whole.index(b"a\0 \0l\0i\0n\0e\0")
        def flipped(at):
            return whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1:]
        for damaged, message in ((flipped(offset + 5000), "0.h5: damaged: tokens 2048 to 4095 (block 1) do not "
                                                          "match their checksum"),
                                 # bad input: a shard with a flipped token | ...: damaged: tokens 2048 to
                                 # 4095 (block 1) do not match their checksum | 3
                                 # bad input: a shard whose header is damaged, or that was cut | ...:
                                 # damaged: its headers do not match their checksum; ...: its last 24 bytes
                                 # are neither HDF5 nor a closing record | 3
                                 (flipped(100), "0.h5: damaged: its headers do not match their checksum"),
                                 (flipped(len(whole) - 1), "0.h5: damaged: its closing record does not match"),
                                 (whole[:-40], "neither HDF5 nor a closing record"),
                                 (whole[:len(whole) // 2], "0.h5: "),
                                 (b"", "0.h5: not an HDF5 file but an empty file")):
            first.write_bytes(damaged)
            done = self.refuse(3, message, "verify", "many")
            self.assertIn("1.h5: good, 32001 tokens", done.stdout)
            self.assertNotIn("0.h5", done.stdout)


if __name__ == "__main__":
    ProgramTest.program = Path(sys.argv.pop(1)).resolve()
    unittest.main()
