#!/usr/bin/env python3
"""`trireme top` on run folders in every state, printed and on a (pseudo-)terminal.

    python3 top_test.py TRIREME
"""
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
import unittest
from pathlib import Path
from xml.etree import ElementTree

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
from cli_testing import ProgramTest  # noqa: E402

UTF8 = {"LC_ALL": "C.UTF-8"}
ENTER, LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"


class RunFolderTest(ProgramTest):
    def setUp(self):
        super().setUp()
        self.run_folder = self.folder / "run"
        (self.run_folder / "checkpoints").mkdir(parents=True)
        self.configure(100)

    def configure(self, steps):
        (self.run_folder / "config.ini").write_text(f"[run]\nsteps = {steps}\n", encoding="utf-8")

    def add_steps(self, first, last, **values):
        with open(self.run_folder / "metrics.jsonl", "a", encoding="utf-8") as file:
            for step in range(first, last + 1):
                line = {"step": step, "loss": 2.0 + 3.0 / step, "lr": 0.001, "grad_norm": 0.75,
                        "tokens": step * 64, "tokens_per_s": 128.0, "step_s": 0.5, "wait_data_s": 0.05,
                        "comm_s": 0.125, "memory_bytes": 123456789}
                file.write(json.dumps({**line, **values}) + "\n")

    def add_evaluation(self, step, loss):
        with open(self.run_folder / "metrics.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, "eval_loss": loss}) + "\n")

    def add_checkpoint(self, step, age=0):
        path = self.run_folder / f"checkpoints/step-{step:08d}.h5"
        path.write_bytes(b"x" * 2000)
        os.utime(path, (time.time() - age, time.time() - age))

    def hold(self, silent_for=0, **values):
        lease = {"job": "4711", "restarts": 2, "host": "elsewhere", "pid": 42, "process_start": 1,
                 "heartbeat": int(time.time()) - silent_for, "generation": 3, **values}
        path = self.run_folder / "lease.next"
        path.write_text(json.dumps(lease), encoding="utf-8")
        path.rename(self.run_folder / "lease")


class Printed(RunFolderTest):
    def top(self, *arguments, **options):
        return self.expect_done("top", "run", *arguments, **options)

    def test_a_running_one(self):
        self.add_steps(1, 25)
        self.add_evaluation(20, 2.5)
        self.add_checkpoint(10)
        self.add_checkpoint(20, age=7300)
        self.hold()
        text = self.top(environment=UTF8)
        # bad input: `top`: metrics with a line half written, or that are no numbers; a lease with control
        # characters | shows what is good; sends no control characters to the terminal | 0
        for line in (r"run: running", r"step +25 of 100  █+▌?─+  25\.0 %, 37 s left",
                     r"loss +2\.1200  lr 1\.00e-03  gradient norm 0\.75",
                     r"speed +128 tokens/s, 500\.0 ms a step, over the last 25 steps",
                     r"waiting +10\.0 % of the step time for data, 25\.0 % for communication",
                     r"memory +118 MiB in the rank that needs most",
                     r"evaluation +loss 2\.5000, perplexity 12\.18, at step 20",
                     r"checkpoint +step-00000020\.h5, 1\.95 KiB, written 2 h 01 min ago",
                     r"held by +job 4711, restart 2, host elsewhere, process 42",
                     r"heartbeat +\d.* ago", r"last step +\d.* ago", r" +5 ┤⠉.*", r" +2\.12 ┤.+",
                     r" +loss  1 +25"):
            self.assertRegex(text, f"(?m)^{line}$")
        self.assertTrue(all(len(line) <= 80 for line in text.splitlines()), text)
        self.assertNotIn("\x1b", text)
        again = self.top("--once", environment=UTF8)
        self.assertEqual(*(re.sub(r"\d+ s ago", "a while ago", each) for each in (text, again)))

    def test_one_on_islands(self):
        self.add_steps(1, 1)
        self.assertNotIn("islands", self.top())
        self.add_steps(2, 3, island_losses=[3.21, None])
        self.assertRegex(self.top(), r"(?m)^islands +3\.2100 nan$")

    def test_one_on_pictures(self):
        with open(self.run_folder / "metrics.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps({"step": 1, "loss": 2.0, "lr": 0.001, "grad_norm": 0.75, "samples": 128,
                                   "samples_per_s": 256.0, "step_s": 0.5, "memory_bytes": 1}) + "\n")
            file.write(json.dumps({"step": 1, "eval_loss": 1.5, "eval_top1": 0.8125, "eval_top5": 0.99}) + "\n")
        text = self.top()
        self.assertRegex(text, r"(?m)^speed +256 samples/s, 500\.0 ms a step, over the last 1 step$")
        self.assertRegex(text, r"(?m)^evaluation +loss 1\.5000, top-1 81\.25 %, top-5 99\.00 %, at step 1$")

    def test_the_slowest_rank_and_the_latest_events(self):
        self.add_steps(1, 25)
        head = {"first_step": 11, "last_step": 20, "gather_s": 0.01, "stragglers": ["rank 1 on n2 \x1b"],
                "nodes": [{"host": "n1", "link_bytes_per_s": 0}, {"host": "n2", "link_bytes_per_s": 0}]}
        ranks = [[0, 0, 0, 0, 2, 0.25, 0, 0.25, 1e8, 0.5], [1, 1, 0, 0, 2, 0.4, 0.1, 0, 1e8, 2.0]]
        (self.run_folder / "ranks.json").write_text(json.dumps({**head, "ranks": ranks}), encoding="utf-8")
        for step, event in enumerate(("start", "checkpoint", "start", "straggler")):
            with open(self.run_folder / "events.jsonl", "a", encoding="utf-8") as file:
                file.write(json.dumps({"time": int(time.time()) - 100, "step": step, "event": event,
                                       "detail": f"detail {step}\n"}) + "\n")
        text = self.top()
        self.assertRegex(text, r"(?m)^slowest +rank 1 on n2, 2\.00 x its peers: 400\.0 ms computing, "
                               r"100\.0 ms data$")
        self.assertRegex(text, r"(?m)^straggler +rank 1 on n2 \\x1b$")
        events = re.findall(r"(?m)^event +1 min 4\d s ago, step (\d): (.*)$", text)
        self.assertEqual(events, [("1", r"checkpoint, detail 1\n"), ("2", r"start, detail 2\n"),
                                  ("3", r"straggler, detail 3\n")])
        self.assertIn("loss  1 ", text)  # there is room for the curve
        # What happened last may hide a failure, and a pipe has room for long lines.
        with open(self.run_folder / "events.jsonl", "a", encoding="utf-8") as file:
            for step, event in enumerate(["failure"] + 120 * ["checkpoint"], start=10):
                file.write(json.dumps({"time": int(time.time()) - 100, "step": step, "event": event,
                                       "detail": "long " * 30 + event}) + "\n")
        events = re.findall(r"(?m)^event .* ago, step (\d+): (.*)$", self.top())
        self.assertEqual(events, [(str(step), f"{event}, " + "long " * 30 + event) for step, event in
                                  ((10, "failure"), (128, "checkpoint"), (129, "checkpoint"), (130, "checkpoint"))])
        self.expect_done("top", "run", "--html", "run.html")
        page = (self.folder / "run.html").read_text(encoding="utf-8")
        before, _, after = page.partition("<h2>Checkpoints, the last 100</h2>")
        self.assertIn("<td>failure</td>", before)
        self.assertEqual((before.count("<td>checkpoint</td>"), after.count("<td>checkpoint</td>")), (0, 100))
        # One rank has no peers; nobody is slow.
        alone = {**head, "stragglers": [], "ranks": [[0, 0, 0, 0, 2, 0.25, 0, 0, 1e8, 0]]}
        (self.run_folder / "ranks.json").write_text(json.dumps(alone), encoding="utf-8")
        text = self.top()
        self.assertRegex(text, r"(?m)^slowest +rank 0 on n1: 250\.0 ms computing$")
        self.assertNotIn("straggler  ", text)

    def test_without_utf8_all_is_ascii(self):
        self.add_steps(1, 25)
        text = self.top(environment={"LC_ALL": "C"})
        self.assertTrue(text.isascii(), text)
        self.assertRegex(text, r"(?m)^step +25 of 100  #+-+  25\.0 %$")
        self.assertRegex(text, r"(?m)^ +5 \+\*")

    def test_states(self):
        self.assertRegex(self.top(), r"\Arun: stopped\nstep +0 of 100 ")
        self.hold()
        self.assertIn("run: running, no step yet\n", self.top())
        self.hold(silent_for=1000)
        self.assertRegex(self.top(), r"(?s)run: silent: no sign of life .*\nheartbeat +1[678] min \d\d s ago")
        self.hold(host=os.uname().nodename, pid=os.getpid())  # this process started at another time
        self.assertIn("run: silent", self.top())
        # The job script knows better: its step was killed, and nobody gave the folder back.
        self.hold(silent_for=5)
        event = {"time": int(time.time()), "step": 0, "event": "requeue", "detail": "requeued"}
        (self.run_folder / "events.jsonl").write_text(json.dumps(event) + "\n", encoding="utf-8")
        self.assertIn("run: requeued\n", self.top())
        (self.run_folder / "events.jsonl").unlink()
        (self.run_folder / "lease").unlink()
        self.add_steps(1, 99)
        self.assertIn("run: stopped\n", self.top())
        event = {"time": int(time.time()), "step": 99, "event": "requeue", "detail": "stopped at step 99, requeued"}
        (self.run_folder / "events.jsonl").write_text(json.dumps(event) + "\n", encoding="utf-8")
        self.assertIn("run: stopped at step 99, requeued\n", self.top())
        self.assertEqual(self.expect_done("top", "run", "--html", "page.html"), "")
        page = (self.folder / "page.html").read_text(encoding="utf-8")
        self.assertIn('<p class="state">run: stopped at step 99, requeued</p>', page)
        event.update(event="failure", detail="n3 is\x1b lost")
        (self.run_folder / "events.jsonl").write_text(json.dumps(event) + "\n", encoding="utf-8")
        self.assertIn(r"run: failed: n3 is\x1b lost", self.top())
        (self.run_folder / "events.jsonl").unlink()
        self.add_steps(100, 100)
        self.add_checkpoint(50)
        self.assertIn("run: stopped\n", self.top())
        self.add_checkpoint(100)
        self.assertIn("run: finished\n", self.top())

    def test_goodput(self):
        begin = int(time.time()) - 1000
        self.add_steps(1, 50, step_s=4.0, wait_data_s=0.0, comm_s=0.0)
        events = [{"time": begin + 100, "step": 0, "event": "start", "seconds": 20, "job": "7",
                   "submitted": begin, "job_started": begin + 80},
                  {"time": begin + 400, "step": 50, "event": "stop"}]
        (self.run_folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events),
                                                      encoding="utf-8")
        # It takes two rows where one is too short.
        self.assertIn("\ngoodput     50.0 % of 6 min 40 s\n"
                      "            other 1 min 40 s, queue 1 min 20 s, starting 20 s\n", self.top())
        events[0]["seconds"] = 0
        del events[0]["submitted"], events[0]["job"]
        (self.run_folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events),
                                                      encoding="utf-8")
        self.assertIn("\ngoodput     62.5 % of 5 min 20 s; other 1 min 40 s, starting 20 s\n", self.top())

    def test_odd_metrics(self):
        self.add_steps(1, 3)
        self.add_steps(4, 4, loss=None, grad_norm=None, skipped=True)
        with open(self.run_folder / "metrics.jsonl", "a", encoding="utf-8") as file:
            file.write('{"step": 5, "lo')
        text = self.top()
        self.assertRegex(text, r"(?m)^step +4 of 100")
        self.assertRegex(text, r"(?m)^loss +nan .* 1 skipped: gradients not finite$")

    def test_names_send_nothing_to_the_terminal(self):
        self.hold(host="\x1b[2Jnode\n", job="\x07")
        self.assertIn(r"job \x07, restart 2, host \x1b[2Jnode\n, process 42", self.top())

    def test_a_run_that_was_trained(self):
        data = self.prepare()
        self.expect_done("train", "--data.train", data / "train.h5", "--model.preset", "test-gpt",
                         "--model.context", 16, "--batch.global", 2, "--batch.micro", 2, "--run.steps", 3,
                         "--run.folder", "trained", "--threads", 1)
        before = sorted(path.name for path in (self.folder / "trained").iterdir())
        text = self.expect_done("top", "trained/")
        self.assertRegex(text, r"\Atrained/: finished\nstep +3 of 3 .* 100\.0 %\n")
        self.assertRegex(text, r"(?m)^held by +nobody$")
        self.assertEqual(sorted(path.name for path in (self.folder / "trained").iterdir()), before)

    def test_a_picture_of_the_losses(self):
        self.expect_refusal(5, "run: no step is done yet: there is nothing to draw", "top", "run", "--svg", "l.svg")
        self.add_steps(1, 20)
        self.add_evaluation(20, 2.5)
        self.assertEqual(self.expect_done("top", "run", "--svg", "loss.svg"), "")
        root = ElementTree.parse(self.folder / "loss.svg").getroot()
        svg = "{http://www.w3.org/2000/svg}"
        self.assertEqual(root.tag, svg + "svg")
        style = root.find(svg + "style").text
        self.assertIn(".s0", style)
        self.assertNotIn("var(", style)  # which only browsers understand
        self.assertEqual([text.text for text in root.iter(svg + "text") if text.get("class") == "left"],
                         ["training", "evaluation"])
        curve = [path for path in root.iter(svg + "path") if path.get("class") == "s0"][0]
        self.assertEqual(curve.get("d").count("L"), 19)  # a point for each step
        self.expect_refusal(5, "none/loss.svg", "top", "run", "--svg", "none/loss.svg")

    def test_refusals(self):
        self.expect_refusal(5, "nowhere: there is no such folder; expected the folder of a run",
                            "top", "nowhere")
        self.expect_refusal(5, "config.ini: not a folder", "top", "run/config.ini")
        (self.folder / "other").mkdir()
        (self.folder / "other/notes").touch()
        # bad input: `top`: a file, or a folder of something else | ...: not a run folder: it holds neither
        # config.ini nor metrics.jsonl | 5
        self.expect_refusal(5, "other: not a run folder: it holds neither config.ini nor metrics.jsonl",
                            "top", "other")
        # bad input: `top`: something in a run's folder that cannot be read | run/metrics.jsonl: cannot be read:
        # Is a directory | 5
        for name in ("config.ini", "metrics.jsonl", "events.jsonl", "ranks.json", "communication.json"):
            path, aside = self.run_folder / name, self.folder / "aside"
            if path.exists():
                path.rename(aside)
            path.mkdir()
            self.expect_refusal(5, f"run/{name}: cannot be read: Is a directory", "top", "run", "--html", "page.html")
            path.rmdir()
            if aside.exists():
                aside.rename(path)
        # bad input: `top`: no folder, two folders | top takes the folder of one run or sweep, as in trireme
        # top run, not 0 | 2
        self.expect_refusal(2, "top takes the folder of one run or sweep, as in trireme top run, not 0", "top")
        self.expect_refusal(2, "not 2", "top", "run", "run")
        for value in ("0", "-1", "often"):
            # bad input: `top`: `--every` 0, negative, no number | --every 0: must be at least 0.1 and at
            # most 86400 | 2
            self.expect_refusal(2, f"--every {value}: ", "top", "run", "--every", value)
        self.expect_refusal(2, "started 2; start it alone", "top", "run",
                            environment={"PMI_RANK": "0", "PMI_SIZE": "2"})


class Islands(RunFolderTest):
    """The folder of a run that several jobs carry; islands_summary_test has what records tell."""
    def member(self, name, *events):
        self.run_folder = self.folder / f"run/islands/{name}"
        (self.run_folder / "checkpoints").mkdir(parents=True)
        self.configure(100)
        self.add_steps(1, 20, time=1790000000)
        (self.run_folder / "events.jsonl").write_text("".join(
            json.dumps({"time": 1790000000 + i, "step": 0, **event}) + "\n" for i, event in enumerate(events)),
            encoding="utf-8")

    def test_a_row_for_each_member(self):
        (self.folder / "run/outer").mkdir()
        start, outer = {"event": "start", "places": "n1: 0, n2: 1"}, {"event": "outer", "detail": "0, led"}
        self.member("island-1", start, outer)
        self.hold()
        self.member("island-2", start, outer, {"event": "delivered", "detail": "0, 20 steps"})
        self.hold()
        self.member("island-10", start, outer, {"event": "requeue", "detail": "stopped at step 20, requeued"})
        lines = self.expect_done("top", "run").splitlines()
        self.assertEqual(lines[0], "run: no outer state yet; 3 members: 1 working, 1 waiting, 1 left")
        self.assertEqual([line.split()[0] for line in lines[1:5]], ["member", "island-1", "island-2", "island-10"])
        self.assertRegex(lines[2], r" 0/20 .* n1, n2  working$")
        self.assertRegex(lines[3], r" waiting for outer state 1$")
        self.assertRegex(lines[4], r" left: stopped at step 20, requeued$")
        self.assertRegex(lines[5], r"^goodput 0.0 %: 0 of 60 inner steps that were begun count; \d+\.\d\d node-hours$")
        # bad input: `top`: a run of several jobs with a damaged record | a line says so: outer/outer-000000.json:
        # damaged: ... | 0
        (self.folder / "run/outer/outer-000000.json").write_text("{", encoding="utf-8")
        self.assertIn("\nouter/outer-000000.json: damaged: ", self.expect_done("top", "run"))
        self.expect_done("top", "run", "--html", "run/report.html", "--svg", "losses.svg")
        self.assertIn("Members over time", (self.folder / "run/report.html").read_text(encoding="utf-8"))
        for path in ("run/report.html", "losses.svg"):
            ElementTree.parse(self.folder / path)


class Sweeps(RunFolderTest):
    def setUp(self):
        super().setUp()
        self.sweep = self.folder / "sweep"
        self.sweep.mkdir()

    def point(self, number, rate, steps, loss, extra=""):
        self.run_folder = self.sweep / f"point-{number}"
        (self.run_folder / "checkpoints").mkdir(parents=True)
        (self.run_folder / "config.ini").write_text(f"[run]\nsteps = 30\nfolder = {self.run_folder}\n{extra}"
                                                    f"[optim]\nlr = {rate}\n", encoding="utf-8")
        if steps:
            self.add_steps(1, steps, loss=loss)

    def rows(self, *arguments, **options):
        """The cells of the table, by their column."""
        lines = self.expect_done("top", "sweep", *arguments, **options).splitlines()
        self.head = lines[0]
        names = lines[1].split()
        return [dict(zip(["", *names], [line[0], *line[1:].split(None, len(names) - 1)])) for line in lines[2:-1]]

    def test_a_row_for_each_run_and_the_best_is_marked(self):
        (self.sweep / "points.txt").write_text("".join(
            f"{i}\toptim.lr={rate}\trun.seed=1\trun.folder=sweep/point-{i}\n"
            for i, rate in enumerate(("1e-3", "3e-4", "1e-4", "3e-5", "1e-5"))), encoding="utf-8")
        self.point(0, 0.001, 30, 2.5)
        self.add_checkpoint(30)
        self.point(1, 0.0003, 20, 2.25)
        self.hold()
        self.point(2, 0.0001, 10, 2.75)
        (self.run_folder / "events.jsonl").write_text(json.dumps(
            {"time": 1, "step": 10, "event": "failure", "detail": "n3: Killed"}) + "\n", encoding="utf-8")
        self.point(3, 0.00003, 0, 0)
        (self.run_folder / "metrics.jsonl").write_text("[]\n", encoding="utf-8")
        rows = self.rows()
        self.assertEqual(self.head, "sweep: 5 runs: 1 finished, 1 running, 3 others")
        self.assertEqual([row.get("optim.lr") for row in rows], ["0.001", "0.0003", "0.0001", "3e-05", "1e-5"])
        self.assertEqual([row["state"] for row in rows], [
            "finished", "running", "failed: n3: Killed", "damaged: metrics.jsonl holds no step", "not started"])
        self.assertEqual([(row[""], row["step"], row["loss"]) for row in rows], [
            (" ", "30/30", "2.5000"), ("*", "20/30", "2.2500"), (" ", "10/30", "2.7500"), (" ", "0/30", "-"),
            (" ", "0", "-")])
        # The seed is the same in all; where a run was evaluated, that decides.
        self.assertNotIn("run.seed", rows[0])
        self.run_folder = self.sweep / "point-2"
        self.add_evaluation(10, 2.125)
        rows = self.rows()
        self.assertEqual([(row[""], row["validation"]) for row in rows][:3], [(" ", "-"), (" ", "-"), ("*", "2.1250")])

    def test_differences_that_the_sweep_did_not_make(self):
        self.point(0, 0.001, 2, 2.5)
        self.point(1, 0.001, 2, 2.5, extra="seed = 7\n")
        self.assertEqual([row["run.seed"] for row in self.rows()], ["1", "7"])
        self.assertNotIn("optim.lr", self.rows()[0])

    def test_damaged_ones(self):
        self.point(0, 0.001, 2, 2.5)
        (self.sweep / "point-1").write_text("no folder", encoding="utf-8")
        (self.sweep / "point-2").mkdir()
        self.point(3, "much", 0, 0)
        (self.sweep / "points.txt").write_bytes(b"\x00\xff\n-1\tx\n99999999999\ta=b\n4\t=\tno equals\ta\x1b=b\x07\n")
        text = self.expect_done("top", "sweep")
        self.assertNotIn("\x07", text)
        states = [line.split(maxsplit=4)[-1] for line in text.splitlines()[3:-1]]
        # bad input: `top`: a sweep with folders that are no runs, or damaged | the row of the run says so:
        # damaged: ... | 0
        self.assertIn("damaged: sweep/point-1: not a folder; expected the folder of a run", text)
        self.assertIn("damaged: sweep/point-2: not a run folder: it holds neither", text)
        self.assertIn("damaged: config.ini is no configuration, or another version wrote it", text)
        self.assertIn("not started", states[-1])

    def test_a_run_that_cannot_be_read_may_be_the_best(self):
        self.point(0, 0.001, 2, 2.5)
        (self.sweep / "point-1").symlink_to("point-1")
        # bad input: `top`: a sweep with a run that cannot be read | sweep/point-1: cannot be read: Too many
        # levels of symbolic links | 5
        self.expect_refusal(5, "sweep/point-1: cannot be read: Too many levels of symbolic links", "top", "sweep")
        (self.sweep / "point-1").unlink()
        (self.sweep / "points.txt").mkdir()
        self.expect_refusal(5, "sweep/points.txt: cannot be read: Is a directory", "top", "sweep")

    def test_the_page_and_the_picture(self):
        self.expect_refusal(5, "sweep: not a run folder", "top", "sweep")
        self.point(0, 0.001, 30, 2.5)
        self.point(1, 0.0003, 20, 2.25)
        self.hold()
        self.point(2, 0.0001, 0, 0)
        self.expect_done("top", "sweep", "--html", "sweep/sweep.html", "--svg", "losses.svg")
        root = ElementTree.parse(self.sweep / "sweep.html").getroot()
        svg, html = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xhtml}"
        plots = list(root.iter(svg + "svg"))
        self.assertEqual([plot.get("aria-label") for plot in plots], ["Training loss"])
        legend = [text.text for text in plots[0].iter(svg + "text") if text.get("class") == "left"]
        self.assertEqual(legend, ["optim.lr 0.001", "optim.lr 0.0003 (best)"])
        # Curves, their names and the rows of the table lead to the reports of their runs.
        links = [link.get("href") for link in root.iter(svg + "a")] + [link.get("href") for link in root.iter(html + "a")]
        self.assertEqual(links, ["point-0/report.html", "point-1/report.html"] * 2 + [
            "point-0/report.html", "point-1/report.html", "point-2/report.html"])
        titles = [title.text for title in plots[0].iter(svg + "title")]
        self.assertIn("point 0 (optim.lr 0.001), step 30: 2.5", titles)
        cells = [["".join(cell.itertext()) for cell in row] for row in root.iter(html + "tr")]
        self.assertEqual(cells[2], ["1", "0.0003", "20 of 30", "2.2500", "", "best", "running"])
        self.expect_done("top", "sweep", "--html", "all.html")
        self.assertIn('<a href="sweep/point-1/report.html">1</a>', (self.folder / "all.html").read_text(encoding="utf-8"))
        self.assertIn("http-equiv", (self.sweep / "sweep.html").read_text(encoding="utf-8"))
        self.assertEqual(len([path for path in ElementTree.parse(self.folder / "losses.svg").iter(svg + "path")
                              if (path.get("class") or "") in ("s0", "s1") and "L" in path.get("d")]), 2)


    def test_one_point_is_seen_and_a_long_legend_is_whole(self):
        for number in range(8):
            self.point(number, 0.001 * (number + 1), 1 if number == 0 else 20, 2.5)
        self.expect_done("top", "sweep", "--html", "sweep.html")
        svg = "{http://www.w3.org/2000/svg}"
        plot, = ElementTree.parse(self.folder / "sweep.html").getroot().iter(svg + "svg")
        seen = [mark for mark in plot.iter() if "step 1: 2.5" in "".join(mark.itertext())
                and mark.get("class") not in (None, "hit") and not list(mark.iter(svg + "path"))]
        self.assertEqual(len(seen), 1, ElementTree.tostring(plot))
        names = {text.text: (float(text.get("x")), float(text.get("y")))
                 for text in plot.iter(svg + "text") if (text.text or "").startswith("optim.lr")}
        self.assertEqual(len(names), 8)
        self.assertGreater(len({y for _, y in names.values()}), 1)
        self.assertTrue(all(x + 7 * len(name) <= 640 for name, (x, _) in names.items()), names)


class Screen:
    """A terminal, as far as it is needed: what a frame leaves on it."""
    TOKEN = re.compile(r"\x1b\[([?\d]*)([A-Za-z])|(\r)|(\n)|([^\x1b\r\n])")

    def __init__(self, columns, rows):
        self.cells = [[" "] * columns for _ in range(rows)]
        self.x = self.y = 0

    def feed(self, text):
        for argument, command, carriage, newline, character in self.TOKEN.findall(text):
            if character:
                self.cells[self.y][self.x] = character
                self.x += 1
            elif carriage:
                self.x = 0
            elif newline:
                self.y += 1  # an IndexError: it would scroll
            elif command == "H":
                assert argument == "", argument
                self.x = self.y = 0
            elif command in "KJ":
                self.cells[self.y][self.x:] = [" "] * (len(self.cells[0]) - self.x)
                for row in self.cells[self.y + 1:] if command == "J" else ():
                    row[:] = [" "] * len(row)
            else:
                assert command in "hl", command

    def lines(self):
        return ["".join(row).rstrip() for row in self.cells]


class OnATerminal(RunFolderTest):
    def setUp(self):
        super().setUp()
        self.add_steps(1, 25)
        self.hold()

    def start(self, *arguments, folder="run", columns=100, rows=30, every=0.1):
        self.terminal, inner = pty.openpty()
        self.addCleanup(os.close, self.terminal)
        self.addCleanup(os.close, inner)  # stays open here: what is set there can be looked at
        self.inner = inner
        self.resize(columns, rows)
        self.before = termios.tcgetattr(inner)

        def own_terminal():
            os.setsid()
            fcntl.ioctl(inner, termios.TIOCSCTTY, 0)
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith(("PMI_", "PMIX_", "SLURM_"))}
        self.process = subprocess.Popen(
            [self.program, "top", folder, "--every", str(every), *arguments], stdin=inner, stdout=inner,
            stderr=inner, cwd=self.folder, env={**environment, **UTF8, "TERM": "xterm"},
            preexec_fn=own_terminal)
        self.addCleanup(self.process.wait)
        self.addCleanup(self.process.kill)
        self.output = ""

    def resize(self, columns, rows):
        self.size = columns, rows
        fcntl.ioctl(self.inner, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self):
        """What comes until the next pause."""
        if select.select([self.terminal], [], [], 0.05)[0]:
            self.output += os.read(self.terminal, 1 << 16).decode(errors="ignore")

    def wait_for(self, condition):
        """The screen after the first frame since now that meets the condition."""
        begin = len(self.output)
        while True:
            self.read()
            for frame in re.findall(r"(?s)\x1b\[H.*?\x1b\[J", self.output[begin:]):
                screen = Screen(*self.size)
                try:
                    screen.feed(frame)
                except IndexError:
                    continue  # drawn for another size
                if condition(screen.lines()):
                    return screen.lines()
            self.assertIsNone(self.process.poll(), self.output)

    def expect_ended(self, status=0):
        while self.process.poll() is None:
            self.read()
        while select.select([self.terminal], [], [], 0.05)[0]:
            self.read()
        self.assertEqual(self.process.returncode, status, self.output)
        self.assertEqual(self.output.count(ENTER), self.output.count(LEAVE))
        self.assertEqual(termios.tcgetattr(self.inner), self.before)
        return self.output.rsplit(LEAVE, 1)[1]

    def test_follows_the_run_and_the_window(self):
        self.start()
        lines = self.wait_for(lambda lines: lines[0] == "run: running")
        self.assertRegex(lines[1], "^step +25 of 100 ")
        self.assertTrue(self.output.startswith(ENTER), self.output)
        self.add_steps(26, 30)
        self.hold(job="12")
        self.wait_for(lambda lines: lines[1].startswith("step        30 of 100"))
        self.wait_for(lambda lines: any("job 12," in line for line in lines))
        for columns, rows in ((50, 12), (30, 5), (8, 3), (200, 50)):
            self.resize(columns, rows)
            lines = self.wait_for(lambda lines: lines[0].startswith("run: "))
            # It shows as much as fits besides the row and the column that stay free.
            self.assertLessEqual(max(map(len, lines)), columns - 1)
            self.assertEqual(lines[-1], "")
            if rows < 10:
                self.assertNotEqual(lines[-2], "")
        os.write(self.terminal, b"q")
        self.assertIn("run: running\r\nstep        30 of 100", self.expect_ended())

    def test_of_many_runs_of_a_sweep_the_best_is_shown(self):
        for number in range(30):
            self.run_folder = self.folder / f"sweep/point-{number}"
            self.run_folder.mkdir(parents=True)
            (self.run_folder / "config.ini").write_text(f"[run]\nsteps = 2\n[optim]\nlr = {number + 1}\n")
            self.add_steps(1, 2, loss=2.0 if number == 28 else 3.0)
        self.hold()
        self.start(folder="sweep", rows=20)
        lines = self.wait_for(lambda lines: lines[0].startswith("sweep: 30 runs: "))
        self.assertRegex(lines[16], r"^\* +28 +29 +2/2 +2\.0000 ")
        self.assertEqual(lines[17], "and 15 more")
        self.resize(100, 40)
        lines = self.wait_for(lambda lines: lines[31].startswith("     29 "))
        self.assertTrue(lines[30].startswith("*    28 "), lines)
        os.write(self.terminal, b"q")
        self.assertIn("sweep: 30 runs: ", self.expect_ended())

    def test_draws_anew_as_soon_as_the_window_changes(self):
        self.start(every=80000)
        for columns in (60, 90, 50):
            self.resize(columns, 20)
            self.wait_for(lambda lines: lines[0] == "run: running")
        os.write(self.terminal, b"q")
        self.expect_ended()

    def test_gives_the_terminal_back(self):
        for end in (lambda: os.write(self.terminal, b"\x03"),
                    lambda: self.process.send_signal(signal.SIGTERM),
                    lambda: self.process.send_signal(signal.SIGHUP)):
            self.start()
            self.wait_for(lambda lines: lines[0] == "run: running")
            self.assertFalse(termios.tcgetattr(self.inner)[3] & termios.ECHO)
            end()
            self.assertIn("run: running\r\n", self.expect_ended())

    def test_gives_the_terminal_back_while_stopped(self):
        self.start()
        self.wait_for(lambda lines: lines[0] == "run: running")
        os.write(self.terminal, b"\x1a")
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)
        while select.select([self.terminal], [], [], 0.05)[0]:
            self.read()
        self.assertTrue(self.output.endswith(LEAVE))
        self.assertEqual(termios.tcgetattr(self.inner), self.before)
        self.process.send_signal(signal.SIGCONT)
        self.wait_for(lambda lines: lines[0] == "run: running")
        os.write(self.terminal, b"q")
        self.expect_ended()

    def test_ends_with_the_run(self):
        self.start()
        self.wait_for(lambda lines: lines[0] == "run: running")
        self.add_steps(26, 100)
        self.add_checkpoint(100)
        (self.run_folder / "lease").unlink()
        self.assertIn("run: finished\r\nstep        100 of 100", self.expect_ended())

    def test_a_folder_that_goes_away(self):
        self.start()
        self.wait_for(lambda lines: lines[0] == "run: running")
        self.run_folder.rename(self.folder / "moved")
        # bad input: `top`: a folder that is not there, or goes away | run: there is no such folder;
        # expected the folder of a run | 5
        self.assertEqual(self.expect_ended(status=5),
                         "trireme: run: there is no such folder; expected the folder of a run\r\n")

    def test_once_writes_plainly(self):
        self.start("--once", columns=60)
        while self.process.poll() is None:
            self.read()
        self.read()
        self.assertEqual(self.process.returncode, 0)
        self.assertNotIn("\x1b", self.output)
        self.assertLessEqual(max(map(len, self.output.split("\r\n"))), 59)


if __name__ == "__main__":
    ProgramTest.program = Path(sys.argv.pop(1)).resolve()
    unittest.main()
