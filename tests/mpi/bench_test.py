#!/usr/bin/env python3
"""trireme bench: its tables on several ranks, at tiny sizes. Nothing is asserted of times, but that pauses are made.

    python3 bench_test.py TRIREME MPIEXEC
"""
import json
import os
import re
import runpy
import socket
import subprocess
import sys
import time
import types
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/support"))
from cli_testing import ProgramTest, network_rates  # noqa: E402

COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all", "exchange")
FACTORS = {1: (0, 0, 0, 1, 0, 1), 2: (1, 1 / 2, 1 / 2, 1, 1 / 2, 1), 4: (3 / 2, 3 / 4, 3 / 4, 1, 3 / 4, 1)}
STEP = ("--preset", "test-gpt", "--repeats", 2)


class Bench(ProgramTest):
    mpiexec = ""

    def ranks(self, number):
        return [self.mpiexec, "-n", number]

    def read(self, name):
        return json.loads((self.folder / name).read_text())

    def test_comm(self):
        for ranks, factors in FACTORS.items():
            with self.subTest(ranks=ranks):
                text = self.expect_done("bench", "comm", "--from", "1K", "--to", "16K", "--repeats", 2,
                                        "--warmup", 1, "--json", "comm.json", before=self.ranks(ranks))
                title, columns, *lines = text.splitlines()
                self.assertEqual(title, f"{ranks} ranks on 1 nodes, fp32, 2 repeats, cpu, carried by mpi")
                self.assertEqual(re.split(r"  +", columns),
                                 ["op", "bytes", "time us", "algbw GB/s", "busbw GB/s", "#wrong", "carrier"])
                rows = [line.split() for line in lines]
                self.assertEqual([(row[0], row[1], row[5]) for row in rows],
                                 [(op, size, "0") for op in COLLECTIVES for size in ("1024", "4096", "16384")])
                data = self.read("comm.json")
                self.assertEqual(data["ranks"], ranks)
                for i, row in enumerate(data["rows"]):
                    self.assertEqual((row["op"], str(row["bytes"])), tuple(rows[i][:2]))
                    self.assertAlmostEqual(row["algorithm_bandwidth"] * row["seconds"], row["bytes"], 3)
                    self.assertAlmostEqual(row["bus_bandwidth"] / row["algorithm_bandwidth"], factors[i // 3])

    def test_comm_of_each_carrier(self):
        """Every algorithm alone and MPI's own calls in turns; a carrier is left out where it does not know the operation."""
        text = self.expect_done("bench", "comm", "--from", "4K", "--to", "4K", "--repeats", 9, "--seconds", 1e-9,
                                "--algorithm", "all", "--peer", "--json", "comm.json", before=self.ranks(3))
        carriers = {}
        for row in self.read("comm.json")["rows"]:
            self.assertEqual((row["wrong"], row["repeats"]), (0, 3))
            carriers.setdefault(row["op"], []).append(row["carrier"])
        self.assertEqual(carriers["exchange"], ["table"])
        own = ["MPI", "MPI, yielding"]
        for op in COLLECTIVES[:-1]:
            self.assertEqual(carriers[op][:2], ["table", "any"])
            self.assertEqual(carriers[op][-3:], ["library", *own])
            self.assertGreater(len(carriers[op]), 4)  # an algorithm of ours, at least
        self.assertIn("halving", carriers["all_reduce"])
        self.assertNotIn("halving", carriers["broadcast"])
        self.assertIn("  MPI, yielding\n", text)
        text = self.expect_done("bench", "comm", "--from", "4K", "--to", "4K", "--repeats", 1, "--only", "all_reduce",
                                "--algorithm", "halving,table,library", before=self.ranks(2))
        self.assertEqual([line.split()[6:] for line in text.splitlines()[2:]],
                         [["halving"], ["table", "(direct)"], ["library"]])

    def test_comm_of_some_operations_and_sizes(self):
        self.expect_done("bench", "comm", "--from", "4K", "--to", "128K", "--factor", 32, "--repeats", 9, "--seconds", 1e-9,
                         "--fewest", 2, "--only", "reduce,to_all", "--json", "comm.json", before=self.ranks(2))
        rows = self.read("comm.json")["rows"]
        self.assertEqual([(row["op"], row["bytes"], row["repeats"]) for row in rows],
                         [(op, size, 2) for op in ("all_reduce", "reduce_scatter", "all_to_all") for size in (4096, 131072)])

    def test_comm_does_not_repeat_who_is_far_behind(self):
        # In 200 runs of that size there are far more than 5 ms.
        self.expect_done("bench", "comm", "--from", "1M", "--to", "1M", "--repeats", 200, "--warmup", 0, "--only", "all_reduce",
                         "--algorithm", "direct,halving,tiered", "--drop", 1, "--json", "comm.json", before=self.ranks(2))
        repeats = [row["repeats"] for row in self.read("comm.json")["rows"]]
        self.assertTrue(all(1 <= count <= 200 for count in repeats), repeats)
        self.assertLess(min(repeats), 200)

    def test_comm_pauses_before_each_run(self):
        begin = time.monotonic()
        self.expect_done("bench", "comm", "--from", "4K", "--to", "4K", "--repeats", 4, "--warmup", 0, "--only", "all_reduce",
                         "--pause", 0.8, "--json", "comm.json", before=self.ranks(2))
        self.assertGreater(time.monotonic() - begin, 5 * 0.8)

    def test_comm_beside_the_prediction(self):
        """Each table's choice and each algorithm has a prediction, MPI's own has none."""
        (self.folder / "rates.json").write_text(json.dumps(network_rates([socket.gethostname()])))
        text = self.expect_done("bench", "comm", "--from", "4K", "--to", "4K", "--repeats", 1, "--only", "all_reduce",
                                "--algorithm", "table,any,halving,library", "--network", "rates.json", "--json", "comm.json",
                                before=self.ranks(2))
        self.assertIn("  predicted us  carrier\n", text)
        rows = {row["carrier"]: row for row in self.read("comm.json")["rows"]}
        for carrier in ("table", "any", "halving"):
            self.assertGreater(rows[carrier]["predicted_seconds"], 0)
        self.assertEqual(rows["halving"]["algorithm"], "halving")
        self.assertNotIn("predicted_seconds", rows["library"])
        self.assertRegex(text, r"(?m) +-  library$")

    def test_comm_rounds_to_whole_parts(self):
        text = self.expect_done("bench", "comm", "--from", 4, "--to", 64, "--repeats", 1, "--only", "gather",
                                before=self.ranks(3))
        self.assertEqual([line.split()[:2] for line in text.splitlines()[2:]],
                         [["all_gather", "12"], ["all_gather", "12"], ["all_gather", "60"]])

    def test_what_is_made_of_collectives(self):
        """perf/collectives.py goes on in its file, and says the worst ratios and errors."""
        script = runpy.run_path(str(ROOT / "perf/collectives.py"))
        head = {"nodes": 4, "taper": 4, "rate": "400mbit", "order": "1 2 3 4", "operation": "all_reduce"}

        def alone(name, seconds, predicted):
            return {"seconds": seconds, "repeats": 1, "algorithm": name, "predicted_seconds": predicted}
        times = {"table": alone("halving", 2.2, 2.0), "halving": alone("halving", 2.0, 1.5), "tiered": alone("tiered", 1.0, 1.0),
                 "ring": alone("ring", 0.5, 1.0), "MPI": {"seconds": 4.0}, "MPI, yielding": {"seconds": 1.1}}
        results = script["Results"](self.folder / "cells.jsonl")
        results.add({**head, "size": "16M", "bytes": 16 << 20, "bound": 0.8, "times": times})
        # An earlier version measured what MPI was told to take in a round of its own.
        results.add({**head, "size": "16M", "round": 4, "bytes": 16 << 20, "bound": 0.8, "times": {"library-ring": {"seconds": 1.0}}})
        results.add({**head, "size": "64M", "failed": "more than 60 s"})
        with (self.folder / "cells.jsonl").open("a") as file:
            file.write('{"nodes": 4, "tap')  # what an end without warning leaves
        results = script["Results"](self.folder / "cells.jsonl")
        self.assertTrue(results.has((4, 4, "400mbit", "1 2 3 4", "all_reduce", "64M")))
        self.assertFalse(results.has((4, 4, "400mbit", "1 2 3 4", "all_reduce", "1M")))
        results.add({**head, "size": "4M", "failed": "more than 60 s"})
        self.assertEqual(len(script["Results"](self.folder / "cells.jsonl").lines), 4)
        cells = results.cells()
        self.assertEqual([len(cell["times"]) for cell in cells], [7])
        text = script["summary"](cells)
        self.assertIn("| table to MPI | 2.00 | 2.00 | 1 of 1 above 1.05 |", text)
        self.assertIn("| table to best single algorithm | 2.20 |", text)  # a ring adds in another order
        self.assertIn("| table to the links' bound | 2.75 |", text)
        self.assertIn("| all | 41.7 % | +25.0 % | +100 % | 3 | ring: all_reduce of 16M", text)
        text = script["by_size"](cells)
        self.assertIn("| 16M | 2.75 | 1.38, 1.38 | 2.00 | 1 of 1 | 2.20 | 1 of 1 | 41.7 % |", text)
        self.assertIn("- all_reduce of 16M, 4 nodes, 4:1, ranks on 1 2 3 4: halving, 2.00 of MPI, 2.20 of the best, tiered\n",
                      text)
        better = {**cells[0], "times": {**times, "table": alone("halving", 1.1, 2.0)}}
        text = script["by_size"](cells, [[better], [better]])
        self.assertIn("| 1 of 1, 0 by the median of 3 runs | 2.20 | 1 of 1, 1 by the median of 3 runs |", text)
        self.assertIn("2.20 of the best, tiered; again 1.00 of MPI, 1.10 of the best; again 1.00 of MPI, 1.10 of the best\n",
                      text)
        other = {**better, "order": "1 3 2 4"}
        self.assertIn("| 1 of 1, 1 by the median of 2 runs, 1 measured less often |", script["by_size"](cells, [[other]]))
        self.assertIn("| 16M | 2.75 | - | - | 0 of 1 |", script["by_size"](
            [{**cells[0], "times": {name: time for name, time in times.items() if not name.startswith("MPI")}}]))
        options = types.SimpleNamespace(budget=1, rate="400mbit")
        runner = script["Runner"](options, None, results)
        self.assertEqual(runner.carriers(4, 4, "1 2 3 4", "64M", "all_reduce", "table,any,halving,tiered,ring"),
                         "table,any,tiered,ring")

    def test_what_is_made_of_training_steps(self):
        """perf/training.py compares steps with what cores and links allow."""
        with mock.patch.object(sys, "path", [str(ROOT / "perf"), *sys.path]):
            script = runpy.run_path(str(ROOT / "perf/training.py"))
        lines = []

        def add(kind, order, batch, planned, step, exposed=0.0):
            lines.append({"kind": kind, "grid": "1x1", "order": order, "nodes": len(order.split()), "batch": batch,
                          "planned": planned, "repeat": 0, "rate": "100mbit", "taper": 4, "step": step, "exposed": exposed,
                          "gradients": 1e6})
        add("alone", "1", 8, False, 1.0)
        add("alone", "1 2 3 4", 2, False, 0.25)
        add("training", "1 2 3 4", 8, False, 0.8, 0.5)
        add("training", "1 2 3 4", 8, True, 0.5, 0.25)
        text = script["report"](lines)
        self.assertIn("| 1x1 | 1 2 3 4 | 500 | 250 | 0.50 | 800 | 500 | 1.60 |", text)
        # The uplinks let 1448 in 1514 bytes of 50 Mbit/s pass, which is 167 ms for 1 MB.
        # A replica has one micro-batch: its backward, 167 ms, can hide just these.
        self.assertIn("| strong | 4 | 500 | 250 | 250 | 167 | 50 % | 83 % | 50 % | 50 % |", text)
        self.assertNotIn("| weak | 4 |", text)
        # Three micro-batches of a replica: stage 3 moves (3 + 2 x 3) / 2 of what stage 0 does.
        lines = []
        add("alone", "1 2 3 4", 6, False, 0.25)
        for stage, step in ((0, 0.5), (3, 1.0)):
            add("sharded", "1 2 3 4", 24, True, step, 0.25)
            lines[-1]["stage"] = stage
        text = script["report"](lines)
        self.assertIn("| 0 | 500 | 250 | 250 | 167 | 2.00 | 1.00 |", text)
        self.assertIn("| 3 | 1000 | 250 | 250 | 753 | 1.33 | 2.00 |", text)

    def test_help_of_measurements(self):
        for name in ("accumulation", "collectives", "training"):
            done = subprocess.run([sys.executable, ROOT / f"perf/{name}.py", "--help"], capture_output=True, text=True,
                                  check=False, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("--budget SECONDS", done.stdout)

    def test_what_is_made_of_accumulated_steps(self):
        """perf/accumulation.py tells where gradient accumulation reaches 70 %."""
        with mock.patch.object(sys, "path", [str(ROOT / "perf"), *sys.path]):
            script = runpy.run_path(str(ROOT / "perf/accumulation.py"))
        lines = []

        def add(nodes, ratio, kind, micro_batches, step, exposed):
            lines.append({"nodes": nodes, "ratio": ratio, "type": kind, "micro_batches": micro_batches, "rate": 80e6,
                          "step": step, "exposed": exposed, "gradients": 4e6})
        add(1, 0, "fp32", 4, 0.4, 0.0)
        add(4, 2.0, "fp32", 1, 0.3, 0.2)
        add(4, 2.0, "fp32", 4, 0.5, 0.125)
        add(4, 2.0, "bf16", 1, 0.15, 0.05)
        text = script["report"](lines)
        self.assertIn("A micro-batch takes 100 ms, gradients are 4.0 MB in fp32", text)
        # An all-reduce takes twice a micro-batch's computation, and 4 / 3 of one cannot hide: 1 / (1 + 4 / 3),
        # 4 / (4 + 4 / 3). In bf16 1 / 3 cannot.
        self.assertIn("| 4 | 2 | 80 | fp32 | 33 (43) | 75 (75) | 4 |", text)
        self.assertIn("| 4 | 2 | 80 | bf16 | 67 (75) |  | - |", text)

    def test_ops(self):
        for preset, dtype in (("test-gpt", "fp32"), ("test-llama", "bf16")):
            text = self.expect_done("bench", "ops", "--preset", preset, "--dtype", dtype, "--batch", 1,
                                    "--context", 8, "--repeats", 1, "--threads", 1, "--json", "ops.json")
            title, roof, columns, *lines = text.splitlines()
            self.assertIn(f"{preset}, 1 sequences of 8, {dtype}, 1 threads", title)
            self.assertTrue(title.endswith(", attention by own kernel"), title)
            self.assertRegex(roof, rf"^roof: [\d.]+ GFLOP/s in a {dtype} product, [\d.]+ GB/s in a triad$")
            self.assertEqual(re.split(r"  +", columns), ["op", "shape", "ms", "GFLOP/s", "GB/s", "roof %"])
            data = self.read("ops.json")
            self.assertEqual([line.split()[0] for line in lines], [row["op"] for row in data["rows"]])
            for row in data["rows"]:
                floor = max(row["flop"] / data["roof"]["flops"], row["bytes"] / data["roof"]["bandwidth"])
                self.assertAlmostEqual(row["roof_share"], floor / row["seconds"])

    def test_logits_in_bf16(self):
        sizes = ("--preset", "test-gpt", "--dtype", "bf16", "--batch", 1, "--context", 8, "--repeats", 1,
                 "--threads", 1)
        held = {}
        for logits in ("fp32", "bf16"):
            self.expect_done("bench", "ops", *sizes, "--logits", logits, "--only", "softmax_and", "--json", "ops.json")
            held[logits] = self.read("ops.json")["rows"][0]["bytes"]
        self.assertEqual(held["fp32"] / 6, held["bf16"] / 4)
        self.expect_done("bench", "step", *sizes, "--logits", "bf16")
        # bad input: `bench ops`, `bench step`: `--logits bf16` in another `--dtype` | --logits bf16 needs --dtype
        # bf16, not fp32 | 2
        self.expect_refusal(2, "--logits bf16 needs --dtype bf16, not fp32", "bench", "ops", "--logits", "bf16")
        # bad input: `bench ops --dtype fp8` | --dtype fp8 is for bench step: give --dtype bf16, or use bench step | 2
        self.expect_refusal(2, "--dtype fp8 is for bench step: give --dtype bf16, or use bench step", "bench", "ops", "--dtype", "fp8")
        # bad input: `bench ops`, `bench step`: `--logits` of a model without a vocabulary | --logits is of a loss
        # over a vocabulary, which mobilenet_v2 does not have | 2
        self.expect_refusal(2, "--logits is of a loss over a vocabulary, which mobilenet_v2 does not have",
                            "bench", "step", "--preset", "mobilenet_v2", "--dtype", "bf16", "--logits", "bf16")

    def test_a_machine_is_described(self):
        text = self.expect_done("bench", "ops", "--describe", "my-node.json", "--seconds", 1e-9, "--threads", 1,
                                "--device", "cpu")
        self.assertRegex(text, r"(?m)^bf16: [\d.]+ GFLOP/s in a product, [\d.]+ GB/s$")
        data = self.read("my-node.json")
        self.assertEqual((data["name"], data["kind"], data["evidence"], data["threads"]),
                         ("my-node", "cpu", "measured", 1))
        self.assertEqual(list(data["peak"]), ["fp32", "bf16"])
        self.assertRegex(text, rf"my-node.json: {len(data['operations'])} operations of ")
        self.assertTrue(all(row["seconds"] > 0 for row in data["operations"]))
        self.assertEqual((data["ranks"], data["beside_communication"], data["beside_computation"]), (1, 1, 1))
        # At least the smallest model, in fp32.
        names = {row["operation"] for row in data["operations"] if row["dtype"] == "fp32"}
        self.assertLessEqual({"matmul", "attention", "attention_backward", "layer_norm", "gelu", "adamw_step",
                              "softmax_and_gradient"}, names)
        # The ranks of a node share it, and have no other core for communication.
        text = self.expect_done("bench", "ops", "--describe", "shared.json", "--seconds", 1e-9, "--threads", 1, "--device", "cpu",
                                before=self.ranks(2))
        self.assertEqual(text.count("operations of"), 1)
        data = self.read("shared.json")
        self.assertEqual((data["threads"], data["ranks"]), (1, 2))
        self.assertIn("1 thread of 2 ranks", data["title"])
        for key in ("beside_communication", "beside_computation"):
            self.assertTrue(0 < data[key] <= 1, key)
        plan = ("plan", "--description", "shared.json", "--nodes", 1, "--best", 1, "--model.preset", "test-gpt")
        self.assertIn(" 2 a node, ", self.expect_done(*plan).splitlines()[1])
        self.assertIn("; it was measured with 2 a node, whose memory they share",
                      self.expect_done(*plan, "--ranks-per-node", 4).splitlines()[1])
        # bad input: `bench ops --describe`: beside what chooses operations; `--seconds` without it |
        # --describe measures operations of its own: leave out --only, ... | 2
        for more in (("--only", "gelu"), ("--graphs",), ("--cold",)):
            self.expect_refusal(2, "--describe measures operations of its own: leave out --only, ", "bench", "ops",
                                "--describe", "my-node.json", *more)
        self.expect_refusal(2, "--seconds of bench ops is that of --describe: give both", "bench", "ops",
                            "--seconds", 1)

    def test_ops_on_a_cpu_take_no_flags_of_gpus(self):
        # bad input: `bench ops`: `--graphs` or `--cold` on a CPU | --graphs and --cold of bench ops are of GPUs, and
        # this computes on cpu: leave them out | 2
        for flag in ("--graphs", "--cold"):
            self.expect_refusal(2, "--graphs and --cold of bench ops are of GPUs, and this computes on cpu: leave them "
                                   "out", "bench", "ops", "--device", "cpu", flag)

    def test_products_are_of_a_configuration_on_gpus(self):
        # bad input: `bench products` without `--config` | bench products times the products of a configuration:
        # give --config FILE, as for train | 2
        self.expect_refusal(2, "bench products times the products of a configuration: give --config FILE, as for train",
                            "bench", "products", "--write", "products.json")
        # bad input: `bench products` on a CPU | bench products is for GPUs, whose library has several algorithms
        # for a product, and this computes on cpu | 2
        (self.folder / "run.ini").write_text("model.preset = test-gpt\nrun.device = cpu\n")
        self.expect_refusal(2, "bench products is for GPUs, whose library has several algorithms for a product, and this "
                               "computes on cpu", "bench", "products", "--config", "run.ini", "--write", "products.json")
        self.assertFalse((self.folder / "products.json").exists())
        self.expect_refusal(2, "missing.ini: cannot be read", "bench", "products", "--config", "missing.ini")

    def test_ops_are_one_process(self):
        # bad input: `bench ops` on several ranks | trireme bench ops is one process, but mpiexec started 2;
        # start it alone | 2
        self.expect_refusal(2, "trireme bench ops is one process, but mpiexec started 2", "bench", "ops",
                            before=self.ranks(2))

    def test_pictures_have_no_context(self):
        # bad input: `bench`: `--context` for a model of pictures | --context is the length of a text, but
        # mobilenet_v2-cifar is for pictures | 2
        for what in ("ops", "step"):
            self.expect_refusal(2, "--context is the length of a text, but mobilenet_v2-cifar is for pictures",
                                "bench", what, "--preset", "mobilenet_v2-cifar", "--context", 8)

    def test_step(self):
        grids = {1: ((), [1, 1, 1]), 2: (("--tensor", 2), [1, 1, 2]), 4: (("--pipeline", 2), [2, 2, 1])}
        for ranks, (flags, grid) in grids.items():
            with self.subTest(ranks=ranks):
                text = self.expect_done("bench", "step", *STEP, "--micro", 1, *flags, "--json", "step.json",
                                        before=self.ranks(ranks))
                for line in (r"tokens/s, ", r"% of the roof \(MFU\)$", r"^forward +[\d.]+ +[\d.]+$", "^backward ",
                             "^communication ", "^optimizer ", "^other ", r"^activations +[\d.]+$", "^resident "):
                    self.assertRegex(text, f"(?m){line}")
                data = self.read("step.json")
                self.assertEqual(data["grid"], grid)
                self.assertAlmostEqual(data["loss"], 4.2, delta=0.3)  # of 67 tokens drawn evenly: log 67
                for phase in ("forward", "backward", "optimizer"):
                    self.assertGreater(data[f"{phase}_seconds"], 0)
                self.assertEqual(data["communication_seconds"] > 0, ranks > 1)
                self.assertAlmostEqual(data["mfu"], data["flops"] / data["roof"]["flops"])
                self.assertAlmostEqual(data["tokens_per_second"] * data["step_seconds"], 4 * 16)
                self.assertGreater(data["memory_bytes"]["parameters"], 0)

    def test_step_recomputes(self):
        held, losses = {}, set()
        for mode in ("none", "selective", "full"):
            text = self.expect_done("bench", "step", *STEP, "--recompute", mode, "--json", "step.json")
            self.assertEqual(mode != "none", f", recompute {mode}\n" in text)
            data = self.read("step.json")
            held[mode] = data["memory_bytes"]["activations"]
            losses.add(data["loss"])
        self.assertEqual(sorted(held, key=held.get), ["full", "selective", "none"])
        self.assertEqual(len(losses), 1)
        # bad input: `bench step --recompute some` | --recompute some: is not one of none,
        # selective, full; did you mean none? | 2
        self.expect_refusal(2, "--recompute some: is not one of none, selective, full", "bench", "step",
                            *STEP, "--recompute", "some")

    def test_step_by_operation(self):
        for ranks, flags in ((1, ()), (2, ("--tensor", 2))):
            with self.subTest(ranks=ranks):
                text = self.expect_done("bench", "step", *STEP, "--kernels", *flags, "--json", "step.json",
                                        before=self.ranks(ranks))
                lines = text.splitlines()
                head = next(i for i, line in enumerate(lines) if line.startswith("operation "))
                self.assertRegex(lines[head], r"^operation of rank 0  " if ranks > 1 else r"^operation  ")
                self.assertEqual(lines[head].split()[-10:],
                                 ["calls", "ms", "GFLOP", "MB", "floor", "ms", "roof", "%", "step", "%"])
                self.assertRegex(text, r"(?m)^matmul fp32 \d+ x \d+ x \d+ x \d+ +\d+( +[\d.]+){6}$")
                self.assertRegex(lines[-2], r"^sum +\d+( +[\d.]+){6}$")
                self.assertRegex(lines[-1], r"^the step +[\d.]+ +100\.0$")
                data = self.read("step.json")
                table = data["operations"]
                self.assertNotIn("kernels", data)  # a CPU has none
                self.assertNotIn("why_no_kernels", data)
                seconds = [row["seconds"] for row in table["rows"]]
                self.assertEqual(seconds, sorted(seconds, reverse=True))
                self.assertAlmostEqual(sum(seconds), table["sum_seconds"])
                self.assertLess(table["sum_seconds"], table["step_seconds"])
                # 3 products forward and backward of each parameter of a linear layer, at least; each step the same.
                rows = {row["name"]: row for row in table["rows"]}
                self.assertTrue(all(row["calls"] == int(row["calls"]) for row in rows.values()), rows)
                self.assertGreater(sum(row.get("flop", 0) for row in rows.values()),
                                   data["flops"] * data["step_seconds"] / ranks * 0.9)
                self.assertTrue(any(name.startswith("adamw_step ") for name in rows), list(rows))
                for row in rows.values():
                    floor = max(row.get("flop", 0) / data["roof"]["flops"], row["bytes"] / data["roof"]["bandwidth"])
                    self.assertAlmostEqual(row["floor_seconds"], floor * ranks)

    def test_step_is_whole_unless_asked(self):
        text = self.expect_done("bench", "step", *STEP, "--json", "step.json")
        self.assertNotRegex(text, "(?m)^operation ")
        self.assertNotIn("operations", self.read("step.json"))
        # bad input: `bench ops --kernels` | bench ops takes no --kernels; it takes --preset, ... | 2
        self.expect_refusal(2, "bench ops takes no --kernels; it takes --preset, ", "bench", "ops", "--kernels", "true")

    def test_step_shards_and_schedules_as_training_does(self):
        two = {"before": self.ranks(2)}
        step = ("bench", "step", *STEP, "--micro", 1, "--json", "step.json")

        def measured(*flags):
            text = self.expect_done(*step, *flags, **two)
            return text, self.read("step.json")

        _, whole = measured()
        text, sharded = measured("--shard", 3)
        self.assertIn(", shard.stage 3\n", text)
        self.assertLess(sharded["memory_bytes"]["optimizer"], whole["memory_bytes"]["optimizer"])
        self.assertAlmostEqual(sharded["loss"], whole["loss"], places=6)  # micro-batches are runs by default
        text, staged = measured("--pipeline", 2, "--schedule", "interleaved", "--chunks", 2, "--same-bits", "true")
        self.assertIn(", interleaved, 2 chunks a stage, same bits on every grid\n", text)
        self.assertAlmostEqual(staged["loss"], whole["loss"], places=4)

    def test_step_refuses_what_does_not_fit(self):
        two = {"before": self.ranks(2)}
        # bad input: `bench step`: a batch or a grid that does not fit | --batch 4 is no multiple of --micro
        # 3: give one that is | 2
        self.expect_refusal(2, "--batch 4 is no multiple of --micro 3", "bench", "step", *STEP, "--micro", 3, **two)
        self.expect_refusal(2, "fewer than 2 data replicas", "bench", "step", *STEP, **two)
        self.expect_refusal(2, "tensor=3 needs a multiple of 3 ranks", "bench", "step", *STEP, "--tensor", 3, **two)
        self.expect_refusal(2, "8 heads cannot be split over 3", "bench", "step", *STEP, "--tensor", 3,
                            before=self.ranks(3))

    def test_the_figures_beside_pytorch(self):
        """perf/train_step_torch.py reads what bench step writes, and counts both alike. Without PyTorch."""
        self.expect_done("bench", "step", *STEP, "--json", "step.json")
        torch = {name: types.ModuleType(name) for name in ("torch", "torch.nn", "torch.nn.functional")}
        torch["torch"].nn, torch["torch.nn"].functional = torch["torch.nn"], torch["torch.nn.functional"]
        torch["torch.nn"].Module = object
        with mock.patch.dict(sys.modules, torch):
            peer = runpy.run_path(str(ROOT / "perf/train_step_torch.py"))
        ours = peer["trireme_figures"](self.folder / "step.json", False)
        data = self.read("step.json")
        theirs = {"tokens_per_second": 2 * data["tokens_per_second"], "step_seconds": data["step_seconds"] / 2,
                  "peak_bytes": 2**20, **{f"{phase}_seconds": 0.001 for phase in peer["PHASES"]}}
        head, *lines = peer["table"]({"trireme": ours, "eager": theirs},
                                     data["flops"] / data["tokens_per_second"], data["roof"]["flops"])
        self.assertEqual(head.split(), ["trireme", "eager"])
        rows = {" ".join(words[:-2]): words[-2:] for words in (line.split() for line in lines)}
        self.assertEqual(list(rows), ["tokens/s", "MFU %", "ms a step", "forward", "backward", "optimizer",
                                      "communication", "other", "peak MiB"])
        self.assertEqual(rows["MFU %"], [f"{100 * data['mfu']:.1f}", f"{200 * data['mfu']:.1f}"])
        self.assertEqual(rows["backward"], [f"{1e3 * data['backward_seconds']:.2f}", "1.00"])
        self.assertEqual(rows["communication"], ["0.00", "-"])
        self.assertEqual(rows["peak MiB"], [f"{data['memory_bytes']['resident'] / 2**20:.0f}", "1"])

    def test_a_file_that_cannot_be_written(self):
        # bad input: `bench`: a `--json` file that cannot be written | none/comm.json.partial: cannot be
        # opened: No such file or directory | 5
        self.expect_refusal(5, "none/comm.json", "bench", "comm", "--to", "1K", "--repeats", 1,
                            "--json", "none/comm.json", before=self.ranks(2))


if __name__ == "__main__":
    ProgramTest.program = Path(sys.argv.pop(1)).resolve()
    Bench.mpiexec = sys.argv.pop(1)
    unittest.main()
