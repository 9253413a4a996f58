#!/usr/bin/env python3
"""Runs jobs/first_gpus.sh with stand-ins for the program and the launchers: which steps there are for so many GPUs,
what each of its own steps finds wrong, and how it starts ranks in a Slurm allocation.

    python3 first_gpus_test.py REPOSITORY
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

# Trains by writing down losses: those of LOSSES times the step, from the step where an earlier run was cut on. A run
# whose folder is named in SLOW waits at its 13th step for ever. The losses of one that is named in GONE are there only
# when it has ended. FAILS names runs that end with 70.
TRIREME = r"""#!/usr/bin/env python3
import json, os, pathlib, subprocess, sys, time
words = sys.argv[1:]
if words[0] == "version":
    print("trireme 0\n")
    for i in range(int(os.environ.get("GPUS_HERE", 4))):
        print(f"cuda:{i}            Stand-in, 80 GiB")
elif words[0] == "prepare":
    folder = pathlib.Path(words[words.index("--output") + 1])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.h5").touch()
elif words[0] == "train":
    flags = dict(zip(words[1::2], words[2::2]))
    assert len(flags) * 2 == len(words) - 1, f"a flag was given twice: {words}"
    run = flags["--run.folder"]
    if run in os.environ.get("FAILS", "").split():
        print("trireme: an error on purpose")
        sys.exit(70)
    path = pathlib.Path(run) / "metrics.jsonl"
    path.parent.mkdir(exist_ok=True)
    begin = 10 if path.exists() else 0
    lines = path.read_text().splitlines()[:begin] if begin else []
    loss = 1.5 if run in os.environ.get("WRONG", "").split() else 1.0
    if run in os.environ.get("GONE", "").split():
        subprocess.Popen(["sh", "-c", f"while kill -0 {os.getpid()}; do sleep 0.02; done 2> /dev/null; mv {path}.new {path}"])
        path = path.with_suffix(".jsonl.new")
    for step in range(begin, int(flags["--run.steps"])):
        lines.append(json.dumps({"step": step + 1, "loss": loss / (step + 1), "step_s": 0.01 * (step + 1)},
                                separators=(",", ":")))
        path.write_text("\n".join(lines) + "\n")
        while step == 12 and begin == 0 and run in os.environ.get("SLOW", "").split():
            time.sleep(0.1)
"""
MPIEXEC = """#!/usr/bin/env bash
shift 2
exec "$@"
"""
SRUN = """#!/usr/bin/env bash
echo "srun $*" >> "$SRUN_LOG"
"""


class FirstGpus(unittest.TestCase):
    repository = Path()

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = Path(scratch.name)
        (self.root / "jobs").mkdir()
        for name in ("first_gpu.sh", "first_gpus.sh"):
            shutil.copy(self.repository / "jobs" / name, self.root / "jobs")
        programs = self.root / "build/release/bin"
        programs.mkdir(parents=True)
        for name, text in (("trireme", TRIREME), ("mpiexec", MPIEXEC), ("srun", SRUN)):
            (programs / name).write_text(text, encoding="utf-8")
            (programs / name).chmod(0o755)
        (self.root / "page.md").write_text("text", encoding="utf-8")

    def call(self, *words, **environment):
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM_", "FIRST_GPU"))}
        return subprocess.run([str(self.root / "jobs/first_gpus.sh"), *map(str, words)], capture_output=True, text=True,
                              cwd=self.root, env={**clean, "SRUN_LOG": str(self.root / "srun.log"), **environment},
                              timeout=120, check=False)

    def results(self, *words, **environment):
        out = self.root / f"out{len(list(self.root.glob('out*')))}"
        done = self.call("run", out, *words, **environment)
        data = json.loads((out / "summary.json").read_text(encoding="utf-8"))
        said = {path.parent.name[3:]: path.read_text(encoding="utf-8") for path in out.glob("*/stdout")}
        return done, {step["name"]: step["result"] for step in data["steps"]}, said

    def test_steps_for_so_many_gpus(self):
        for gpus, counts in ((2, "1 2"), (4, "1 2 4"), (6, "1 2 4 6"), (16, "1 2 4 8 16")):
            lines = self.call("steps", "--gpus", gpus).stdout.splitlines()
            steps = {line.split(" :: ")[0]: line.split(" :: ") for line in lines}
            self.assertEqual(len(steps), len(lines))
            self.assertIn(f"for ranks in {counts};", steps["step"][4])
            self.assertIn(f"--nodes {counts.replace(' ', ',')} ", steps["scale-weak"][4])
            for words in steps.values():
                self.assertLessEqual(int(words[1]), int(words[2]), words)
            self.assertLess(sum(int(words[1]) for words in steps.values()), 45 * 60)

    def test_takes_what_is_there(self):
        self.assertIn(" on 4 ", self.call("steps").stdout)
        self.assertIn(" on 2 ", self.call("steps", GPUS_HERE="3").stdout)  # an even number
        self.assertIn(" on 16 ", self.call("steps", GPUS_HERE="4", SLURM_JOB_NUM_NODES="8").stdout)
        # bad input: first_gpus.sh: fewer than two GPUs | fewer than two GPUs here: first_gpu.sh is for one | 71
        done = self.call("run", "out", GPUS_HERE="1")
        self.assertEqual((done.returncode, done.stderr),
                         (71, "first_gpus.sh: fewer than two GPUs here: first_gpu.sh is for one\n"))
        self.assertFalse((self.root / "out").exists())

    def test_wrong_options(self):
        # bad input: first_gpus.sh: a wrong number of GPUs, or an unknown option | --gpus is '3'; it must be an even
        # number from 2 to 16 | 2
        for words, message in ((("run",), "run OUT: name the folder"), (("steps", "--gpus", 3), "--gpus is '3'"),
                               (("steps", "--gpus", 18), "--gpus is '18'"), (("run", "out", "--gpus"), "needs a value"),
                               (("steps", "--only", "x"), "steps has no option '--only'"), (("go",), "no command")):
            done = self.call(*words)
            self.assertEqual(done.returncode, 2, done)
            self.assertIn(message, done.stderr)

    def test_layouts_are_compared_with_one_gpu(self):
        done, results, said = self.results("--only", "layouts")
        self.assertEqual((done.returncode, results), (0, {"layouts": "passed"}), said)
        self.assertIn("zb-v         20 steps, largest difference 0, allowed 0.001\n", said["layouts"])
        done, results, said = self.results("--only", "layouts", WRONG="tensor", FAILS="mpi")
        self.assertEqual((done.returncode, results), (1, {"layouts": "failed, status 1"}))
        self.assertIn("tensor       20 steps, largest difference 0.5", said["layouts"])
        self.assertIn("mpi failed: trireme: an error on purpose\n", said["layouts"])
        self.assertIn("pipeline     20 steps, largest difference 0,", said["layouts"])

    def test_one_way_to_overlap_that_fails_hides_no_other(self):
        done, results, said = self.results("--only", "overlap", FAILS="efficiency")
        self.assertEqual((done.returncode, results), (1, {"overlap": "failed, status 1"}))
        lines = said["overlap"].splitlines()
        self.assertEqual([line.split()[0] for line in lines],
                         ["plain", "shards", "channels-8", "channels-8-spare", "trireme:", "zero"])
        self.assertIn("250.00 ms a step, the median of 10", lines[0])  # of steps 21 to 30

    def test_a_killed_rank_ends_the_run_which_goes_on(self):
        done, results, said = self.results("--only", "killed", SLOW="cut")
        self.assertEqual((done.returncode, results), (0, {"killed": "passed"}), said)
        self.assertIn("30 steps, largest difference after the kill 0\n", said["killed"])
        done, results, said = self.results("--only", "killed", SLOW="cut", WRONG="cut")
        self.assertEqual(results, {"killed": "failed, status 1"})
        done, results, said = self.results("--only", "killed", GONE="cut")
        self.assertEqual(results, {"killed": "failed, status 1"})
        self.assertIn("no rank was found to kill", said["killed"])

    def test_in_an_allocation_srun_starts_the_ranks(self):
        allocation = {"SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_ID": "7", "GPUS_HERE": "4"}
        _, results, _ = self.results("--only", "doctor", **allocation)
        self.assertEqual(results, {"doctor": "passed"})
        self.results("--only", "facts", **allocation)
        self.results("--only", "comm-tests", FIRST_GPUS_SRUN="--mpi=pmix --exclusive", **allocation)
        lines = (self.root / "srun.log").read_text(encoding="utf-8").splitlines()
        ranks = "srun --nodes=2 --ntasks=8 --ntasks-per-node=4 --gres=gpu:4 --cpu-bind=cores"
        self.assertEqual(lines[0], f"{ranks} --mpi=pmi2 trireme doctor")
        self.assertTrue(lines[1].startswith("srun --nodes=2 --ntasks=2 --ntasks-per-node=1 --gres=none"), lines[1])
        self.assertEqual(lines[-1], f"{ranks} --mpi=pmix --exclusive comm_gpu_test --gtest_brief=1")
        self.assertIn("srun --nodes=1 --ntasks=2 --ntasks-per-node=2 --gres=gpu:2 ", lines[-3])
        steps = self.call("steps", **allocation).stdout
        self.assertIn("--launcher srun --ranks-per-node 4 --nodes 1,2 ", steps)
        self.assertIn("\nprobe :: ", steps)


if __name__ == "__main__":
    FirstGpus.repository = Path(sys.argv.pop()).resolve()
    unittest.main()
