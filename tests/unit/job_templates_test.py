#!/usr/bin/env python3
"""Fills in every template of jobs/ through `trireme job` and has bash and shellcheck read it.

    python3 job_templates_test.py TRIREME REPOSITORY
"""
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
from cli_testing import ProgramTest  # noqa: E402

SITE = """[slurm]
partition = long
account = me
extra = --exclusive
[environment]
modules = gcc mpich
variables = UCX_TLS=tcp,self
setup = ulimit -c 0
"""
RUN = """[run]
folder = my run's
[model]
preset = test-gpt
[data]
train = train.h5
[job]
tasks_per_node = 2
"""
# What stands in place of srun: its words on standard error, and a status.
SRUN = """#!/bin/sh
echo "$*" >> "$CALLS"
printf "$SRUN_WORDS" >&2
exit "$SRUN_STATUS"
"""
SCONTROL = '#!/bin/sh\necho "scontrol $*" >> "$CALLS"\n'


class Templates(ProgramTest):
    repository = Path()

    def setUp(self):
        super().setUp()
        (self.folder / "site.ini").write_text(SITE, encoding="utf-8")
        (self.folder / "run.ini").write_text(RUN, encoding="utf-8")

    def names(self):
        found = sorted(path.stem for path in (self.repository / "jobs").glob("*.sbatch"))
        self.assertEqual(found, ["chain", "scaling", "several_nodes", "several_nodes_gpu",
                                 "single_node", "sweep"])
        return found

    def fill(self, name, *arguments):
        more = {"single_node": [], "sweep": ["--sweep", "run.seed=1,2"]}.get(name, ["--nodes", "3"])
        path = self.folder / f"{name}.sh"
        self.expect_done("job", name, "--config", "run.ini", "--site", "site.ini", "--output", path,
                         "--time", "02:00:00", "--grace", "90", *more, *arguments)
        return path

    def check(self, *command):
        done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_bash_reads_every_filled_in_template(self):
        for name in self.names():
            path = self.fill(name)
            self.check("bash", "-n", path)
            text = path.read_text(encoding="utf-8")
            self.assertNotRegex(text, "@[A-Z_]+@")
            for line in ("#SBATCH --partition=long", "#SBATCH --exclusive", "module load mpich",
                         "export UCX_TLS=tcp,self", "ulimit -c 0", "#SBATCH --time=02:00:00",
                         "#SBATCH --open-mode=append", "#SBATCH --requeue"):
                self.assertRegex(text, f"(?m)^{line}$")
            # sbatch reads its lines up to the first that is neither a comment nor empty.
            self.assertNotIn("#SBATCH", text[text.index("\nmodule load"):])
        self.assertIn("#SBATCH --signal=USR1@90\n",
                      (self.folder / "chain.sh").read_text(encoding="utf-8"))

    def test_shellcheck_finds_nothing(self):
        if shutil.which("shellcheck") is None:
            self.skipTest("shellcheck is not installed")
        self.check("shellcheck", *sorted((self.repository / "jobs").glob("*.sbatch")),
                   *sorted((self.repository / "jobs").glob("*.sh")))
        for name in self.names():
            self.check("shellcheck", self.fill(name))

    def test_a_file_of_ones_own_is_a_template(self):
        (self.folder / "own.sbatch").write_text("n=@NODES@\n# @OPTIONS@\n", encoding="utf-8")
        text = self.expect_done("job", "own.sbatch", "--config", "run.ini", "--model.tied", "false",
                                "--site", self.repository / "jobs/site.ini")
        self.assertTrue(text.startswith("n=1\n'--run.folder=my run'\\''s'\n"), text)
        self.assertIn("\n--model.tied=false\n", text)

    def run_job(self, status, words="", **environment):
        for name, text in (("srun", SRUN), ("scontrol", SCONTROL), ("module", "#!/bin/sh\n")):
            (self.folder / name).write_text(text, encoding="utf-8")
            (self.folder / name).chmod(0o755)
        calls = self.folder / "calls"
        calls.write_text("", encoding="utf-8")
        done = subprocess.run(
            ["bash", self.fill("chain", "--job.restarts", "3")], capture_output=True, text=True,
            cwd=self.folder, check=False, env={
                "PATH": f"{self.folder}:/usr/bin:/bin", "CALLS": str(calls),
                "SRUN_STATUS": str(status), "SRUN_WORDS": words, "SLURM_JOB_ID": "7", **environment})
        return done, calls.read_text(encoding="utf-8")

    def test_statuses_end_the_job_or_queue_it_again(self):
        for status in (0, 2, 70, 76):
            done, calls = self.run_job(status)
            self.assertEqual((done.returncode, done.stderr), (status, ""))
            self.assertNotIn("scontrol", calls)
        done, calls = self.run_job(75)
        self.assertEqual(done.returncode, 75)
        self.assertIn("-K1 --mpi=pmi2 --cpus-per-task=1 ", calls)
        self.assertIn("\nscontrol requeue 7\n", calls)
        done, calls = self.run_job(75, SLURM_RESTART_COUNT="3")
        self.assertEqual(done.returncode, 75)
        self.assertNotIn("scontrol", calls)
        self.assertIn("started again 3 times already (job.restarts)", done.stderr)

    def test_a_killed_step_is_told_once(self):
        words = "srun: error: n2: task 1: Killed\\nsrun: error: n1: task 0: Terminated\\n"
        done, _ = self.run_job(137, words)
        self.assertEqual(done.returncode, 76)
        self.assertEqual(done.stderr.splitlines()[2:], [
            "trireme: the step was killed, status 137, before a rank could speak: "
            "srun: error: n2: task 1: Killed"])
        done, _ = self.run_job(143)
        self.assertIn("before a rank could speak: srun named no task", done.stderr)
        # A rank has said it already.
        done, _ = self.run_job(137, "trireme: rank 1 (host n2) is lost\\n" + words)
        self.assertEqual(done.returncode, 76)
        self.assertNotIn("before a rank could speak", done.stderr)

    def test_refusals(self):
        run = ["--config", "run.ini"]
        known = "chain, scaling, several_nodes, several_nodes_gpu, single_node, sweep"
        self.expect_refusal(2, f"job takes one template: one of {known}, or a file", "job", *run)
        self.expect_refusal(2, f"template 'chian' is neither a file nor one of {known}; did you "
                            "mean chain?", "job", "chian", *run)
        self.expect_refusal(2, "unknown flag --nodse; did you mean --nodes?", "job", "chain", *run,
                            "--nodse", "2")
        self.expect_refusal(2, "--nodes 0: must be at least 1", "job", "chain", *run,
                            "--nodes", "0")
        self.expect_refusal(2, "2 nodes x 2 tasks: a grid with tensor=3", "job", "chain", *run,
                            "--nodes", "2", "--grid.tensor", "3")
        self.expect_refusal(2, "a node has 100: fewer tasks a node", "job", "chain", *run,
                            "--memory", "100M")
        self.expect_refusal(2, "--site none.ini cannot be read", "job", "chain", *run,
                            "--site", "none.ini")
        self.expect_refusal(5, "--output none/x: cannot be written", "job", "chain", *run,
                            "--output", "none/x")
        self.expect_refusal(2, "there is no sbatch in the PATH", "job", "chain", *run, "--submit",
                            environment={"PATH": str(self.folder)})
        self.expect_refusal(2, "trireme job is one process, but", "job", "chain", *run,
                            environment={"PMI_RANK": "0", "PMI_SIZE": "2"})
        (self.folder / "own").write_text("@NODE@\n", encoding="utf-8")
        self.expect_refusal(2, "own:1: unknown placeholder @NODE@; did you mean @NODES@?",
                            "job", "own", *run)
        (self.folder / "train.h5").write_text("text", encoding="utf-8")
        self.expect_refusal(3, "train.h5", "job", "chain", *run)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: job_templates_test.py TRIREME REPOSITORY")
    Templates.repository = Path(sys.argv.pop())
    ProgramTest.program = Path(sys.argv.pop())
    unittest.main()
