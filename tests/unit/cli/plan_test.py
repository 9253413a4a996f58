#!/usr/bin/env python3
"""`trireme plan`: tables, configurations, traces, and what it refuses.

    python3 plan_test.py TRIREME
"""
import json
import re
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
from cli_testing import ProgramTest, fabric_dump, network_rates  # noqa: E402

SMALL = ["--model.preset", "gpt2-124m", "--run.precision", "bf16", "--batch.global", "64"]
HOST = {"name": "host", "kind": "cpu", "source": "guessed", "evidence": "data sheet", "threads": 1, "memory": 6.4e10,
        "memory_rate": 1e10, "peak": {"fp32": 1e11, "bf16": 1e11}, "vector_peak": 1e11}
LARGE = ["--model.preset", "llama3-70b", "--run.precision", "bf16", "--batch.global", "64"]


class Plan(ProgramTest):
    def plan(self, *arguments):
        text = self.expect_done("plan", "--gpu", "h100", "--nodes", "1", *arguments, "--json", "plan.json")
        return text, json.loads((self.folder / "plan.json").read_text(encoding="utf-8"))

    def test_the_table_and_what_programs_read_agree(self):
        text, plan = self.plan(*SMALL, "--best", "3")
        self.assertIn("gpt, 12 layers, 768 wide", text.splitlines()[0])
        self.assertIn("NVIDIA H100", text.splitlines()[1])
        layouts = plan["points"][0]["layouts"]
        self.assertEqual(len(layouts), 3)
        steps = [layout["step_s"] for layout in layouts]
        self.assertEqual(steps, sorted(steps))
        for layout in layouts:
            self.assertLess(layout["low_s"], layout["step_s"])
            self.assertLess(layout["step_s"], layout["high_s"])
            self.assertEqual(layout["grid"]["data"] * layout["grid"]["pipeline"] * layout["grid"]["tensor"], 8)
            self.assertLess(layout["bytes"], plan["memory"])
            self.assertTrue(0 < layout["mfu"] < 1)
        self.assertRegex(text, "the first takes [0-9.]+ % less than the second")

    def test_a_range_of_nodes_is_doubled(self):
        _, plan = self.plan(*SMALL, "--best", "1", "--nodes", "1-3")
        self.assertEqual([point["nodes"] for point in plan["points"]], [1, 2, 3])

    # What is written is a configuration that other commands take, and whose run tells of the plan.
    def test_the_best_one_is_a_configuration(self):
        _, plan = self.plan(*SMALL, "--best", "1", "--output", "best.ini", "--trace", "trace.json")
        best = plan["points"][0]["layouts"][0]
        memory = self.expect_done("memory", "--config", "best.ini", "--gpu-memory", "80G")
        grid = best["grid"]
        self.assertIn(f"{grid['data']} x {grid['pipeline']} x {grid['tensor']} (data x pipeline x tensor)", memory)
        again = self.expect_done("plan", "--gpu", "h100", "--nodes", "1", "--config", "best.ini", "--best", "1")
        self.assertIn(f" {best['micro']} ", again)
        text = (self.folder / "best.ini").read_text(encoding="utf-8")
        self.assertIn("device = h100", text)
        self.assertIn("ranks = 8", text)
        events = json.loads((self.folder / "trace.json").read_text(encoding="utf-8"))["traceEvents"]
        self.assertIn("forward", {event["name"] for event in events})

    def test_it_explains_and_tells_whether_a_run_reaches_its_end(self):
        text, _ = self.plan(*SMALL, "--best", "1", "--explain", "--tokens", "1e10", "--time", "1:00:00")
        for part in ("memory in MiB", "matmul", "with links twice as fast", "with memory twice as large",
                     "with a batch twice as large", "node-hours", "goodput"):
            self.assertIn(part, text)
        self.assertRegex(text, r"\n  \d+ others +[0-9.]+ ms ")

    # bad input: `plan`: neither or both of `--gpu` and `--description`; an unknown GPU or network; `--nodes 0`, 4-2, text | the choice, the nearest names, what would be right | 2
    # A program that has no NCCL plans for one that has.
    def test_memory_of_a_layout_is_what_the_plan_says(self):
        flags = ["--grid.data", "1", "--grid.pipeline", "4", "--grid.tensor", "2", "--batch.micro", "4"]
        _, plan = self.plan(*SMALL, *flags, "--best", "1", "--memory", "80")
        layout = plan["points"][0]["layouts"][0]
        self.expect_done("memory", *SMALL, *layout["flags"].split(), "--gpu-memory", "80G", "--json", "memory.json")
        memory = json.loads((self.folder / "memory.json").read_text(encoding="utf-8"))
        self.assertEqual(max(kind["peak_bytes"] for kind in memory["kinds"]), layout["bytes"])

    # A description's name is told in lines and tables.
    # bad input: a description of a device with a line break or a control character in a name | the key and the name | 2
    def test_names_are_of_one_line(self):
        for key, text in (("name", "a\nb"), ("title", "\x1b[31m"), ("source", "a\rb")):
            (self.folder / "host.json").write_text(json.dumps({**HOST, key: text}), encoding="utf-8")
            self.expect_refusal(2, f"host.json: {key} is ", "plan", "--description", "host.json", "--nodes", "1", *SMALL)

    # bad input: `plan`: a model that fits nowhere; keys that contradict each other | what would fit, which key | 2
    def test_bad_input(self):
        for arguments, expected in (
                (["--nodes", "1"], "give either --gpu NAME (one of"),
                (["--gpu", "h100", "--description", "x.json"], "give either --gpu NAME (one of"),
                (["--gpu", "h10"], "did you mean"),
                (["--gpu", "h100", "--network", "ndr40-fat-tree"], "the nearest is ndr400-fat-tree"),
                (["--gpu", "h100", "--network", "./rates.json"], "./rates.json is no file, and no network is called ./rates.json; known are"),
                (["--gpu", "h100", "--network", "+dgx-a100"], "a network has no name"),
                (["--gpu", "h100", "--network", "hdr200-2:1+"], "a kind of node has no name"),
                (["--gpu", "h100", "--nodes", "0"], "as in --nodes 8, 2,4,8 or 1-64"),
                (["--gpu", "h100", "--nodes", "4-2"], "4 is more than 2"),
                (["--gpu", "h100", "--nodes", "many"], "'many' is no number of nodes"),
                (["--description", "missing.json"], "missing.json"),
                (["--gpu", "h100", "--batch.micro", "7"], "batch.micro to 4"),
                (["--gpu", "h100", "--grid.tensor", "5"], "5"),
                (["--gpu", "h100", "--grid.data", "3"], "no layout suits"),
                (["--gpu", "h100", "--memory", "0"], "--memory 0")):
            with self.subTest(arguments=arguments):
                self.expect_refusal(2, expected, "plan", *SMALL, *arguments)

    # Scripts gate on the status, as with memory, job and train.
    def test_what_fits_nowhere_is_refused_with_what_would_fit(self):
        # 60 samples, so that the least number of nodes is between two doubled ones.
        small = ["--gpu", "a100-40", "--ranks-per-node", "1", "--memory", "0.6", *SMALL, "--batch.global", "60", "--best", "1"]
        done = self.expect_refusal(2, "memory: nothing fits on 1 node: it fits on ", "plan", *small, "--nodes", "1")
        enough = int(re.search(r"fits on (\d+) nodes", done.stderr)[1])
        self.expect_done("plan", *small, "--nodes", str(enough))
        self.expect_refusal(2, f"nothing fits on {enough - 1} nodes", "plan", *small, "--nodes", str(enough - 1))
        self.expect_refusal(2, "a rank needs", "plan", "--gpu", "a100-40", "--nodes", "1", *LARGE, "--memory", "0.5")

    # Islands share the ranks, and each has a grid of its own.
    def test_islands_divide_the_ranks(self):
        steps = []
        for islands in ("1", "2"):
            _, plan = self.plan(*SMALL, "--best", "1", "--grid.islands", islands)
            best = plan["points"][0]["layouts"][0]
            self.assertEqual(best["grid"]["data"] * best["grid"]["pipeline"] * best["grid"]["tensor"], 8 // int(islands))
            self.assertTrue(0 < best["mfu"] < 1)
            steps.append(best["step_s"])
        self.assertLess(steps[0], steps[1])
        # bad input: `plan`: `grid.islands` that does not divide the ranks | both numbers | 2
        self.expect_refusal(2, "grid.islands is 3, which does not divide the 8 ranks of 1 node", "plan", "--gpu", "h100", "--nodes", "1",
                            *SMALL, "--grid.islands", "3")

    # Where links are slow, composed times of pipelines are too low; replays tell, and others are tried.
    def test_what_is_left_out_is_not_faster(self):
        best = []
        for fixed in ((), ("--grid.data", "16")):
            _, plan = self.plan(*SMALL, "--nodes", "2", "--network", "ethernet-10g", "--best", "1", *fixed)
            best.append(plan["points"][0]["layouts"][0]["step_s"])
        self.assertLessEqual(best[0], best[1] * 1.001)

    def test_keys_that_need_whole_gradients_keep_shards_out(self):
        _, plan = self.plan(*SMALL, "--best", "5", "--comm.compress", "int8")
        self.assertTrue(all(layout["shard_stage"] <= 1 for layout in plan["points"][0]["layouts"]))

    # In a plan, in what it writes, and in a plan from that.
    def test_recomputed_blocks_that_are_given_stay(self):
        given = ("--recompute.mode", "full", "--recompute.blocks", "2")
        text, plan = self.plan(*SMALL, "--best", "2", *given, "--output", "best.ini")
        self.assertEqual(text.count(" full 2 "), 2)
        for layout in plan["points"][0]["layouts"]:
            self.assertEqual(layout["recompute_blocks"], 2)
            self.assertIn(" ".join(given), layout["flags"])
        self.assertIn("blocks = 2", (self.folder / "best.ini").read_text(encoding="utf-8"))
        _, again = self.plan("--config", "best.ini", "--best", "1")
        self.assertIn(" ".join(given), again["points"][0]["layouts"][0]["flags"])
        _, free = self.plan(*SMALL, "--best", "2")
        self.assertTrue(all("recompute.blocks" not in layout["flags"] for layout in free["points"][0]["layouts"]))

    def test_several_numbers_of_nodes_are_searched_as_one_is(self):
        _, many = self.plan(*SMALL, "--nodes", "1,8", "--best", "1")
        _, one = self.plan(*SMALL, "--nodes", "8", "--best", "1")
        self.assertEqual(many["points"][1]["layouts"][0]["flags"], one["points"][0]["layouts"][0]["flags"])

    # bad input: `plan`: keys of the layout that no grid can have; `run.device` or `run.threads` of another device | the key or the grid | 2
    # bad input: `plan`: `--memory` that no device has, or that the program fills; two outputs that are one file; an output that is read | the limits, the file | 2
    # bad input: `plan --time abc` | what a time is, before it searches | 2
    def test_contradictions(self):
        (self.folder / "mine.ini").write_text("[batch]\nglobal = 64\n", encoding="utf-8")
        for arguments, expected in (
                (["--grid.schedule", "zb-v", "--grid.chunks", "4"], "no layout suits on 1 node: the keys of the layout"),
                (["--grid.chunks", "100"], "no layout suits on 1 node"),
                (["--grid.data", "3"], "leave no grid of 8 ranks"),
                (["--batch.runs", "7"], "batch.runs is 7, but"),
                (["--run.device", "cpu"], "run.device is cpu, but h100 is a GPU"),
                (["--memory", "1e10"], "--memory 1e10: must be at least 0.001 and at most 1000000"),
                (["--json", "./same", "--trace", "same"], "is given for two outputs"),
                (["--config", "mine.ini", "--output", "./mine.ini"], "mine.ini is read, and given for an output"),
                (["--time", "abc"], "--time abc: expected minutes")):
            self.expect_refusal(2, expected, "plan", "--gpu", "h100", "--nodes", "1", *SMALL, *arguments)

    # A network is told by what comm.network takes: a fabric whose cables have rates, or one with rates beside it.
    def test_networks_of_files(self):
        nodes = [[f"n{node}" for node in nodes] for nodes in (range(1, 5), range(5, 9))]
        (self.folder / "dump").write_text(fabric_dump(nodes), encoding="utf-8")
        (self.folder / "slow-dump").write_text(fabric_dump(nodes, "1xSDR", "1xSDR"), encoding="utf-8")
        (self.folder / "topology.conf").write_text("SwitchName=l1 Nodes=n[1-4]\nSwitchName=l2 Nodes=n[5-8]\n"
                                                   "SwitchName=s Switches=l[1-2]\n", encoding="utf-8")
        steps = []
        for name, flag in (("dump", "--network"), ("slow-dump", "--network"), ("slow-dump", "--comm.network")):
            text, plan = self.plan(*SMALL, "--nodes", "4", "--best", "1", flag, name)
            self.assertIn(f"network {name}", text.splitlines()[1])
            steps.append(plan["points"][0]["layouts"][0]["step_s"])
        self.assertLess(steps[0], steps[1])
        self.assertEqual(steps[1], steps[2])
        (self.folder / "rates.json").write_text(json.dumps(network_rates(sum(nodes, []))), encoding="utf-8")
        for files in ("rates.json", "topology.conf,rates.json"):
            self.plan(*SMALL, "--nodes", "4", "--best", "1", "--network", files)
        # bad input: `plan --network`: a fabric without bandwidth | that it tells no rate, and that a file of rates beside it would do | 2
        self.expect_refusal(2, "topology.conf: tells no rate of any link: name a file of rates beside it", "plan", "--gpu", "h100",
                            "--nodes", "4", *SMALL, "--network", "topology.conf")

    # One run fits one constant, so that its own step is predicted as it was measured.
    def test_a_machine_is_calibrated_by_its_runs(self):
        data = self.prepare()
        self.run_program("train", "--data.train", data / "train.h5", "--model.preset", "test-gpt", "--run.steps", "12",
                         "--run.folder", "run", "--run.threads", "1", "--plan.step", "0.5", "--plan.ranks", "1")
        kept = json.loads((self.folder / "run" / "plan.json").read_text(encoding="utf-8"))
        self.assertEqual(kept["predicted_s"], 0.5)
        self.assertIn("predicted 500.0 ms, measured", (self.folder / "run" / "report.html").read_text(encoding="utf-8"))
        (self.folder / "host.json").write_text(json.dumps(HOST), encoding="utf-8")
        machine = ["--description", "host.json"]
        text = self.expect_done("plan", "--calibrate", "run", *machine, "--output", "site.json")
        self.assertIn("pace", text)
        self.expect_done("plan", "--config", "run/config.ini", "--description", "site.json", "--ranks-per-node", "1",
                         "--nodes", "1", "--best", "1", "--json", "plan.json")
        planned = json.loads((self.folder / "plan.json").read_text(encoding="utf-8"))["points"][0]["layouts"][0]
        self.assertLess(abs(planned["step_s"] / kept["measured_s"] - 1), 0.05)
        # A network that all runs find faster than it is said to be is as fast as its links are, and no faster.
        self.run_program("train", "--data.train", data / "train.h5", "--model.preset", "test-gpt", "--run.steps", "12",
                         "--grid.data", "2", "--run.device", "cpu", "--run.folder", "two", "--run.threads", "1",
                         before=("mpiexec", "-n", "2"))
        self.expect_done("plan", "--calibrate", "run", "two", *machine, "--output", "two.json")
        self.assertLessEqual(json.loads((self.folder / "two.json").read_text(encoding="utf-8"))["network"]["efficiency"], 1)
        # The record of a run has every key, and leaves every layout open.
        self.expect_done("plan", "--config", "run/config.ini", "--gpu", "h100", "--nodes", "2", "--best", "1")
        self.expect_refusal(2, "plan --calibrate takes the folders of runs", "plan", "--calibrate", *machine)
        self.expect_refusal(5, "no such", "plan", "--calibrate", "none", *machine)
        # bad input: `plan --calibrate`: one run twice, a run on processors for a GPU | the run, and which of them | 2
        self.expect_refusal(2, "./run: the run is given twice", "plan", "--calibrate", "run", "./run", *machine)
        for run in ("run", "two"):
            self.expect_refusal(2, f"{run}: the run computed on processors, but t4 is a GPU", "plan", "--calibrate", run, "--gpu", "t4")
        self.expect_refusal(2, "plan takes no folders, but with --calibrate", "plan", "run", *machine)

    def test_a_job_is_planned_before_it_is_written(self):
        data = self.prepare()
        done = self.run_program("job", "several_nodes", "--nodes", "2", "--tasks-per-node", "8", "--plan", "h100",
                                "--data.train", data / "train.h5", *SMALL, "--output", "job.sh")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("planned for NVIDIA H100", done.stderr)
        script = (self.folder / "job.sh").read_text(encoding="utf-8")
        self.assertIn("--plan.step=", script)
        self.assertIn("--grid.data=", script)


if __name__ == "__main__":
    ProgramTest.program = Path(sys.argv.pop()).resolve()
    unittest.main()
