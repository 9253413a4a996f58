#!/usr/bin/env python3
"""Runs jobs/first_gpu.sh with a stand-in for the program and with steps of its own: what is in the folder of
results when a step fails or hangs, when the time is used up, and when the script is killed.

    python3 first_gpu_test.py REPOSITORY
"""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

TRIREME = """#!/usr/bin/env bash
case $1 in
  version) printf 'trireme 0\\n\\n%s\\n' "${GPU_LINE-cuda:0            Stand-in, 80 GiB}" ;;
  prepare) mkdir -p "$4"; touch "$4/train.h5" ;;
esac
"""


class FirstGpu(unittest.TestCase):
    repository = Path()

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = Path(scratch.name)
        (self.root / "jobs").mkdir()
        shutil.copy(self.repository / "jobs/first_gpu.sh", self.root / "jobs")
        program = self.root / "build/release/bin/trireme"
        program.parent.mkdir(parents=True)
        program.write_text(TRIREME, encoding="utf-8")
        program.chmod(0o755)
        (self.root / "page.md").write_text("text", encoding="utf-8")
        self.out = self.root / "out"

    def command(self, steps, *more):
        file = self.root / "steps"
        file.write_text("".join(line + "\n" for line in steps), encoding="utf-8")
        return [str(self.root / "jobs/first_gpu.sh"), "run", str(self.out), "--steps-from", str(file), *more]

    def run_steps(self, steps, *more, **environment):
        return self.run_command(self.command(steps, *more), **environment)

    def run_command(self, command, **environment):
        return subprocess.run(list(map(str, command)), env={**os.environ, **environment}, capture_output=True,
                              text=True, timeout=40, check=False)

    def summary(self):
        """The results by step, as both summaries have them."""
        data = json.loads((self.out / "summary.json").read_text(encoding="utf-8"))
        page = (self.out / "summary.md").read_text(encoding="utf-8")
        for step in data["steps"]:
            self.assertIn(f"| [{step['name']}]({step['folder']}) | {step['result']} |", page)
        return data, {step["name"]: step["result"] for step in data["steps"]}

    def test_keeps_what_each_step_said(self):
        done = self.run_steps(["one :: 1 :: 9 :: - :: echo \"a | 'b' \\\\ $GPUS\"; echo why >&2",
                               "two :: 1 :: 9 :: - :: pwd; test -e \"$DATA/train.h5\""])
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        data, results = self.summary()
        self.assertEqual(results, {"one": "passed", "two": "passed"})
        self.assertEqual((data["gpu"], data["state"]), ("Stand-in, 80 GiB", "done"))
        folder = self.out / "01-one"
        self.assertEqual((folder / "stdout").read_text(), "a | 'b' \\ 1\n")
        self.assertEqual((folder / "stderr").read_text(), "why\n")
        self.assertEqual((folder / "status").read_text(), "0\n")
        self.assertEqual((self.out / "02-two/stdout").read_text(), f"{self.out}/02-two\n")
        again = self.run_steps(["one :: 1 :: 9 :: - :: true"])
        # bad input: first_gpu.sh: a folder that holds results | OUT holds results already: name another
        # folder | 2
        self.assertEqual(again.returncode, 2)
        self.assertIn("holds results already", again.stderr)

    def test_goes_on_after_a_step_that_fails_or_hangs(self):
        done = self.run_steps(["bad :: 1 :: 9 :: - :: echo broken; exit 3", "stuck :: 1 :: 1 :: - :: sleep 30",
                               "skips :: 1 :: 9 :: - :: exit 77",
                               "part :: 1 :: 9 :: - :: echo '[  SKIPPED ] 1 test.'; echo '[  SKIPPED ] 2 tests, listed below:'",
                               "lacks :: 1 :: 9 :: no-such-tool :: true", "good :: 1 :: 9 :: - :: true"])
        self.assertEqual(done.returncode, 1, done.stderr)
        data, results = self.summary()
        self.assertEqual(results, {
            "bad": "failed, status 3", "stuck": "ended after 1 s", "skips": "skipped",
            "part": "passed, 3 skipped", "lacks": "not run: there is no no-such-tool", "good": "passed"})
        self.assertEqual(data["steps"][0]["note"], "broken")
        self.assertEqual((self.out / "01-bad/status").read_text(), "3\n")

    def test_what_outlives_its_step_is_ended(self):
        done = self.run_steps(["leaves :: 1 :: 9 :: - :: setsid sleep 300 > /dev/null 2>&1 < /dev/null & echo $! > pid",
                               "stuck :: 1 :: 1 :: - :: setsid sleep 301 > /dev/null 2>&1 < /dev/null & echo $! > pid; sleep 30",
                               "looks :: 1 :: 9 :: - :: for pid in $(cat ../*/pid); do ! grep -q '^State:.[RSD]' /proc/$pid/status || exit 1; done"])
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(self.summary()[1], {"leaves": "passed", "stuck": "ended after 1 s", "looks": "passed"})

    # A NCCL that says nothing of the tuner has not used it, whatever its tests say.
    def test_sees_whether_nccl_has_used_the_tuner(self):
        (self.root / "nccl").write_text("#!/bin/sh\n"
            "[ -e \"$TRIREME_NCCL_TABLE\" ] && grep -q 'communicator 2 1' \"$TRIREME_NCCL_TABLE\" || exit 5\n"
            "echo \"TUNER/Plugin: Using Trireme (v5) $NCCL_TUNER_PLUGIN\"\n"
            "echo 'Trireme tuner: a table for 2 ranks on 1 nodes'\n", encoding="utf-8")
        (self.root / "nccl").chmod(0o755)
        tuner = f"\"$FIRST_GPU\" tuner 2 {self.root}/nccl"
        done = self.run_steps([f"used :: 1 :: 9 :: - :: {tuner}",
                               "none :: 1 :: 9 :: - :: \"$FIRST_GPU\" tuner 2 echo fine",
                               "bad :: 1 :: 9 :: - :: \"$FIRST_GPU\" tuner 2 sh -c 'exit 4'"])
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(self.summary()[1], {"used": "passed", "none": "failed, status 1",
                                             "bad": "failed, status 4"})
        self.assertIn(f"{self.root}/build/release/lib/trireme/libtrireme_tuner.so",
                      (self.out / "01-used/stdout").read_text())

    def test_stops_when_the_time_is_used_up(self):
        done = self.run_steps(["quick :: 1 :: 9 :: - :: true", "long :: 61 :: 99 :: - :: exit 1",
                               "short :: 1 :: 9 :: - :: true"], "--minutes", "1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.summary()[1], {"quick": "passed", "long": "not run: time", "short": "passed"})

    def kill_in_the_second_step(self, sent):
        steps = ["first :: 1 :: 9 :: - :: true", "second :: 1 :: 30 :: - :: touch \"$MARK\"; sleep 2",
                 "third :: 1 :: 9 :: - :: true"]
        mark = self.root / "mark"
        with subprocess.Popen(self.command(steps), env={**os.environ, "MARK": str(mark)},
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
            until = time.monotonic() + 20
            while not mark.exists():
                self.assertLess(time.monotonic(), until)
                time.sleep(0.02)
            process.send_signal(sent)
            process.wait(20)
        return process.returncode, self.summary()

    def test_a_kill_leaves_a_folder_that_can_be_read(self):
        status, (data, results) = self.kill_in_the_second_step(signal.SIGKILL)
        self.assertEqual(status, -signal.SIGKILL)
        self.assertEqual(data["state"], "running")
        self.assertEqual(results, {"first": "passed", "second": "running", "third": "waiting"})

    def test_a_signal_is_written_down(self):
        status, (data, results) = self.kill_in_the_second_step(signal.SIGTERM)
        self.assertEqual((status, data["state"]), (1, "cut"))
        self.assertEqual(results, {"first": "passed", "second": "cut", "third": "not run: cut"})

    def test_says_that_there_is_no_gpu(self):
        # bad input: first_gpu.sh run: no GPU | no GPU here (why): nothing was run | 71
        done = self.run_steps(["one :: 1 :: 9 :: - :: true"], GPU_LINE="GPUs              none: no driver")
        self.assertEqual((done.returncode, done.stdout), (71, ""))
        self.assertEqual(done.stderr, "first_gpu.sh: no GPU here (none: no driver): nothing was run\n")
        self.assertFalse(self.out.exists())

    def test_refuses_what_it_does_not_know(self):
        # bad input: first_gpu.sh: a wrong option, value or list of steps | run has no option '...'; --help
        # shows all; --minutes is '...'; it must be a number of minutes; no step: ... | 2
        script = self.root / "jobs/first_gpu.sh"
        for arguments, message in (
                (["go"], "no command is called 'go'"), (["run"], "name the folder"),
                (["run", self.out, "--fast"], "run has no option '--fast'"),
                (["run", self.out, "--minutes", "0"], "--minutes is '0'"),
                (["run", self.out, "--only", "nothing"], "no step is called 'nothing'"),
                (["bundle", "file.zip"], "must end with .tar.gz"),
                (["bundle", "file.tar.gz", "--llm-c", "/nowhere"], "--llm-c: there is no program /nowhere"),
                (["bundle", "file.tar.gz", "--build", self.root], "is no build of Trireme")):
            done = self.run_command([script, *arguments])
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertRegex(done.stderr, r"\Afirst_gpu\.sh: [^\n]+\n\Z")
            self.assertIn(message, done.stderr)
        done = self.run_steps(["one :: soon :: 9 :: - :: true"])
        self.assertEqual(done.returncode, 2)
        self.assertIn("no step: one", done.stderr)
        self.assertFalse(self.out.exists())

    def test_tells_the_median_step_of_llm_c(self):
        peer = self.root / "bin/train_gpt2cu"
        peer.parent.mkdir()
        peer.write_text('''#!/usr/bin/env bash
od -A n -t d4 -N 12 "$2" | xargs echo header
stat -c '%s bytes' "$2"
for step in 1 2 3 4 5 6 7 8; do
  echo "step    $step/8 | loss 7.0 (+nanz)| norm 1.0 (+nanz)| lr 1.00e-03 | $((900 - 100 * step)).50 ms | 50.0% bf16 MFU | 9 tok/s"
done
''', encoding="utf-8")
        peer.chmod(0o755)
        script = self.repository / "perf/llm_c.sh"
        done = self.run_command([script, "run", 8], PATH=f"{peer.parent}:{os.environ['PATH']}")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        lines = done.stdout.splitlines()
        self.assertEqual(lines[:2], ["header 20240520 1 2097153", f"{1024 + 2 * 2097153} bytes"])
        self.assertEqual(lines[-1], "llm.c: 326862.8 tokens/s, 200.500 ms a step, the median of 3")
        # bad input: perf/llm_c.sh: a wrong command or number of steps | run [STEPS]: STEPS is a number above 5 | 2
        # bad input: perf/llm_c.sh build: a folder that is no llm.c | ... is no clone of llm.c: train_gpt2.cu is missing
        # | 3
        for arguments, status, message in ((["run", "5"], 2, "STEPS is a number above 5"), (["go"], 2, "'go'"),
                                           (["build", self.root, "x"], 3, "is no clone of llm.c"),
                                           (["run"], 1, "there is no train_gpt2cu in PATH")):
            done = self.run_command([script, *arguments])
            self.assertEqual(done.returncode, status, done.stderr)
            self.assertRegex(done.stderr, r"\Allm_c\.sh: [^\n]+\n\Z")
            self.assertIn(message, done.stderr)

    def test_covers_what_was_not_run(self):
        printed = self.run_command([self.repository / "jobs/first_gpu.sh", "steps"]).stdout
        steps = [line.split(" :: ")[0] for line in printed.splitlines()]
        self.assertEqual(len(steps), len(set(steps)))
        expected = sum(int(line.split(" :: ")[1]) for line in printed.splitlines())
        self.assertLess(expected, 25 * 60)
        section = (self.repository / "perf/RESULTS.md").read_text(encoding="utf-8").split("## Not run: needs a GPU")[1]
        rows = [line for line in section.split("\n## ")[0].splitlines() if line.startswith("| ")]
        self.assertEqual(rows.pop(0), "| What | Command | Steps |")
        self.assertTrue(rows)
        for row in rows:  # what no row names has been run
            own = re.split(r"(?<!\\)\|", row)[-2].strip().split(", ")
            self.assertLessEqual(set(own), set(steps), f"no steps of jobs/first_gpu.sh: {row}")

    # Both programs of a comparison are told the same step, on each device.
    def test_comparisons_name_the_same_step_twice(self):
        script = self.root / "perf/train_step.sh"
        script.parent.mkdir()
        shutil.copy(self.repository / "perf/train_step.sh", script)
        said = self.root / "said"
        for name in ("ours", "python"):
            stand_in = self.root / name
            stand_in.write_text(f'#!/usr/bin/env bash\n[[ $1 == -c ]] || echo "$@" >> {said}\n', encoding="utf-8")
            stand_in.chmod(0o755)
        for device, kind, count, expected in (
                ("cuda", None, 1, "--preset gpt2-124m --batch 64 --dtype bf16 --device cuda --context 1024 --graphs true"),
                ("cuda", "pictures", 2, "--batch 256 --dtype bf16 --device cuda --preset mobilenet_v2 --micro 256 --graphs true"),
                ("cuda", "masked", 1, "--batch 64 --dtype bf16 --device cuda --context 512 --preset bert-base --graphs true"),
                ("cuda", "decoders", 1, "--batch 8 --dtype bf16 --device cuda --preset llama3.2-1b --context 1024 --graphs true"),
                ("cpu", None, 3, "--preset gpt2-124m --batch 4 --dtype bf16 --device cpu --context 64 --threads"),
                ("cpu", "pictures", 2, "--batch 128 --dtype bf16 --device cpu --preset mobilenet_v2-cifar --micro 128 --threads"),
                ("cpu", "masked", 1, "--batch 8 --dtype bf16 --device cpu --context 128 --preset bert-base --threads"),
                ("cpu", "decoders", 2, "--batch 2 --dtype bf16 --device cpu --preset qwen3-0.6b --context 256 --threads")):
            said.unlink(missing_ok=True)
            done = self.run_command([script, "--device", device, *([f"--{kind}"] if kind else ())], DTYPES="bf16",
                                    TRIREME=str(self.root / "ours"), TORCH_PYTHON=str(self.root / "python"))
            self.assertEqual(done.returncode, 0, done.stderr)
            lines = said.read_text(encoding="utf-8").splitlines()
            self.assertEqual(len(lines), 2 * count)
            self.assertIn(f"bench step {expected}", lines[0])
            for ours, peer in zip(lines[::2], lines[1::2]):
                step = re.search(r"--batch.* --device \w+( --context \d+| --preset \S+| --micro \d+)*", ours)[0]
                self.assertIn(step, peer)
                program = peer.split()[0]
                self.assertTrue((self.repository / program).is_file(), program)
        for arguments in (["--device", "tpu"], ["--photos"]):
            done = self.run_command([script, *arguments])
            self.assertEqual(done.returncode, 2)
            self.assertRegex(done.stderr, r"\Atrain_step\.sh: [^\n]+\n\Z")


if __name__ == "__main__":
    FirstGpu.repository = Path(sys.argv.pop(1)).resolve()
    unittest.main()
