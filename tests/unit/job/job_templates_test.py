#!/usr/bin/env python3
"""Fills in every template of jobs/ through `trireme job` and has bash and shellcheck read it.

    python3 job_templates_test.py TRIREME REPOSITORY
"""
import datetime
import json
import os
import re
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
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
train = data/train.h5
[job]
tasks_per_node = 2
"""
# What stands in place of Slurm. The steps end as the lines of the file STEPS say, status and words on
# standard error; the nodes in DEAD start nothing, those in MUTE only where they are asked alone.
SRUN = """#!/bin/bash
list=$(sed -n 's/.*--nodelist=\\([^ ]*\\).*/\\1/p' <<< "$*")
case $* in
  *--job-name=watch*)
    exec sleep 60 ;;
  *--job-name=ask*)
    echo "$list" >> "$ASKED"
    [[ $list != *,* ]] || DEAD+=" $MUTE"
    for node in ${list//,/ }; do
      [[ " $DEAD " == *" $node "* ]] || SLURMD_NODENAME=$node bash -c "${!#}"
    done
    exit ;;
esac
echo "srun $*" >> "$CALLS"
echo "job $TRIREME_JOB" >> "$CALLS"
echo "times $TRIREME_JOB_SUBMITTED $TRIREME_JOB_STARTED" >> "$CALLS"
read -r status words < "$STEPS"
sed -i 1d "$STEPS"
printf "$words" >&2
exit "${status:-0}"
"""
SCONTROL = """#!/bin/sh
case $* in
  "show hostnames "*) echo "$3" | tr , '\\n' ;;
  "show config") echo "KillWait = 30 sec" ;;
  "-o show job "*)
    printf "$OTHERS"; echo "JobId=7 JobState=RUNNING Restarts=${STARTS-0} ReqNodeList=(null) NodeList=${NODES-n1,n2,n3} StdOut=$PWD/log $TIMES" ;;
  "show topology") printf "$TOPOLOGY" ;;
  ping) [ ! -e lost_controller ] || { rm lost_controller; exit 1; } ;;
  *) echo "scontrol $*" >> "$CALLS" ;;
esac
"""
SQUEUE = """#!/bin/sh
case $* in
  *%N*) printf "${TOLD-n1,n2,n3|7\\n}" ;;
  *%T*) [ -z "${STATE-RUNNING}" ] || echo "${STATE-RUNNING}|7" ;;
  *%i*) printf "$IDS" ;;
esac
"""
SINFO = """#!/bin/sh
printf "$DRAINED"
"""


class Templates(ProgramTest):
    repository = Path()

    def setUp(self):
        super().setUp()
        (self.folder / "site.ini").write_text(SITE, encoding="utf-8")
        (self.folder / "run.ini").write_text(RUN, encoding="utf-8")
        self.prepare()

    def names(self):
        found = sorted(path.stem for path in (self.repository / "jobs").glob("*.sbatch"))
        found.remove("prepare")  # complete as it is
        self.assertEqual(found, ["chain", "islands", "scaling", "several_nodes", "several_nodes_gpu",
                                 "single_node", "sweep"])
        return found

    def fill(self, name, *arguments):
        more = {"single_node": [], "sweep": ["--sweep", "run.seed=1,2"],
                "islands": ["--nodes", "3", "--islands", "1-3"],
                "several_nodes_gpu": ["--nodes", "3", "--run.device", "cpu"]}.get(name, ["--nodes", "3"])
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
            for line in ("#SBATCH --partition=long", "#SBATCH --exclusive", "load_module mpich",
                         "export UCX_TLS=tcp,self", "ulimit -c 0", "#SBATCH --time=02:00:00",
                         "#SBATCH --open-mode=append", "#SBATCH --requeue"):
                self.assertRegex(text, f"(?m)^{line}$")
            # sbatch reads its lines up to the first that is neither a comment nor empty.
            self.assertNotIn("#SBATCH", text[text.index("\nload_module"):])
        self.assertIn("#SBATCH --signal=USR1@90\n",
                      (self.folder / "chain.sh").read_text(encoding="utf-8"))

    def test_shellcheck_finds_nothing(self):
        if shutil.which("shellcheck") is None:
            self.skipTest("shellcheck is not installed")
        self.check("shellcheck", *sorted((self.repository / "jobs").glob("*.sbatch")),
                   *sorted((self.repository / "jobs").glob("*.sh")))
        for name in self.names():
            self.check("shellcheck", self.fill(name))

    def test_the_script_that_prepares_passes_its_arguments_on(self):
        self.stand_in(("srun", '#!/bin/bash\nprintf "%s\\n" "$@" > given\n'))
        done = subprocess.run(["bash", self.repository / "jobs/prepare.sbatch", "a b", "--output", "data"], cwd=self.folder,
                              env={"PATH": f"{self.folder}:{os.environ['PATH']}", "SLURM_CPUS_ON_NODE": "8"},
                              capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        given = (self.folder / "given").read_text(encoding="utf-8").splitlines()
        self.assertIn("--cpus-per-task=8", given)
        self.assertEqual(given[given.index("trireme"):], ["trireme", "prepare", "a b", "--output", "data"])
        self.expect_refusal(2, "template 'prepare' is neither a file nor one of chain", "job", "prepare",
                            "--config", "run.ini")

    def test_a_file_of_ones_own_is_a_template(self):
        (self.folder / "own.sbatch").write_text("n=@NODES@\n# @OPTIONS@\n", encoding="utf-8")
        text = self.expect_done("job", "own.sbatch", "--config", "run.ini", "--model.tied", "false",
                                "--site", self.repository / "jobs/site.ini")
        self.assertTrue(text.startswith("n=1\n'--run.folder=my run'\\''s'\n"), text)
        self.assertIn("\n--model.tied=false\n", text)

    def stand_in(self, *commands):
        for name, text in commands:
            command = self.folder / f"{name}.new"
            command.write_text(text, encoding="utf-8")
            command.chmod(0o755)
            command.replace(self.folder / name)  # which the job before may still be running

    def run_job(self, *steps, dead="", mute="", flags=(), template="chain", **environment):
        """A job on n1 to n3, two tasks on each: what became of it, and the commands it gave."""
        script = self.fill(template, "--job.restarts", "3", *flags)
        self.stand_in(("srun", SRUN), ("scontrol", SCONTROL), ("squeue", SQUEUE), ("sinfo", SINFO),
                      ("module", "#!/bin/sh\n"))
        calls = self.folder / "calls"
        calls.write_text("", encoding="utf-8")
        (self.folder / "steps").write_text("".join(f"{step}\n" for step in steps), encoding="utf-8")
        (self.folder / "asked").write_text("", encoding="utf-8")
        done = subprocess.run(["bash", script], capture_output=True, text=True, cwd=self.folder, check=False, env={
            "PATH": f"{self.folder}:/usr/bin:/bin", "CALLS": str(calls), "STEPS": str(self.folder / "steps"),
            "DEAD": dead, "MUTE": mute, "ASKED": str(self.folder / "asked"), "SLURM_JOB_PARTITION": "batch",
            "SLURM_JOB_ID": "7", "SLURM_JOB_NAME": "chain", "SLURM_JOB_NUM_NODES": "3", "SLURM_JOB_NODELIST": "n1,n2,n3",
            "SLURMD_NODENAME": "n1", **environment})
        return done, calls.read_text(encoding="utf-8")

    def submit(self, *arguments, **environment):
        """What sbatch is given by `trireme job --submit`: its arguments and its environment; and what is printed."""
        self.stand_in(("sbatch", '#!/bin/bash\nprintf "%s\\n" "$@" > given\nenv > environment\ncat > script\n'
                                 'echo Submitted batch job 12\n'), ("sinfo", "#!/bin/sh\nexit 1\n"))
        said = self.expect_done("job", *arguments, "--config", "run.ini", "--site", "site.ini", "--submit",
                                environment={"PATH": f"{self.folder}:/usr/bin:/bin", **environment})
        given, variables = ((self.folder / name).read_text(encoding="utf-8").splitlines() for name in ("given", "environment"))
        return given, dict(line.split("=", 1) for line in variables if "=" in line), said

    def test_what_was_decided_is_given_to_sbatch(self):
        login = {"SBATCH_PARTITION": "debug", "SBATCH_TIMELIMIT": "5", "SBATCH_MEM_PER_NODE": "1M", "SBATCH_QOS": "low"}
        given, variables, _ = self.submit("chain", "--nodes", "3", "--partition", "big", "--time", "02:00:00", "--memory", "4G",
                                          "--sbatch=--nice=5 --mail-type=END", "--dependency", "afterok:11", **login)
        script = (self.folder / "script").read_text(encoding="utf-8")
        for option in ("--partition=big", "--time=02:00:00", "--mem=4096M", "--nodes=3", "--account=me", "--exclusive",
                       "--requeue", "--signal=USR1@120", "--nice=5", "--mail-type=END", "--dependency=afterok:11"):
            self.assertIn(option, given)
            self.assertIn(f"\n#SBATCH {option}\n", script)
        self.assertEqual(variables["SBATCH_QOS"], "low")  # nothing was decided about it
        # The command for a script in a file.
        chain = ["job", "chain", "--config", "run.ini", "--output"]
        self.assertEqual(self.expect_done(*chain, "job.sh"), "sbatch job.sh\n")
        said = self.expect_done(*chain, "./-x y", environment=login)
        self.assertRegex(said, r"\Asbatch --job-name=trireme .*--time=01:00:00 .* './-x y'\n\Z")
        self.assertTrue(self.expect_done(*chain, "-").startswith("#!"))

    def test_a_submission_takes_nothing_of_the_allocation_that_it_is_made_in(self):
        around = {"SLURM_MEM_PER_CPU": "100", "SLURM_CPU_BIND": "mask_cpu:0x1", "SLURM_TRES_PER_TASK": "gres:gpu=1",
                  "SLURM_JOB_END_TIME": "99", "SLURM_ARRAY_JOB_ID": "3", "SLURM_RESTART_COUNT": "2", "PMI_FD": "3",
                  "SRUN_CPUS_PER_TASK": "3", "TRIREME_JOB_SUBMITTED": "9", "TRIREME_JOB_SET": "5", "TRIREME_JOB": "5"}
        others = {"SLURM_CONF": "/etc/slurm.conf", "OMP_NUM_THREADS": "2"}
        _, variables, _ = self.submit("chain", **around, **others, SLURM_JOB_ID="5")
        self.assertEqual({name for name in (*around, "SLURM_JOB_ID") if name in variables}, set())
        self.assertEqual({name: variables.get(name) for name in others}, others)
        # A profile sets such variables on purpose, and who chooses a job's name, too.
        _, variables, _ = self.submit("chain", SLURM_CPU_BIND="none", TRIREME_JOB="mine")
        self.assertEqual((variables["SLURM_CPU_BIND"], variables["TRIREME_JOB"]), ("none", "mine"))

    def test_a_submission_says_where_to_look(self):
        _, _, said = self.submit("chain", "--log", "logs/%x/%j.txt", "--name", "mine")
        self.assertEqual(said, "Submitted batch job 12\nlog: logs/mine/12.txt; run: my run's; squeue -j 12 shows where it "
                         "stands\n")
        self.assertTrue((self.folder / "logs/mine").is_dir())  # Slurm makes none
        # bad input: `job`: a log in a folder whose name only Slurm knows | --log %j/log: Slurm makes no folders, so
        # the name of one may hold %x, the job's name, but nothing that only Slurm knows | 2
        self.expect_refusal(2, "--log %j/log: Slurm makes no folders", "job", "chain", "--config", "run.ini", "--output",
                            "x.sh", "--log", "%j/log")

    def test_a_module_that_cannot_be_loaded_ends_the_job(self):
        script = self.fill("chain")
        # A status, or none with Environment Modules 3; and no such command.
        for module, words in (("#!/bin/sh\n[ $2 != mpich ]\n", ""),
                              ("#!/bin/sh\n[ $2 != gcc ] || exit 0\necho 'Load.c(213):ERROR:105: no mpich' >&2\n",
                               "Load.c(213):ERROR:105: no mpich\n")):
            self.stand_in(("module", module))
            done = subprocess.run(["bash", script], capture_output=True, text=True, cwd=self.folder, check=False,
                                  env={"PATH": f"{self.folder}:/usr/bin:/bin"})
            # bad input: a job: a module that cannot be loaded | the module mpich cannot be loaded
            # (environment.modules): the job ends | 2
            self.assertEqual((done.returncode, done.stderr), (
                2, words + "trireme: the module mpich cannot be loaded (environment.modules): the job ends\n"))

    def test_a_silent_sinfo_knows_nothing(self):
        self.stand_in(("sinfo", "#!/bin/sh\nsleep 300\n"))
        done = self.run_program("job", "chain", "--config", "run.ini", environment={"PATH": f"{self.folder}:/usr/bin:/bin"})
        # bad input: `job`: an `sinfo` that says nothing | sinfo said nothing for 10 s: what the partition and its
        # nodes have is not checked | 0
        self.assertEqual((done.returncode, done.stderr), (0, "trireme: sinfo said nothing for 10 s: what the partition and its "
                                                          "nodes have is not checked\n"))

    def test_slurms_variables_of_this_job_and_of_others(self):
        """Those of arrays, heterogeneous jobs and requeues: this job's own count, another one's do not."""
        show = ('note_times; echo "$job $TRIREME_JOB ${SLURM_RESTART_COUNT:-0} ${SLURM_HET_SIZE-no}" $(job_nodes) $(state_of_job); '
                'echo "${SLURM_ARRAY_TASK_ID-no} ${SLURM_MEM_PER_CPU-no} ${SLURM_EXPORT_ENV-no} ${SLURM_CPU_BIND_TYPE-no}"')
        array = {"SLURM_ARRAY_JOB_ID": "6", "SLURM_ARRAY_TASK_ID": "3"}
        parts = {"TOLD": "n1|7\\nn8|8\\n", "OTHERS": "JobId=8 JobState=PENDING Restarts=5 NodeList=n8\\n"}
        own, nodes = "no no no no", "n1 n2 n3 RUNNING"
        for environment, first, second in (
                ({}, f"7 7 0 no {nodes}", own),
                ({"STARTS": "2", "SLURM_RESTART_COUNT": "2"}, f"7 7 2 no {nodes}", own),
                ({"SLURM_RESTART_COUNT": "2"}, f"7 7 0 no {nodes}", own),
                ({**array, "IDS": "6_[4-9]\\n6_3\\n"}, f"6_3 6_3 0 no {nodes}", "3 no no no"),
                (array, f"6_3 6_3 0 no {nodes}", "3 no no no"),  # Slurm does not answer
                ({**array, "IDS": "7\\n"}, f"7 7 0 no {nodes}", own),
                ({"SLURM_HET_SIZE": "2", "SLURM_JOB_ID_HET_GROUP_0": "7", **parts}, "7 7 0 2 n1 RUNNING", own),
                ({"SLURM_HET_SIZE": "2", "SLURM_JOB_ID_HET_GROUP_0": "5"}, f"7 7 0 no {nodes}", own),
                ({"TRIREME_JOB": "5", "TRIREME_JOB_SET": "5"}, f"7 7 0 no {nodes}", own),
                ({"TRIREME_JOB": "mine"}, f"7 mine 0 no {nodes}", own),
                ({"SLURM_MEM_PER_CPU": "9", "SLURM_EXPORT_ENV": "NONE", "SLURM_CPU_BIND_TYPE": "mask", "TMPDIR": "/none"},
                 f"7 7 0 no {nodes}", own)):
            with self.subTest(environment=environment):
                self.assertEqual(self.run_functions(show, **environment), [first, second])

    def test_folders_are_text(self):
        failure = {"event": "failure", "nodes": "", "job": "7"}
        for folder in ("-x", "lr=0.1", "two\nlines"):
            with self.subTest(folder=folder):
                events = self.begin_run(*[failure] * 3, folder=folder)
                done, calls = self.run_job(*[76] * 9, flags=(f"--run.folder={folder}",))
                self.assertEqual((done.returncode, len(self.nodes_of(calls))), (76, 2), done.stderr)
                self.assertIn("5 failures in a row without a new checkpoint", done.stderr)
                self.assertNotIn("option", done.stderr)
                self.assertEqual(events.read_text(encoding="utf-8").count("failure"), 5)
                self.assertIn(folder, calls)

    def test_each_job_of_an_array_is_a_member_of_the_run(self):
        _, _, said = self.submit("islands", "--islands", "8,1-3", "--nodes", "1-3", "--name", "mine")
        self.assertEqual(said, "Submitted batch job 12\nlogs: mine-12_N.out, of island-N; trireme top 'my run'\\''s' shows "
                         "where the run stands, squeue -j 12 the jobs\n")
        given = (self.folder / "given").read_text(encoding="utf-8").splitlines()
        self.assertLessEqual({"--array=1-3,8", "--nodes=1-3", "--output=mine-%A_%a.out".replace("mine", "%x")}, {*given})
        task = {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "3", "IDS": "7_3\\n", "template": "islands"}
        (self.folder / "my run's/islands").mkdir(parents=True)
        failure = {"event": "failure", "nodes": "", "job": "7_3"}
        events = self.begin_run(*[failure] * 4, {"event": "delivered"}, folder="my run's/islands/island-3")
        done, calls = self.run_job(76, 75, **task)
        self.assertEqual((done.returncode, len(self.nodes_of(calls))), (75, 2), done.stderr)
        self.assertIn(" --run.folder=my run's --sync.member=island-3\n", calls)
        self.assertIn("\nscontrol requeue 7_3\n", calls)
        self.assertIn('"event":"requeue"', events.read_text(encoding="utf-8"))

    def run_functions(self, commands, **environment):
        """The lines that commands print behind the functions of a job's script, where no time passes."""
        text = self.fill("chain").read_text(encoding="utf-8")
        script = self.folder / "functions.sh"
        script.write_text(text[:text.index("\noptions=(")] + f"\n{commands}\n", encoding="utf-8")
        self.stand_in(("scontrol", SCONTROL), ("squeue", SQUEUE), ("sleep", "#!/bin/sh\n"), ("module", "#!/bin/sh\n"))
        done = subprocess.run(["bash", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              cwd=self.folder, check=False, timeout=60,
                              env={"PATH": f"{self.folder}:/usr/bin:/bin", "CALLS": str(self.folder / "calls"),
                                   "SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n1", **environment})
        return done.stdout.splitlines()

    def nodes_of(self, calls):
        """Nodes, ranks and names of each step."""
        return re.findall(r"(?m)^srun .*--nodes=(\d+) --ntasks=(\d+) --nodelist=(\S+) ", calls)

    def begin_run(self, *events, folder="my run's"):
        run = self.folder / folder
        run.mkdir(exist_ok=True)
        (run / "metrics.jsonl").write_text('{"step":8,"step_s":1}\n{"step":9,"step_s":1}\n', encoding="utf-8")
        (run / "events.jsonl").write_text("".join(json.dumps(event, separators=(",", ":")) + "\n"
                                                  for event in events), encoding="utf-8")
        return run / "events.jsonl"

    def test_statuses_end_the_job_or_queue_it_again(self):
        for status in (0, 2, 70):
            done, calls = self.run_job(status)
            self.assertEqual((done.returncode, done.stderr), (status, ""))
            self.assertNotIn("scontrol", calls)
            # The log begins with what runs where.
            self.assertRegex(done.stdout, r"\Ajob 7 \(chain\), nodes n1,n2,n3, trireme \d+\.\d+\.\d+, commit \w+")
        done, calls = self.run_job(75)
        self.assertEqual(done.returncode, 75)
        self.assertIn("-K1 --wait=60 --overlap --job-name=step --mpi=pmi2 --cpus-per-task=1 ", calls)
        self.assertEqual(self.nodes_of(calls), [("3", "6", "n1,n2,n3")])
        self.assertIn("\nscontrol requeue 7\n", calls)
        self.assertEqual(done.stderr, "trireme: stopped at step 0, requeued\n")
        events = self.begin_run({"event": "stop"})
        done, _ = self.run_job("75 srun: error: n2: task 1: Exited with exit code 75\\nsrun: error: n1: tasks 0,2: "
                               "Exited with exit code 75\\nsrun: error: n1: task 3: Exited with exit code 1\\n")
        self.assertEqual(done.stderr, "srun: error: n1: task 3: Exited with exit code 1\n"
                         "trireme: stopped at step 9, requeued\n")
        event = json.loads(events.read_text(encoding="utf-8").splitlines()[-1])
        self.assertEqual((event["event"], event["step"], event["detail"]),
                         ("requeue", 9, "stopped at step 9, requeued"))
        self.assertIn("my run's: stopped at step 9, requeued</p>", (events.parent / "report.html").read_text())
        done, calls = self.run_job(75, STATE="COMPLETING")  # scancel: SIGTERM, then as on any signal
        self.assertEqual(done.returncode, 75)
        self.assertNotIn("requeue", calls)
        done, calls = self.run_job(75, STARTS="3")
        self.assertEqual(done.returncode, 75)
        self.assertNotIn("scontrol", calls)
        # bad input: a job: more restarts than `job.restarts` | the job was started again 3 times already
        # (job.restarts) | 75
        self.assertIn("started again 3 times already (job.restarts)", done.stderr)

    def test_a_killed_step_is_told_once(self):
        words = "srun: error: n2: task 1: Killed\\nsrun: error: n1: task 0: Terminated\\n"
        done, _ = self.run_job(f"137 {words}", 0)
        self.assertEqual(done.returncode, 0)
        # bad input: a job: a step that was killed before a rank could speak | the step was killed, status
        # 137, before a rank could speak: srun: error: n2: task 1: Killed | 76
        self.assertEqual(done.stderr.splitlines()[2:], [
            "trireme: the step was killed, status 137, before a rank could speak: "
            "srun: error: n2: task 1: Killed"])
        done, _ = self.run_job(143, 0)
        self.assertIn("before a rank could speak: srun named no task", done.stderr)
        # A rank has said it already.
        done, _ = self.run_job(f"137 trireme: rank 1 (n2) is lost\\n{words}", 0)
        self.assertNotIn("before a rank could speak", done.stderr)

    def test_a_lost_rank_is_written_down_and_the_step_begins_again(self):
        events = self.begin_run()
        done, calls = self.run_job("137 srun: error: n2: task 1: Killed \"core\\\\dump\"\\n", 0)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.nodes_of(calls), [("3", "6", "n1,n2,n3")] * 2)
        event = json.loads(events.read_text(encoding="utf-8"))
        del event["time"]
        self.assertEqual(event, {"step": 9, "event": "failure", "nodes": "n2", "job": "7",
                                 "detail": "srun: error: n2: task 1: Killed coredump"})

    def test_a_job_says_when_it_was_queued_and_started(self):
        events = self.begin_run()
        times = [datetime.datetime(2026, 1, 2, 3, minute, 5) for minute in (4, 8)]
        told = "SubmitTime={} EligibleTime=Unknown StartTime={}".format(*(time.isoformat() for time in times))
        _, calls = self.run_job("137 srun: error: n2: task 1: Killed\\n", 0, TIMES=told)
        submitted, started = (int(time.timestamp()) for time in times)
        self.assertEqual(re.findall("(?m)^times (.*)$", calls), [f"{submitted} {started}"] * 2)
        event = json.loads(events.read_text(encoding="utf-8"))
        self.assertEqual((event["submitted"], event["job_started"]), (submitted, started))
        _, calls = self.run_job(0, TIMES="SubmitTime=Unknown StartTime=Unknown")
        self.assertEqual(re.findall("(?m)^times (.*)$", calls), [" "])

    def test_all_steps_of_a_job_say_which_one_they_belong_to(self):
        _, calls = self.run_job("137 srun: error: n2: task 1: Killed\\n", 0)
        self.assertEqual(re.findall("(?m)^job (.*)$", calls), ["7", "7"])
        _, calls = self.run_job(0, SLURM_ARRAY_JOB_ID="6", SLURM_ARRAY_TASK_ID="3")
        self.assertEqual(re.findall("(?m)^job (.*)$", calls), ["6_3"])
        # The user says where several jobs are one chain.
        _, calls = self.run_job(0, TRIREME_JOB="mine")
        self.assertEqual(re.findall("(?m)^job (.*)$", calls), ["mine"])

    def test_nodes_that_do_not_answer_are_left_out(self):
        events = self.begin_run()
        done, calls = self.run_job("76 trireme: rank 0 (n1): the connection to rank 2 is lost\\n", 0, dead="n2")
        self.assertEqual(self.nodes_of(calls), [("3", "6", "n1,n2,n3"), ("2", "4", "n1,n3")])
        self.assertIn("trireme: n2 cannot be reached\ntrireme: goes on on 2 of 3 nodes: n1 n3\n", done.stderr)
        self.assertEqual(json.loads(events.read_text(encoding="utf-8"))["nodes"], "n2")

    def test_one_step_asks_all_nodes_and_the_silent_ones_are_asked_singly(self):
        _, calls = self.run_job(76, 0, dead="n2", mute="n2 n3")
        asked = (self.folder / "asked").read_text(encoding="utf-8").splitlines()
        self.assertEqual((asked[0], sorted(asked[1:])), ("n1,n2,n3", ["n2", "n3"]))
        self.assertEqual(self.nodes_of(calls)[1], ("2", "4", "n1,n3"))

    def test_of_a_network_in_two_parts_the_one_of_this_node_counts(self):
        events = self.begin_run()
        self.run_job("76 trireme: no progress for 6 s: n1 cannot be reached from n2 (ranks 0, 1)\\n"
                     "trireme: no progress for 6 s: n2, n3 cannot be reached from n1 (ranks 2, 3, 4, 5), missing\\n", 0)
        event = json.loads(events.read_text(encoding="utf-8"))
        self.assertEqual((event["nodes"], event["detail"]), (
            "n2 n3", "no progress for 6 s: n2, n3 cannot be reached from n1 (ranks 2, 3, 4, 5), missing"))

    def test_nodes_that_slurm_drained_since_are_named(self):
        self.begin_run()
        done, _ = self.run_job(76, 0, DRAINED="n8|2001-01-01T00:00:00|Kill task failed\\n"
                               "n3|2999-01-01T00:00:00|Kill task failed [root@now]\\nn4|2999-01-01T00:00:00|by hand\\n"
                               "n5|2999-01-01T00:00:00|Kill task failed\\n")
        self.assertIn("trireme: n3, n5: drained by Slurm (Kill task failed); an administrator brings them back: "
                      "scontrol update state=resume nodename=n3,n5\n", done.stderr)
        self.assertNotIn("n8", done.stderr)

    def test_watchers_are_far_apart(self):
        topology = "".join(f"SwitchName=leaf{i} Level=0 LinkSpeed=1 Nodes={nodes}\\n" for i, nodes in
                           enumerate(("n1,n2", "n3,n4", "n5,n6", "n7,n8"))) + \
            "SwitchName=a Level=1 LinkSpeed=1 Nodes=n1,n2,n3,n4 Switches=leaf[0-1]\\n" \
            "SwitchName=b Level=1 LinkSpeed=1 Nodes=n5,n6,n7,n8 Switches=leaf[2-3]\\n"
        for nodes, known, chosen in (("n1 n2 n3 n5 n6 n7", topology, ["n7", "n3", "n5"]),
                                     ("n1 n2 n3 n4", topology, ["n4", "n2", "n3"]),
                                     ("n1 n2 n3 n4 n5 n6 n7", "", ["n7", "n4", "n2"]),
                                     ("n2 n1", topology, ["n2"]), ("n1", topology, []), ("n4 n5", "", ["n5", "n4"])):
            self.assertEqual(self.run_functions(f"printf '%s\\n' {nodes} | far_apart", TOPOLOGY=known), chosen, nodes)

    def test_a_watcher_has_the_job_queued_again(self):
        events = self.begin_run()
        (self.folder / "log").write_text("before\n", encoding="utf-8")
        watch = 'watch_host 2 n1 0 "my run\'s" n1 n2 n3 n4'
        # The nodes that the job has left, its starts; then whether it is queued again.
        for nodes, starts, queued in (("n1,n2,n3", "0", False), ("n3,n4", "1", False), ("n3,n4", "0", True)):
            (self.folder / "calls").write_text("", encoding="utf-8")
            command = watch if starts == "1" or queued else f"SECONDS=0; sleep() {{ ((SECONDS++ < 5)); }}; {watch}"
            self.run_functions(command, NODES=nodes, STARTS=starts, SLURMD_NODENAME="n4")
            calls = (self.folder / "calls").read_text(encoding="utf-8")
            self.assertEqual(calls, "scontrol requeue 7\n" if queued else "")
        self.assertEqual((self.folder / "log").read_text(encoding="utf-8"),
                         "before\ntrireme: n1, n2 cannot be reached: n4 has the job queued again\n")
        event, requeue = map(json.loads, events.read_text(encoding="utf-8").splitlines())
        self.assertEqual((event["nodes"], event["detail"], event["job"]), ("n1 n2", "n1, n2 cannot be reached", "7"))
        self.assertEqual((requeue["event"], requeue["detail"]), ("requeue", "stopped at step 9, requeued"))

    def test_a_field_of_slurm_may_hold_blanks(self):
        told = "JobId=7 Restarts=2 WorkDir=/my dir StdErr=/my Dir/a=b c.out StdIn=/dev/null StdOut=/my Dir/a=b c.out Power= "
        self.assertEqual(self.run_functions(f"told='{told}'; for name in Restarts WorkDir StdOut Power None; do "
                                            'echo "<$(field $name "$told")>"; done'),
                         ["<2>", "</my dir>", "</my Dir/a=b c.out>", "<>", "<>"])

    def test_nobody_is_blamed_while_the_controller_is_out_of_reach(self):
        (self.folder / "lost_controller").touch()
        said = ["trireme: Slurm's controller cannot be reached from n1: the job waits for it"]
        self.assertEqual(self.run_functions("wait_for_controller; echo goes on"), [*said, "goes on"])
        (self.folder / "lost_controller").touch()
        self.assertEqual(self.run_functions("wait_for_controller; echo goes on", STARTS="1"),
                         [*said, "trireme: the job was started again without n1: this start of it ends"])

    def test_a_node_that_was_lost_twice_is_left_out(self):
        failure = {"event": "failure", "nodes": "n3", "job": "7"}
        self.begin_run(failure, {"event": "checkpoint"}, {**failure, "nodes": "n1 n3"},
                       {**failure, "nodes": "n1", "job": "6"})
        done, calls = self.run_job(0)
        self.assertEqual(self.nodes_of(calls), [("2", "4", "n1,n2")])
        self.assertIn("trireme: n3 is left out: it was lost twice\n", done.stderr)
        self.begin_run(*[{**failure, "nodes": "n1 n2 n3"}] * 2, {"event": "checkpoint"})
        done, calls = self.run_job(0)  # there are no others
        self.assertEqual((self.nodes_of(calls), done.stderr), ([("3", "6", "n1,n2,n3")], ""))

    def test_ranks_stay_a_multiple_of_a_replica(self):
        _, calls = self.run_job(76, 0, dead="n2", flags=("--grid.tensor", "2", "--grid.pipeline", "3"))
        self.assertEqual(self.nodes_of(calls), [("3", "6", "n1,n2,n3")])  # no smaller number of nodes fits

    def test_with_too_few_nodes_the_job_waits_for_all(self):
        for flags, fewest in ((("--min-nodes", "3"), 3), (("--grid.data", "6", "--batch.global", "24"), 3)):
            done, calls = self.run_job(76, 0, dead="n2", flags=flags)
            self.assertEqual(done.returncode, 76)
            self.assertIn(f"2 nodes are left, {fewest} are needed: the job waits for all of its nodes", done.stderr)
            self.assertIn("trireme: stopped at step 0, requeued to wait for all of its nodes\n", done.stderr)
            self.assertEqual(len(self.nodes_of(calls)), 1)
            self.assertIn("\nscontrol requeue 7\n", calls)

    def test_failures_in_a_row_end_the_job(self):
        done, calls = self.run_job(*[76] * 9)  # before the run has a folder
        self.assertEqual(len(self.nodes_of(calls)), 5)
        failure = {"event": "failure", "nodes": "", "job": "7"}
        for before, steps in (([failure] * 3, 2), ([failure] * 3 + [{"event": "checkpoint"}], 5),
                              ([{**failure, "job": "6"}] * 9, 5)):
            self.begin_run(*before)
            done, calls = self.run_job(*[76] * 9)
            self.assertEqual((done.returncode, len(self.nodes_of(calls))), (76, steps), done.stderr)
            self.assertIn("5 failures in a row without a new checkpoint (job.failures): the job ends", done.stderr)
            self.assertNotIn("requeue", calls)

    def test_a_run_folder_that_cannot_be_read_ends_the_job(self):
        # A folder stands in place of the file: it is neither absent nor empty.
        events = self.begin_run()
        events.unlink()
        events.mkdir()
        done, calls = self.run_job(76, 0)
        self.assertEqual((done.returncode, self.nodes_of(calls)), (5, []), done.stderr)
        self.assertIn("trireme: my run's/events.jsonl cannot be read: Is a directory\n", done.stderr)

    def test_what_cannot_be_read_is_not_counted_as_0(self):
        events = self.begin_run({"event": "failure", "nodes": "n1", "job": "7"})
        show = "; ".join(f'echo "$({function} "my run\'s")" $?' for function in
                         ("last_step", "failures_in_a_row", "requeued"))
        self.assertEqual(self.run_functions(show), ["9 0", "1 0", "stopped at step 9, requeued 0"])
        self.assertEqual(self.run_functions(show.replace("my run\'s", "none")), ["0 0", "0 0", "stopped at step 0, requeued 0"])
        for name in ("metrics.jsonl", "events.jsonl"):
            (events.parent / name).unlink()
            (events.parent / name).symlink_to(name)  # a link to itself
        why = "trireme: my run's/{} cannot be read: Too many levels of symbolic links"
        self.assertEqual(self.run_functions(show), [why.format("metrics.jsonl"), " 1", why.format("events.jsonl"), " 1",
                                                    why.format("metrics.jsonl"), "requeued 0"])
        # What passes by itself is tried again.
        self.stand_in(("cat", "#!/bin/sh\n[ -e tried ] && exec /bin/cat \"$@\"\ntouch tried\n"
                              "echo \"cat: $1: Stale file handle\" >&2\nexit 1\n"))
        (self.folder / "text").write_text("here\n", encoding="utf-8")
        self.assertEqual(self.run_functions("read_run cat text; echo $?"), ["here", "0"])
        (self.folder / "tried").unlink()
        self.assertEqual(self.run_functions("read_run cat text; echo $?", TRIREME_FILE_PATIENCE="0.5"),
                         ["trireme: text cannot be read: Stale file handle", "1"])

    def test_a_silent_controller_is_no_word_that_the_job_is_unwanted(self):
        done, calls = self.run_job(75, STATE="")
        self.assertEqual(done.returncode, 75)
        self.assertIn("Slurm does not say whether the job is still wanted: submit it again to continue", done.stderr)
        self.assertNotIn("requeue", calls)

    def test_refusals(self):
        run = ["--config", "run.ini"]
        known = "chain, islands, scaling, several_nodes, several_nodes_gpu, single_node, sweep"
        self.expect_refusal(2, f"job takes one template: one of {known}, or a file", "job", *run)
        # bad input: `job`: no template, an unknown one | template 'chian' is neither a file nor one of
        # chain, ...; did you mean chain? | 2
        self.expect_refusal(2, f"template 'chian' is neither a file nor one of {known}; did you "
                            "mean chain?", "job", "chian", *run)
        self.expect_refusal(2, "unknown flag --nodse; did you mean --nodes?", "job", "chain", *run,
                            "--nodse", "2")
        self.expect_refusal(2, "--nodes 0: must be at least 1", "job", "chain", *run,
                            "--nodes", "0")
        # bad input: `job`: a grid that nodes x tasks do not fill | 2 nodes x 2 tasks: a grid with tensor=3
        # needs a multiple of 3 ranks, and there are 4: 3 or 6 would fit; 3 nodes would do | 2
        self.expect_refusal(2, "2 nodes x 2 tasks: a grid with tensor=3", "job", "chain", *run,
                            "--nodes", "2", "--grid.tensor", "3")
        self.expect_refusal(2, "a node has 100: fewer tasks a node", "job", "chain", *run,
                            "--memory", "100M")
        # bad input: `job`: a site file that cannot be read; a script that cannot be written | --site
        # none.ini: cannot be read: No such file or directory; TRIREME_SITE none.ini: cannot be read: ...;
        # none/x.partial: cannot be opened | 2; 5
        self.expect_refusal(2, "--site none.ini: cannot be read: No such file", "job", "chain", *run,
                            "--site", "none.ini")
        self.expect_refusal(5, "none/x.partial: cannot be opened", "job", "chain", *run,
                            "--output", "none/x")
        (self.folder / "itself").symlink_to("itself")
        loop = "itself: cannot be read: Too many levels of symbolic links"
        self.expect_refusal(2, loop, "job", "itself", *run)
        self.expect_refusal(2, f"TRIREME_SITE {loop}", "job", "chain", *run, environment={"TRIREME_SITE": "itself"})
        self.expect_refusal(3, loop, "job", "chain", *run, "--data.train", "itself")
        # The site's file beside the program: without it a script would lack the site's partition.
        (self.folder / "bin").mkdir()
        shutil.copytree(self.repository / "jobs", self.folder / "jobs", dirs_exist_ok=True)
        installed = shutil.copy2(self.program, self.folder / "bin/trireme")
        (self.folder / "jobs/site.ini").unlink()
        (self.folder / "jobs/site.ini").mkdir()
        done = subprocess.run([installed, "job", "chain", *run], cwd=self.folder, capture_output=True, text=True,
                              check=False)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("jobs/site.ini: cannot be read: Is a directory", done.stderr)
        # bad input: `job --submit`: no `sbatch`; a job that it refuses | sbatch refused the job: sbatch:
        # error: ... | 2
        self.expect_refusal(2, "there is no sbatch in the PATH", "job", "chain", *run, "--submit",
                            environment={"PATH": str(self.folder)})
        self.expect_refusal(2, "trireme job is one process, but", "job", "chain", *run,
                            environment={"PMI_RANK": "0", "PMI_SIZE": "2"})
        (self.folder / "own").write_text("@NODE@\n", encoding="utf-8")
        # bad input: `job`: a placeholder that is unknown, or that nothing is known for | own:1: unknown
        # placeholder @NODE@; did you mean @NODES@? | 2
        self.expect_refusal(2, "own:1: unknown placeholder @NODE@; did you mean @NODES@?",
                            "job", "own", *run)
        # bad input: `job`: data that is missing from a folder that is here | data.train data/more.h5: there
        # is no such file in ...; `trireme prepare` makes it | 3
        self.expect_refusal(3, "data.train data/more.h5: there is no such file in ", "job", "chain", *run,
                            "--data.train", "data/more.h5")
        (self.folder / "data/train.h5").write_text("text", encoding="utf-8")
        self.expect_refusal(3, "train.h5", "job", "chain", *run)

    def test_what_the_partition_does_not_have_is_refused(self):
        self.stand_in(("sinfo", '#!/bin/sh\necho "$@" > asked_sinfo\nprintf "urgent|9|64|9000\\nlong*|2|8|9000\\n"\n'))
        path = {"PATH": f"{self.folder}:{os.environ['PATH']}"}
        chain = ["job", "chain", "--config", "run.ini", "--site", self.repository / "jobs/site.ini"]
        # bad input: `job`: more nodes or CPUs than the partition has | --nodes 3: partition long has 2
        # nodes | 2
        self.expect_refusal(2, "--nodes 3: partition long has 2 nodes", *chain, "--nodes", "3", environment=path)
        self.expect_refusal(2, "2 tasks of 5 cores need 10 CPUs on a node, but no node of partition long has more than 8",
                            *chain, "--cpus-per-task", "5", environment=path)
        self.expect_done(*chain, "--nodes", "2", environment=path)
        self.expect_done(*chain, "--nodes", "3", "--partition", "urgent", environment=path)  # sinfo is asked for it
        self.assertIn("--partition=urgent", (self.folder / "asked_sinfo").read_text(encoding="utf-8"))

    def test_what_becomes_of_the_grid_is_told(self):
        done = self.run_program("job", "chain", "--config", "run.ini", "--nodes", "2", "--grid.data", "2")
        self.assertEqual(done.returncode, 0)
        # bad input: `job`: data in a folder that is not here; `grid.data` that leaves ranks to the pipeline
        # | a line that says so | 0
        self.assertIn("trireme: grid.data is 2, so the 4 ranks are used as a grid of 2 x 2 x 1 (data x pipeline x tensor): "
                      "grid.pipeline became 2; without grid.data there would be 4 replicas\n", done.stderr)
        self.assertIn("\n  --grid.pipeline=2\n", done.stdout)

    def test_the_site_file_and_what_stands_in_its_place(self):
        chain = ["job", "chain", "--config", "run.ini"]
        self.assertNotIn("--partition", self.expect_done(*chain))  # that of the installation
        (self.folder / "site.ini").write_text(SITE + "[slurm]\nsrun = --label\n", encoding="utf-8")
        of_environment = {"TRIREME_SITE": "site.ini"}
        text = self.expect_done(*chain, environment=of_environment)
        self.assertIn("#SBATCH --partition=long\n#SBATCH --account=me\n", text)
        text = self.expect_done(*chain, "--partition", "short", "--account", "us", "--srun=--cpu-bind=none --quiet",
                                environment=of_environment)
        self.assertIn("#SBATCH --partition=short\n#SBATCH --account=us\n", text)
        self.assertIn('"${srun_options[@]}" --label --cpu-bind=none --quiet "$@"', text)
        (self.folder / "other.ini").write_text("[slurm]\npartition = other\n", encoding="utf-8")
        self.assertIn("#SBATCH --partition=other\n", self.expect_done(*chain, "--site", "other.ini",
                                                                      environment=of_environment))
        self.expect_refusal(2, "TRIREME_SITE none.ini: cannot be read: ", *chain, environment={"TRIREME_SITE": "none.ini"})


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: job_templates_test.py TRIREME REPOSITORY")
    Templates.repository = Path(sys.argv.pop())
    ProgramTest.program = Path(sys.argv.pop())
    unittest.main()
