#!/usr/bin/env python3
"""Whole runs of the program with `--device cuda`: what a GPU computes equals what the CPU does. By the
program with an emulated GPU, whose kernels run on the CPU when the host waits for their stream, or by
`trireme` itself on a GPU (status 77, skipped, where there is none).

usage: device_train_test.py emulated TRIREME_EMULATED CHECKPOINT_DIFFERENCE MPIEXEC
       device_train_test.py real TRIREME CHECKPOINT_DIFFERENCE MPIEXEC
       device_train_test.py none   (a build without CUDA: skipped)
"""
import json
import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
from cli_testing import ProgramTest  # noqa: E402

FULL = os.environ.get("TRIREME_TESTS") == "full"  # models x recomputation, grids x graphs; else each is met once
STEPS = 6
COMMON = ("--model.layers 2 --model.width 24 --model.heads 2 --model.context 12 --batch.global 4 "
          "--batch.micro 2 --model.dropout 0.1 --optim.clip 0.5 --checkpoint.every 3 --log.every 100 "
          "--eval.every 4 --eval.batches 1 --threads 1").split()
# SGD where weights are compared: AdamW turns the rounding of a gradient that is zero into a step.
GPT = "--model.norm layer --model.activation gelu --model.positions learned --optim.name sgd --optim.lr 0.1".split()
LLAMA = ("--model.norm rms --model.activation swiglu --model.positions rotary --model.bias false "
         "--model.kv_heads 1 --model.tied false --optim.name sgd --optim.lr 0.1").split()
BERT = "--model.family bert --optim.name sgd --optim.lr 0.1".split()


def needs_emulation(test):
    return lambda self: test(self) if self.emulated else self.skipTest("for the emulated GPU")


class OnADevice(ProgramTest):
    difference = Path()
    mpiexec = "mpiexec"
    emulated = True

    def setUp(self):
        super().setUp()
        self.data = self.prepare("data", "--validation", "tail:1000")

    def arguments(self, run, device, *more):
        flags = ["--data.train", self.data / "train.h5", "--data.validation",
                 self.data / "validation.h5", "--run.folder", self.folder / run, "--run.steps", STEPS,
                 *COMMON, "--device", device, *more]
        last = dict(zip(map(str, flags[::2]), map(str, flags[1::2])))  # a flag may be given once only
        return ["train", *(word for pair in last.items() for word in pair)]

    def train(self, run, device, *more, **options):
        self.output = self.expect_done(*self.arguments(run, device, *more), **options)
        return self.metrics(run)

    def metrics(self, run):
        """What does not depend on the clock."""
        keys = ("step", "loss", "eval_loss", "grad_norm", "lr", "tokens", "skipped")
        lines = (self.folder / run / "metrics.jsonl").read_text().splitlines()
        return [{k: v for k, v in json.loads(line).items() if k in keys} for line in lines]

    def checkpoint(self, run, step=STEPS):
        return self.folder / run / "checkpoints" / f"step-{step:08d}.h5"

    def expect_close(self, got, expected, tolerance):
        self.assertEqual([line.keys() for line in got], [line.keys() for line in expected])
        for mine, wanted in zip(got, expected):
            for key, value in wanted.items():
                self.assertLessEqual(abs(mine[key] / value - 1), tolerance, (key, mine, wanted))

    def expect_close_weights(self, run, other, tolerance):
        words = subprocess.run([self.difference, self.checkpoint(run), self.checkpoint(other)],
                               capture_output=True, text=True, check=True).stdout.split()
        self.assertLessEqual(float(words[0]), tolerance, words)

    def test_bench_tells_what_the_device_does(self):
        phases = ("forward", "backward", "communication", "optimizer", "other")
        for ranks, flags in ((1, ()), (2, ("--tensor", 2))):
            with self.subTest(ranks=ranks):
                text = self.expect_done("bench", "step", "--preset", "test-gpt", "--batch", 2, "--micro", 1,
                                        "--repeats", 2, "--threads", 1, "--device", "cuda", *flags,
                                        "--json", "step.json", before=(self.mpiexec, "-n", ranks))
                self.assertRegex(text, r"(?m)^roof: [\d.]+ GFLOP/s in a \w+ product \([\d.]+ sustained\), [\d.]+ GB/s in a copy$")
                self.assertRegex(text, r"(?m)^test-gpt, .*, attention by own kernel \(cuDNN.*: .+\)$")
                data = json.loads((self.folder / "step.json").read_text())
                for phase in phases:
                    self.assertRegex(text, rf"(?m)^{phase} +[\d.]+ +[\d.]+$")
                for phase in ("forward", "backward", "optimizer"):
                    self.assertGreater(data[f"{phase}_seconds"], 0)
                self.assertEqual(data["communication_seconds"] > 0, ranks > 1)
        text = self.expect_done("bench", "ops", "--preset", "test-gpt", "--batch", 1, "--repeats", 1,
                                "--threads", 1, "--device", "cuda", "--only", "embedding")
        self.assertRegex(text, r"(?m)^embedding_backward +16 x \d+ +[\d.]+ ")

    def bench_kernels(self, *flags, **options):
        """The output and the JSON of a step that is taken apart, and also captured."""
        text = self.expect_done("bench", "step", "--preset", "test-gpt", "--batch", 2, "--micro", 1, "--repeats", 2,
                                "--threads", 1, "--device", "cuda", "--graphs", "--kernels", "--json", "step.json",
                                *flags, **options)
        return text, json.loads((self.folder / "step.json").read_text())

    def test_bench_takes_a_step_apart(self):
        for ranks, flags in ((1, ()), (2, ("--tensor", 2)))[self.emulated:]:  # one emulated rank: the next test
            with self.subTest(ranks=ranks):
                text, data = self.bench_kernels(*flags, before=(self.mpiexec, "-n", ranks))
                self.assertRegex(text, r"(?m)^matmul fp32 .*\n(.*\n)+sum .*\nthe step +[\d.]+ +100.0$")
                # Where CUPTI or a driver is missing, a line says so.
                self.assertEqual(len(re.findall("(?m)^kernels are not traced, operations are timed alone: .+$", text)),
                                 int("kernels" not in data))
                self.assertEqual("kernels" in data, "why_no_kernels" not in data)
                self.assertEqual(len(re.findall("(?m)^GPU: .+$", text)), 1)
                self.assertIn("gpu", data)

    @needs_emulation
    def test_bench_traces_kernels(self):
        folder = self.program.parent / "fake_cupti"
        if not folder.exists():
            self.skipTest("a build without CUPTI")
        text, data = self.bench_kernels(environment={"LD_LIBRARY_PATH": str(folder)})
        kernels = data["kernels"]
        self.assertEqual([(row["name"], row["calls"]) for row in kernels["rows"]],
                         [("gemm<float>", 2), ("norm", 1), ("fill", 1)])
        for row, seconds in zip(kernels["rows"], (0.004, 0.002, 0.0005)):
            self.assertAlmostEqual(row["seconds"], seconds)
        self.assertAlmostEqual(kernels["sum_seconds"], 0.0065)
        self.assertAlmostEqual(kernels["gap_seconds"], 0.001)
        self.assertAlmostEqual(kernels["rows"][2]["floor_seconds"], 4096 / data["roof"]["bandwidth"])
        self.assertEqual(kernels["lost_records"], 3 * 2)  # of both steps, not of the warm-up
        # Both kernels of that name are of the first operation of the step, which has no FLOPs.
        self.assertGreater(kernels["rows"][0]["floor_seconds"], 0.0)
        self.assertRegex(text, r"(?m)^gemm<float> +2 +4\.000 +- +[\d.]+ +[\d.]+ +[\d.]+ +[\d.]+$")
        self.assertRegex(text, r"(?m)^norm +1 +2\.000 +- +- +- +- +[\d.]+$")
        self.assertRegex(text, r"(?m)^gaps in which no kernel ran +1\.000 +[\d.]+\nthe step +[\d.]+ +100\.0$")
        self.assertIn("\n6 records of kernels were lost: the table lacks them\n", text)
        text, data = self.bench_kernels(environment={"LD_LIBRARY_PATH": str(folder), "TRIREME_FAKE_CUPTI": "held"})
        self.assertNotIn("kernels", data)
        self.assertIn("\nkernels are not traced, operations are timed alone: CUPTI is held by another tool, which traces "
                      "this program\n", text)

    @needs_emulation
    def test_profilers_see_phases_and_blocks(self):
        told = self.folder / "ranges.txt"
        self.train("ranges", "cpu", *GPT, "--run.steps", "2", "--eval.every", "0", environment={
            "NVTX_INJECTION64_PATH": str(self.program.parent / "libfake_nvtx.so"), "TRIREME_FAKE_NVTX": str(told)})
        lines = [line for line in told.read_text(encoding="utf-8").splitlines() if line.lstrip() != "read data"]
        first, second = (lines.index(f"step {step}") for step in (1, 2))
        step = lines[first:second]
        forward, backward = step.index("  forward 0"), step.index("  backward 0")
        blocks = [line for line in step[forward + 1:] if line.startswith("    ")]
        count = backward - forward - 1
        self.assertGreater(count, 2)
        self.assertEqual(len(set(blocks[:count])), count)  # each block once, and back again
        self.assertEqual(step[forward + 1:backward], blocks[:count])
        self.assertEqual(blocks[count:2 * count], blocks[count - 1::-1])
        self.assertIn("  optimizer", step)
        self.assertFalse([line for line in lines if "has not begun" in line or line.startswith("      ")], lines)

    def test_a_scaling_study_measures_the_device(self):
        self.expect_done("scale", "--data.train", self.data / "train.h5", "--output", "study", "--nodes", 1,
                         "--repeats", 1, "--mode", "strong", "--steps", 3, "--warmup", 1, "--threads", 1,
                         "--launcher", "mpiexec", "--model.preset", "test-gpt", "--batch.global", 2,
                         "--batch.micro", 2, "--device", "cuda")
        point = next(self.folder.glob("study/points/*/result.json"))
        self.assertGreater(json.loads(point.read_text())["memory_bytes_per_s"], 0)
        self.assertRegex((point.parent / "log").read_text(), r"(?m)^device +.+ \(cuda:0\)")

    def test_trains_as_the_cpu_does(self):
        for name, model in (("gpt", GPT), ("llama", LLAMA)):
            with self.subTest(name):
                cpu = self.train(name + "-cpu", "cpu", *model)
                self.assertNotIn("cuda:0", self.output)
                self.assertRegex(self.output, r"(?m)^attention +own kernel$")
                gpu = self.train(name + "-gpu", "cuda", *model)
                self.assertRegex(self.output, r"(?m)^device +.+ \(cuda:0\), [0-9]+ GiB")
                why = "not on an emulated GPU" if self.emulated else ".+"
                self.assertRegex(self.output, rf"(?m)^attention +own kernel \(cuDNN.*: {why}\)$")
                self.assertEqual([m["step"] for m in gpu if "loss" in m], list(range(1, STEPS + 1)))
                self.expect_close(gpu, cpu, 1e-4)
                self.expect_close_weights(name + "-gpu", name + "-cpu", 1e-4)
                # Streams, blocks and threads in another order: the same bits.
                again = self.train(name + "-again", "auto", *model,
                                   environment={"TRIREME_EMULATOR_SEED": "3"})
                self.assertEqual(again, gpu)
                self.expect_close_weights(name + "-again", name + "-gpu", 0.0)

    def test_trains_bert_as_the_cpu_does(self):
        cpu = self.train("cpu", "cpu", *BERT)
        gpu = self.train("gpu", "cuda", *BERT)
        self.assertRegex(self.output, r"(?m)^device +.+ \(cuda:0\), [0-9]+ GiB")
        self.assertEqual([m["step"] for m in gpu if "loss" in m], list(range(1, STEPS + 1)))
        self.expect_close(gpu, cpu, 1e-4)
        self.expect_close_weights("gpu", "cpu", 1e-4)
        again = self.train("again", "auto", *BERT, environment={"TRIREME_EMULATOR_SEED": "3"})
        self.assertEqual(again, gpu)
        self.expect_close_weights("again", "gpu", 0.0)
        rounded = (*BERT, "--run.precision", "bf16")
        losses = lambda lines: [{"loss": m["loss"]} for m in lines if "loss" in m]
        in_bf16 = losses(self.train("gpu-bf16", "cuda", *rounded))
        self.assertNotEqual(in_bf16, losses(gpu))
        self.expect_close(in_bf16, losses(self.train("cpu-bf16", "cpu", *rounded)), 5e-3)

    def test_few_bits_and_islands_as_on_the_cpu(self):
        """Codes of numbers at a tie may differ, so that weights agree to a part of a step's change."""
        for name, flags in (("compress", ("--comm.compress", "int8")),
                            ("islands", ("--grid.islands", 2, "--sync.every", 2, "--sync.reduce", "int4",
                                         "--sync.delay", 1))):
            with self.subTest(name):
                runs = {device: self.train(f"{name}-{device}", device, *GPT, *flags, before=(self.mpiexec, "-n", 2))
                        for device in ("cpu", "cuda")}
                self.expect_close(runs["cuda"], runs["cpu"], 2e-3)
                self.expect_close_weights(f"{name}-cuda", f"{name}-cpu", 2e-3)
        for device in ("cpu", "cuda"):
            self.expect_done(*self.arguments(f"member-{device}", device, *GPT, "--sync.member", "a", "--sync.every", 2))
        self.expect_close_weights("member-cuda", "member-cpu", 1e-4)

    def test_ranks_share_a_gpu(self):
        whole = self.train("one", "cpu", *GPT, "--grid.sequence_parallel", "false")
        grids = {(1, 2, 2): (*GPT, "--grid.sequence_parallel", "true"), (2, 2, 1): GPT}
        if FULL:
            grids[2, 1, 2] = GPT
        for (data, pipeline, tensor), model in grids.items():
            with self.subTest(f"{data}x{pipeline}x{tensor}"):
                run = f"grid-{data}{pipeline}{tensor}"
                grid = ("--grid.data", data, "--grid.pipeline", pipeline, "--grid.tensor", tensor)
                ranks = {"before": (self.mpiexec, "-n", data * pipeline * tensor)}
                got = self.train(run, "cuda", *model, *grid, **ranks)
                self.assertRegex(self.output, r"(?m)^device .*, shared with other ranks")
                self.expect_close(got, whole, 1e-4)
                self.expect_close_weights(run, "one", 1e-4)
                # Two replicas that hear of each other in another order, by algorithms that change from call to
                # call: the same bits.
                again = self.train(run + "-again", "cuda", *model, *grid, "--comm.tune", "true", **ranks,
                                   environment={"TRIREME_EMULATOR_SEED": "5"})
                self.assertEqual(again, got)

    def test_graphs_give_the_same_bits(self):
        fp16 = (*LLAMA, "--run.precision", "fp16", "--optim.loss_scale_interval", "2")
        modes = (("0", "none"), ("4", "full"), ("6", "selective"))
        for number, (name, model) in enumerate((("gpt", GPT), ("llama", LLAMA), ("fp16", fp16))):
            with self.subTest(name):
                plain = self.train(name + "-plain", "cuda", *model)
                self.assertNotIn("cuda.graphs", self.output)
                for seed, mode in modes if FULL else modes[number:number + 1]:
                    run = f"{name}-graphs-{seed}"
                    graphs = self.train(run, "cuda", *model, "--cuda.graphs", "true", "--recompute.mode", mode,
                                        environment={"TRIREME_EMULATOR_SEED": seed})
                    self.assertRegex(self.output, r"(?m)^cuda\.graphs: the step is captured, [0-9]{3,} "
                                                  r"operations; replayed from step 2 on$")
                    self.assertEqual(graphs, plain)
                    row = {"none": "recompute", "full": "recompute  full: only the input of each block is",
                           "selective": "recompute  selective: outputs of norms and activations are made again"}[mode]
                    self.assertEqual(mode != "none", "\n" + row in self.output)
                    self.expect_close_weights(run, name + "-plain", 0.0)
                if name != "gpt" and not FULL:
                    continue
                # Steps that are traced are not replayed.
                traced = self.train(f"{name}-traced", "cuda", *model, "--cuda.graphs", "true",
                                    "--log.trace", "4-5", environment={"TRIREME_EMULATOR_SEED": "5"})
                self.assertEqual(traced, plain)
                events = json.loads((self.folder / f"{name}-traced/trace.json").read_text())["traceEvents"]
                self.assertEqual(len([e for e in events if e.get("name") == "backward"]), 4)
                # Stopped and gone on with: captured anew.
                self.checkpoint(run).unlink()
                self.assertEqual(self.train(run, "cuda", *model, "--cuda.graphs", "true"), plain)
                self.assertIn("replayed from step 5 on", self.output)
                self.expect_close_weights(run, name + "-plain", 0.0)

    # Memory that is not let go of in order, or a call that would hang on a real one, is a line.
    @needs_emulation
    def test_nccl_carries_what_a_grid_computes(self):
        whole = self.train("one", "cpu", *GPT, "--grid.sequence_parallel", "false")
        for data, pipeline, tensor, schedule in ((2, 1, 2, "1f1b"), (1, 2, 2, "1f1b"), (2, 2, 1, "zb-h1"),
                                                 (1, 2, 1, "zb-v")):
            with self.subTest(f"{data}x{pipeline}x{tensor}, {schedule}"):
                run = f"nccl-{data}{pipeline}{tensor}"
                grid = ("--grid.data", data, "--grid.pipeline", pipeline, "--grid.tensor", tensor,
                        "--grid.schedule", schedule, "--comm.backend", "nccl", "--grid.sequence_parallel", str(tensor > 1).lower())
                ranks = (self.mpiexec, "-n", data * pipeline * tensor)
                counts = self.folder / f"{run}-nccl-"
                gpus = {"TRIREME_EMULATED_GPUS": "4", "TRIREME_EMULATED_NCCL": str(counts)}
                plain = self.train(run, "cuda", *GPT, *grid, before=ranks, environment=gpus)
                # The two of all ranks are for the host alone. (A model of one replica has one of its own.)
                dimensions = sum(size > 1 for size in (data, pipeline, tensor, pipeline * tensor))
                for rank in range(data * pipeline * tensor):
                    _, _, communicators, late, *_ = map(int, Path(f"{counts}{rank}").read_text().split())
                    # And the tied matrix's, where its two uses are on two stages.
                    tied = pipeline > 1 and schedule != "zb-v"
                    self.assertEqual(communicators, dimensions + tied)
                    self.assertEqual(late, 0, "connections that were made when activations had their memory")
                events = (self.folder / run / "events.jsonl").read_text().splitlines()
                self.assertRegex(json.loads(events[0])["detail"], r"connections [\d.]+ s")
                self.expect_close(plain, whole, 1e-4)
                self.expect_close_weights(run, "one", 1e-4)
                if data == 1 and not FULL:
                    continue
                graphs = self.train(run + "-graphs", "cuda", *GPT, *grid, "--cuda.graphs", "true",
                                    before=ranks, environment={**gpus, "TRIREME_EMULATOR_SEED": "6"})
                self.assertEqual(self.output.count("cuda.graphs: the step is captured"), 1)
                self.assertEqual(graphs, plain)
                self.expect_close_weights(run + "-graphs", run, 0.0)

    # What is left of the promise needs no MPI.
    @needs_emulation
    def test_nccl_carries_tensors_again_where_the_bits_part(self):
        flags = (*GPT, "--grid.sequence_parallel", "false", "--run.same_bits", "true", "--grid.pipeline", "1",
                 "--schedule.name", "constant", "--batch.global", "8", "--batch.micro", "1", "--checkpoint.every", "2")
        gpus = {"TRIREME_EMULATED_GPUS": "4", "TRIREME_EMULATED_NCCL": str(self.folder / "bits-nccl-")}
        self.train("bits", "cuda", *flags, "--run.steps", "2", before=(self.mpiexec, "-n", 2), environment=gpus)
        self.assertIn("tensors travel by mpi", self.output)
        self.train("bits", "cuda", *flags, "--run.steps", "4", before=(self.mpiexec, "-n", 3), environment=gpus)
        self.assertIn("the bits part here", self.output)
        self.assertIn("tensors travel by NCCL", self.output)

    # Shards of state and of weights, queued and captured, over MPI and NCCL.
    @needs_emulation
    def test_shards_have_the_bits_of_copies(self):
        ahead = ("--shard.prefetch", 2)
        for backend, data, tensor, model, stages in (
                ("mpi", 2, 1, LLAMA, ((3, "false", ahead),)),
                ("nccl", 4, 1, GPT, ((1, "true", ()), (3, "false", ahead), (3, "true", ()))),
                ("nccl", 2, 2, GPT, ((3, "true", ()),))):
            grid = ("--grid.data", data, "--grid.tensor", tensor, "--comm.backend", backend, "--batch.micro", 1,
                    "--batch.runs", 4, "--eval.every", 1)  # also between the first step and the one that is captured
            ranks = (self.mpiexec, "-n", data * tensor)
            run = f"{backend}-{data}{tensor}"
            counts = self.folder / f"{run}-nccl-"
            gpus = {"TRIREME_EMULATED_GPUS": str(data * tensor), "TRIREME_EMULATED_NCCL": str(counts)}
            gpus = gpus if backend == "nccl" else {}
            plain = self.train(run, "cuda", *model, *grid, before=ranks, environment=gpus)
            for stage, graphs, more in stages:
                with self.subTest(run, stage=stage, graphs=graphs):
                    name = f"{run}-{stage}-{graphs}"
                    got = self.train(name, "cuda", *model, *grid, "--shard.stage", stage, "--shard.group", 2,
                                     "--cuda.graphs", graphs, *more, before=ranks,
                                     environment={**gpus, "TRIREME_EMULATOR_SEED": "3"})
                    self.assertEqual(self.output.count("cuda.graphs: the step is captured"), graphs == "true")
                    self.expect_close(got, plain, 1e-6)
                    self.expect_close_weights(name, run, 1e-6 if backend == "nccl" else 0.0)
                    for rank in range(data * tensor if gpus else 0):
                        told = Path(f"{counts}{rank}").read_text()
                        windows, _, _, late, gathers, elsewhere = map(int, told.split())
                        self.assertEqual(late, 0, "connections that were made when activations had their memory")
                        self.assertGreater(gathers, 0, told)
                        if tensor == 1:  # those of weights alone
                            self.assertEqual(elsewhere, 0, told)
                            self.assertGreaterEqual(windows, 2, told)

    # Norms, copied key and value heads, and tied matrices stay equal although each of NCCL's communicators
    # adds up in an order of its own; where ranks of one do, against NCCL's promise, the run ends.
    @needs_emulation
    def test_copies_stay_equal_in_any_order_of_sums(self):
        model = (*LLAMA, "--model.tied", "true", "--batch.global", "6", "--optim.lr", "1", "--comm.backend", "nccl",
                 "--grid.sequence_parallel", "true", "--check.copies", "1", "--eval.every", "0")
        gpus = {"TRIREME_EMULATED_GPUS": "6"}
        ranks = (self.mpiexec, "-n", 6)
        grid = ("--grid.data", 3, "--grid.tensor", 2)
        plain = self.train("tree", "cuda", *model, *grid, before=ranks, environment=gpus)
        own = self.train("own", "cuda", *model, *grid, before=ranks,
                         environment={**gpus, "TRIREME_EMULATED_ORDER": "own"})
        self.assertNotEqual(own, plain)
        done = self.run_program(*self.arguments("drift", "cuda", *model, *grid), before=ranks,
                                environment={**gpus, "TRIREME_EMULATED_FAULT": "rank-order"})
        self.assertEqual(done.returncode, 70, done.stderr)
        self.assertEqual(done.stderr.count("trireme: "), 1, done.stderr)
        self.assertRegex(done.stderr, r"after step [0-9] ranks that must hold copies do not, in the weights of "
                                      r"\S+: ranks? .* holds? one value, ranks? .* another")

    @needs_emulation
    def test_what_computes_attention_is_said(self):
        why = {"TRIREME_EMULATED_NO_CUDNN": "libcudnn.so.9: no such file", "TRIREME_EMULATED_FAULT_RANK": "1"}
        self.train("run", "cuda", *GPT, "--grid.data", 2, "--run.steps", 1, before=(self.mpiexec, "-n", 2),
                   environment=why)
        said = ("own kernel (cuDNN: not on an emulated GPU); on rank 1 own kernel (cuDNN: libcudnn.so.9: no such "
                "file)")
        self.assertRegex(self.output, rf"(?m)^attention +{re.escape(said)}$")
        events = [json.loads(line) for line in (self.folder / "run/events.jsonl").read_text().splitlines()]
        self.assertIn(f"attention by {said};", next(e["detail"] for e in events if e["event"] == "start"))
        del why["TRIREME_EMULATED_FAULT_RANK"]
        text = self.expect_done("eval", "--checkpoint", "run", "--device", "cuda", environment=why)
        self.assertRegex(text, r"(?m)^attention +own kernel \(cuDNN: libcudnn.so.9: no such file\)$")

    @needs_emulation
    def test_what_cannot_be_captured_is_said(self):
        why = r"(?m)^cuda\.graphs: steps are queued as they are, not captured, because {}$"
        plain = self.train("cpu", "cpu", *GPT)
        self.assertEqual(self.train("cpu-graphs", "cpu", *GPT, "--cuda.graphs", "true"), plain)
        self.assertRegex(self.output, why.format("a CPU has nothing to capture"))
        self.train("mpi", "cuda", *GPT, "--cuda.graphs", "true", "--grid.data", 2, before=(self.mpiexec, "-n", 2))
        self.assertRegex(self.output, why.format("MPI carries tensors of the GPU by way of the host .*"))
        plain = self.train("gpu", "cuda", *GPT)
        refused = self.train("refused", "cuda", *GPT, "--cuda.graphs", "true",
                             environment={"TRIREME_EMULATED_FAULT": "no-capture"})
        self.assertRegex(self.output, why.format(".*not supported.*"))
        self.assertEqual(refused, plain)
        self.expect_close_weights("refused", "gpu", 0.0)

    # A rank computes by itself before communicators are made, where NCCL waits on the GPU.
    @needs_emulation
    def test_kernels_are_loaded_before_ranks_connect(self):
        for backend, loads in (("nccl", True), ("mpi", False)):
            self.train(backend, "cuda", *GPT, "--grid.data", 2, "--comm.backend", backend, before=(self.mpiexec, "-n", 2),
                       environment={"TRIREME_EMULATED_GPUS": "2"})
            start = next(json.loads(line) for line in (self.folder / backend / "events.jsonl").read_text().splitlines()
                         if '"start"' in line)
            phases = re.findall(r"(\w+) [0-9.]+ s(?:,|;|$)", str(start))
            following = phases[phases.index("data") + 1:]
            self.assertEqual(following[:2] == ["kernels", "grid"], loads, start)
            self.assertEqual("kernels" in phases, loads, start)

    @needs_emulation
    def test_nccl_is_captured_on_all_ranks_or_on_none(self):
        grid = (*GPT, "--grid.data", 2, "--comm.backend", "nccl")
        ranks = (self.mpiexec, "-n", 2)
        environment = {"TRIREME_EMULATED_GPUS": "2"}
        plain = self.train("plain", "cuda", *grid, before=ranks, environment=environment)
        environment["TRIREME_EMULATED_FAULT"] = "no-capture"
        self.assertEqual(self.train("none", "cuda", *grid, "--cuda.graphs", "true", "--comm.tune", "true",
                                    before=ranks, environment=environment), plain)
        self.assertEqual(self.output.count("comm.tune: NCCL chooses its algorithms itself; nothing is tried\n"), 1)
        self.assertIn("not captured, because end_capture: operation not supported", self.output)
        environment["TRIREME_EMULATED_FAULT_RANK"] = "1"
        done = self.run_program(*self.arguments("one", "cuda", *grid, "--cuda.graphs", "true"), before=ranks,
                                environment=environment)
        self.assertEqual(done.returncode, 71, done.stderr)
        self.assertEqual(done.stderr.count("trireme: "), 1, done.stderr)
        self.assertIn("rank 1 cannot capture the training step, though others can: end_capture: operation not "
                      "supported; --cuda.graphs false goes on without", done.stderr)

    # A table changes what NCCL takes, which the scripted one does not have. A run goes on with a table for others.
    @needs_emulation
    def test_nccl_gets_a_table(self):
        table = self.folder / "table"
        grid = (*GPT, "--grid.data", 2, "--comm.backend", "nccl")
        told = (*grid, "--nccl.tuner", table)
        ranks = (self.mpiexec, "-n", 2)
        environment = {"TRIREME_EMULATED_GPUS": "2"}
        plain = self.train("plain", "cuda", *grid, before=ranks, environment=environment)
        table.write_text("trireme-nccl-table 1\ncommunicator 2 1\ncompared ring\nall_reduce any ring/ll\n")
        self.assertEqual(self.train("tuned", "cuda", *told, before=ranks, environment=environment), plain)
        # The run's folder has what the communicators of rank 0 got, and the start names it.
        self.assertEqual((self.folder / "tuned/nccl-table.txt").read_text(),
                         table.read_text() + "# data: 2 ranks on 1 nodes\n")
        self.assertIn("; NCCL chooses by nccl-table.txt", (self.folder / "tuned/events.jsonl").read_text())
        self.assertFalse((self.folder / "plain/nccl-table.txt").exists())
        # bad input: `nccl.tuner`: a table that is for other numbers of ranks | nccl.tuner ...: no table for 2 ranks
        # on 1 node (data): NCCL chooses itself there | 0
        table.write_text("trireme-nccl-table 1\ncommunicator 8 2\nall_reduce any ring/ll\n")
        done = self.run_program(*self.arguments("other", "cuda", *told), before=ranks, environment=environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, f"trireme: nccl.tuner {table}: no table for 2 ranks on 1 node (data): NCCL "
                                      "chooses itself there\n")
        self.assertEqual(self.metrics("other"), plain)
        # bad input: `nccl.tuner`: rates that were measured on other nodes | nccl.tuner ...: measured without ...: NCCL
        # chooses itself | 0
        rates = {"format": "trireme network rates", "version": 1, "cluster": "", "measured": 1, "hosts": ["nowhere"],
                 "distances": [{"latency": 1e-6, "flow": 1e9, "host": 0, "block": 0}] * 2, "tiers": [],
                 "costs": {"message": 0, "reduced_byte": 0, "copied_byte": 0}, "collectives": []}
        table.write_text(json.dumps(rates))
        done = self.run_program(*self.arguments("stale", "cuda", *told), before=ranks, environment=environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, rf"^trireme: nccl\.tuner {table}: measured without .*: NCCL chooses itself\n$")
        self.assertEqual(self.metrics("stale"), plain)
        # Those of this node make no table for communicators inside of it.
        table.write_text(json.dumps({**rates, "hosts": [re.search("measured without (.*): NCCL", done.stderr)[1]]}))
        self.assertEqual(self.train("rates", "cuda", *told, before=ranks, environment=environment), plain)
        # bad input: `nccl.tuner`: a file that is no table, or cannot be read | nccl.tuner ...: line 1: the first line
        # must be 'trireme-nccl-table 1' | 2
        table.write_text("all_reduce any ring/ll\n")
        done = self.run_program(*self.arguments("bad", "cuda", *told), before=ranks, environment=environment)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(done.stderr, f"trireme: nccl.tuner {table}: line 1: the first line must be "
                                      "'trireme-nccl-table 1'\n")

    # The table is made for the network that comm.network gives.
    @needs_emulation
    def test_nccl_gets_a_table_for_the_network(self):
        rates = {"format": "trireme network rates", "version": 1, "cluster": "", "measured": 1, "hosts": ["n0", "n1"],
                 "distances": [{"latency": 1e-6, "flow": 1e9, "host": 0, "block": 0}] * 2, "tiers": [],
                 "costs": {"message": 0, "reduced_byte": 0, "copied_byte": 0}, "collectives": []}
        (self.folder / "rates.json").write_text(json.dumps(rates))
        nodes = (self.mpiexec, "-n", 2, "sh", "-c", 'SLURMD_NODENAME=n$PMI_RANK exec "$@"', "sh")
        told = (*GPT, "--grid.data", 2, "--comm.backend", "nccl", "--comm.network")
        by_rates = self.train("rates", "cuda", *told, self.folder / "rates.json", "--nccl.tuner",
                              self.folder / "rates.json", before=nodes)
        self.assertEqual(self.train("network", "cuda", *told, self.folder / "rates.json", "--nccl.tuner", "network",
                                    before=nodes), by_rates)
        table = (self.folder / "network/nccl-table.txt").read_text()
        self.assertIn("communicator 2 2\n", table)
        self.assertEqual((self.folder / "rates/nccl-table.txt").read_text(), table)
        # bad input: `nccl.tuner network` where `comm.network` gives none | nccl.tuner network: comm.network none gives
        # no network: NCCL chooses itself | 0
        done = self.run_program(*self.arguments("none", "cuda", *told, "none", "--nccl.tuner", "network"), before=nodes)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr,
                         "trireme: nccl.tuner network: comm.network none gives no network: NCCL chooses itself\n")
        self.assertFalse((self.folder / "none/nccl-table.txt").exists())

    @needs_emulation
    def test_nccl_wants_a_gpu_a_rank(self):
        done = self.run_program(*self.arguments("run", "cuda", "--comm.backend", "nccl", "--grid.data", 2),
                                before=(self.mpiexec, "-n", 2))
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(done.stderr.count("trireme: "), 1, done.stderr)
        self.assertIn("comm.backend", done.stderr)

    def test_bf16_and_adamw(self):
        more = (*LLAMA, "--run.precision", "bf16", "--optim.name", "adamw", "--optim.lr", "3e-3")
        cpu = self.train("cpu", "cpu", *more)
        # Eight bits of every product are kept: norms differ by more than losses.
        gpu = self.train("gpu", "cuda", *more)
        losses = lambda run: [{"loss": m["loss"]} for m in run if "loss" in m]
        self.expect_close(losses(gpu), losses(cpu), 5e-3)
        # The same with logits in bf16, which are others.
        more = (*more, "--model.logits", "bf16")
        narrow = {device: self.train(f"logits-{device}", device, *more) for device in ("cpu", "cuda")}
        self.expect_close(losses(narrow["cuda"]), losses(narrow["cpu"]), 5e-3)
        self.assertNotEqual(losses(narrow["cpu"]), losses(cpu))
        self.assertNotEqual(losses(narrow["cuda"]), losses(gpu))
        again = self.train("logits-again", "cuda", *more, environment={"TRIREME_EMULATOR_SEED": "3"})
        self.assertEqual(again, narrow["cuda"])
        evaluated = []
        for how in (("cpu",), ("cuda",), ("cpu", "--precision", "fp32")):
            text = self.expect_done("eval", "--checkpoint", "logits-cpu", "--device", *how)
            evaluated.append(float(re.search(r"(?m)^loss +(\S+)$", text)[1]))
        for other in evaluated[1:]:
            self.assertAlmostEqual(other, evaluated[0], delta=5e-3)

    # The values of both settings are the same but where weights are ties.
    def test_split_masters(self):
        more = (*LLAMA, "--run.precision", "bf16", "--optim.name", "adamw", "--optim.lr", "3e-3")
        split = (*more, "--optim.masters", "split")
        whole = self.train("whole", "cuda", *split)
        losses = lambda run: [{"loss": m["loss"]} for m in run if "loss" in m]
        self.expect_close(losses(whole), losses(self.train("cpu", "cpu", *split)), 5e-3)
        self.train("half", "cuda", *split)
        self.checkpoint("half").unlink()
        self.assertEqual(self.train("half", "cuda", *split), whole)
        self.expect_close_weights("half", "whole", 0.0)
        self.checkpoint("half").unlink()
        self.expect_close(losses(self.train("half", "cuda", *more)), losses(whole), 1e-3)
        self.assertIn("optim.masters was split, is fp32", self.output)
        evaluated = []
        for device in ("cuda", "cpu"):
            text = self.expect_done("eval", "--checkpoint", "whole", "--device", device)
            evaluated.append(float(re.search(r"(?m)^loss +(\S+)$", text)[1]))
        self.assertAlmostEqual(evaluated[0], evaluated[1], delta=5e-3)

    # A product of 128 x 128 x 128 takes the emulated GPU long, so there are few.
    FP8 = (*LLAMA, "--run.precision", "fp8", "--model.layers", 1, "--model.width", 128, "--model.kv_heads", 2,
           "--model.hidden", 128, "--model.context", 64, "--batch.global", 2, "--run.steps", 3)

    def test_fp8(self):
        if self.emulated or self.has_block_scales():
            cpu = self.train("cpu", "cpu", *self.FP8)
            gpu = self.train("gpu", "cuda", *self.FP8)
            losses = lambda run: [{"loss": m["loss"]} for m in run if "loss" in m]
            self.expect_close(losses(gpu), losses(cpu), 5e-3)
            in_bf16 = self.train("bf16", "cpu", *self.FP8, "--run.precision", "bf16")
            self.assertNotEqual(losses(in_bf16)[1:], losses(cpu)[1:])

    def has_block_scales(self):
        """Whether the GPU has them; if it has not, that it is refused for that."""
        done = self.run_program(*self.arguments("asked", "cuda", *self.FP8, "--run.steps", 1))
        if done.returncode == 0:
            return True
        self.assertEqual(done.returncode, 71, done.stderr)
        self.assertIn("run.precision is fp8, but on ", done.stderr)
        return False

    @needs_emulation
    def test_fp8_of_a_gpu_without_block_scales(self):
        # bad input: `train --run.precision fp8` on a GPU without block scales |
        # has no products of e4m3 with a scale for each block of 128 on this device: ... give run.precision bf16 | 71
        for ranks in (1, 2):
            done = self.run_program(*self.arguments("run", "cuda", *self.FP8), before=(self.mpiexec, "-n", ranks),
                                    environment={"TRIREME_EMULATED_FAULT": "no-block-scales"})
            self.assertEqual(done.returncode, 71, done.stderr)
            self.assertEqual(done.stderr.count("trireme: "), 1, done.stderr)
            self.assertIn("has no products of e4m3 with a scale for each block of 128", done.stderr)
            self.assertIn("give run.precision bf16", done.stderr)

    def test_stops_and_goes_on(self):
        whole = self.train("whole", "cuda", *GPT)
        self.train("half", "cuda", *GPT)
        self.checkpoint("half").unlink()
        self.assertEqual(self.train("half", "cuda", *GPT), whole)
        self.assertIn("step-00000003.h5, step 3", self.output)
        self.assertNotIn("agree to rounding", self.output)
        self.expect_close_weights("half", "whole", 0.0)

    def test_bench_ops_in_a_graph_with_a_cold_cache(self):
        flags = ("bench", "ops", "--preset", "test-gpt", "--batch", 1, "--context", 8, "--repeats", 2, "--only", "norm")
        usual, cold = (self.expect_done(*flags, "--device", "cuda", *more).splitlines()
                       for more in ((), ("--graphs", "true", "--cold", "true")))
        self.assertEqual([line.split()[0] for line in cold], [line.split()[0] for line in usual])

    @needs_emulation  # a real library has other algorithms
    def test_takes_algorithms_of_products_by_time(self):
        flags = [*COMMON, *GPT, "--run.device", "cuda", "--data.train", str(self.data / "train.h5")]
        (self.folder / "run.ini").write_text("".join(
            f"{key[2:]} = {value}\n" for key, value in zip(flags[::2], flags[1::2]) if "." in key))
        text = self.expect_done("bench", "products", "--config", "run.ini", "--write", "products.json",
                                "--repeats", 2, before=(self.mpiexec, "-n", "2"))
        self.assertRegex(text, r"(?m)^\(\d+, \d+\) by \(\d+, \d+\)\^T in fp32 into fp32.* \d+ +3( +[\d.]+){3}$")
        self.assertRegex(text, r"all calls of rank 0 take [\d.]+ % less than with the first proposals")
        file = json.loads((self.folder / "products.json").read_text())
        self.assertRegex(text, rf"products.json: {len(file['products'])} products")
        named = ("--cuda.products", self.folder / "products.json")
        first = self.train("run", "cuda", *GPT, *named)
        self.assertRegex(self.output, r"cuda.products \S+products.json: \d+ algorithms\n")
        # What the run has recorded counts, whatever the file has become.
        self.checkpoint("run").unlink()
        (self.folder / "products.json").write_text("{}")
        self.assertEqual(self.train("run", "cuda", *GPT, *named), first)
        self.assertRegex(self.output, r"cuda.products \S+products.json: \d+ algorithms, as before\n")
        self.assertNotIn("agree to rounding", self.output)
        self.checkpoint("run").unlink()
        self.train("run", "cuda", *GPT)
        self.assertRegex(self.output, r"to rounding, not to the bit: .*product_algorithms was \d+ algorithms, "
                                      r"xxh64:\w+, is none")
        # One that this library refuses, and a file of another machine.
        file["products"][1]["algorithm"]["tile"] = 999
        (self.folder / "products.json").write_text(json.dumps(file))
        self.train("other", "cuda", *GPT, *named)
        count = len(file["products"])
        self.assertRegex(self.output, rf"products.json: {count - 1} algorithms; 1 do not fit, so cuBLASLt "
                                      r"chooses there itself, as for \(")
        file["gpu"] = "NVIDIA X1"
        (self.folder / "products.json").write_text(json.dumps(file))
        self.train("third", "cuda", *GPT, *named)
        self.assertRegex(self.output, r"products.json: of NVIDIA X1 with cuBLASLt .*, but rank 0 is .*: "
                                      r"cuBLASLt chooses itself")
        self.assertIn("cuda.products is for products on GPUs", self.train("cpu", "cpu", *GPT, *named) and self.output)

    def test_changes_devices_on_the_way(self):
        whole = self.train("cpu", "cpu", *GPT)
        for first, second in (("cpu", "cuda"), ("cuda", "cpu")):
            with self.subTest(second):
                run = f"{first}-{second}"
                self.train(run, first, *GPT)
                self.checkpoint(run).unlink()
                self.expect_close(self.train(run, second, *GPT), whole, 1e-4)
                self.assertRegex(self.output, r"results will agree to rounding, not to the bit: "
                                              r"device was (cpu, is .+|.+, is cpu)")
                self.expect_close_weights(run, "cpu", 1e-4)

    def test_eval_and_generate(self):
        self.train("run", "cuda", *LLAMA)
        losses, texts = [], []
        for device in ("cpu", "cuda"):
            text = self.expect_done("eval", "--checkpoint", "run", "--device", device)
            losses.append(float(re.search(r"(?m)^loss +(\S+)$", text)[1]))
            done = self.run_program("generate", "--checkpoint", "run", "--tokens", 16, "--prompt", "Line",
                                    "--temperature", 0, "--device", device)
            self.assertEqual(done.returncode, 0, done.stderr)
            texts.append(done.stdout)
        self.assertAlmostEqual(losses[0], losses[1], delta=1e-4)
        self.assertEqual(texts[0], texts[1])

    def test_a_step_that_is_not_finite_is_skipped_on_the_device(self):
        # The first update makes the weights so large that the next gradients overflow.
        more = (*GPT, "--optim.lr", "1e30", "--schedule.warmup", "0", "--optim.clip", "0", "--eval.every", "0")
        for device in ("cpu", "cuda"):
            metrics = self.train(device, device, *more)
            self.assertEqual([m["step"] for m in metrics if m.get("skipped")], list(range(2, STEPS + 1)), device)

    def test_memory_is_told_by_what_it_is_for(self):
        self.train("run", "cuda", *GPT, "--eval.every", "0")
        line = json.loads((self.folder / "run/metrics.jsonl").read_text().splitlines()[-1])
        for use in ("parameters", "gradients", "activations", "workspace"):
            self.assertGreater(line["memory"][use], 0, line)
        self.assertGreaterEqual(line["device_memory_bytes"], line["memory"]["parameters"])

    @needs_emulation
    def test_a_missing_wait_shows(self):
        cpu = self.train("cpu", "cpu", *GPT)
        done = self.run_program(*self.arguments("gpu", "cuda", *GPT),
                                environment={"TRIREME_EMULATED_FAULT": "no-event-wait"})
        if done.returncode == 0:
            with self.assertRaises(AssertionError):
                self.expect_close(self.metrics("gpu"), cpu, 1e-4)

    def test_bench(self):
        if self.emulated:
            self.skipTest("its roof is a product of 2048 x 2048, which takes the emulated GPU minutes")
        for what, more in (("step", ("--batch", 1)), ("ops", ("--only", "add"))):
            output = self.expect_done("bench", what, "--preset", "test-gpt", "--context", 8, "--repeats", 1,
                                      "--device", "cuda", *more)
            self.assertIn("roof: ", output)

    @needs_emulation
    def test_bench_comm(self):
        for backend, carrier in (("mpi", "mpi"), ("nccl", "NCCL")):
            output = self.expect_done("bench", "comm", "--device", "cuda", "--backend", backend, "--from", "4K",
                                      "--to", "16K", "--repeats", 1, "--warmup", 0,
                                      before=(self.mpiexec, "-n", 2), environment={"TRIREME_EMULATED_GPUS": "2"})
            self.assertRegex(output, rf"(?m)^2 ranks on 1 nodes, fp32, 1 repeats, fake GPU, carried by {carrier}")
            rows = re.findall(r"(?m)^\w+ +[0-9]+ +[0-9.]+ .* 0  table(?: \((\w+)\))?$", output)
            self.assertEqual(len(rows), 12, output)
            # NCCL does not say what it takes; two exchanges have no algorithm.
            self.assertEqual(rows.count("direct"), 10 if backend == "mpi" else 0, output)

    @needs_emulation
    def test_the_host_waits_once_a_step(self):
        def waits(steps):
            file = self.folder / f"waits-{steps}"
            self.train(f"run-{steps}", "cuda", *GPT, "--run.steps", steps, "--checkpoint.every", "0",
                       "--eval.every", "0", environment={"TRIREME_EMULATED_WAITS": str(file)})
            return int(file.read_text())

        # Fewer steps would not do: at the end the host also waits for each pinned block that is idle.
        self.assertEqual(waits(11) - waits(6), 5)

    @needs_emulation
    def test_without_a_gpu(self):
        none = {"TRIREME_EMULATED_GPUS": "0"}
        # bad input: `train`: `--device cuda` where no GPU is to be had | run.device is cuda, but rank 0
        # sees no GPU (why): use cpu or auto, or ask the launcher for GPUs | 2
        self.expect_refusal(2, "run.device is cuda, but rank 0 sees no GPU (the emulated machine has none): "
                            "use cpu or auto", *self.arguments("run", "cuda"), environment=none)
        self.assertFalse((self.folder / "run").exists())
        self.train("run", "auto", *GPT, environment=none)
        self.assertNotIn("fake GPU", self.output)


if __name__ == "__main__":
    kind = sys.argv.pop(1)
    if kind == "none":
        print("SKIPPED: a build without CUDA")
        sys.exit(77)
    OnADevice.emulated = kind == "emulated"
    OnADevice.difference = Path(sys.argv.pop(2)).resolve()
    OnADevice.program = Path(sys.argv.pop(1)).resolve()
    OnADevice.mpiexec = sys.argv.pop(1)
    if kind == "real":
        version = subprocess.run([OnADevice.program, "version"], capture_output=True, text=True, check=True)
        if "cuda:0" not in version.stdout:
            print("SKIPPED: no GPU here")
            sys.exit(77)
    unittest.main()
