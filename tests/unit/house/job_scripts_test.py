#!/usr/bin/env python3
"""Runs the scripts of jobs/ and tests/run.sh against stand-ins for what they start: no network, no build.

    python3 job_scripts_test.py REPOSITORY
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

STANDS_IN = "#!/usr/bin/env bash\n"
# Says what it was asked; `prepare` leaves shards, `train` fails where a test wants it to.
TRIREME = STANDS_IN + """echo "trireme $*" >> "$CALLS"
if [[ $1 == prepare ]]; then mkdir -p "$5"; touch "$5/train.h5" "$5/validation.h5"; fi
if [[ $1 == train ]]; then exit "${TRAIN_STATUS:-0}"; fi
"""
MPIEXEC = STANDS_IN + 'echo "mpiexec $1 $2" >> "$CALLS"\nshift 2\nexec "$@"\n'


class Scripts(unittest.TestCase):
    repository = Path()

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = Path(scratch.name)
        self.path = f"{self.root}/stubs:{os.environ['PATH']}"
        self.calls = self.root / "calls"
        shutil.copytree(self.repository / "jobs", self.root / "jobs")
        (self.root / "jobs/packages.txt").write_text("# none\n", encoding="utf-8")
        self.stub("jobs/install_cudnn_frontend.sh", STANDS_IN)  # it asks the network
        self.stub("stubs/mpiexec.mpich", MPIEXEC)
        self.stub("stubs/cmake", STANDS_IN + 'echo "cmake $*" >> "$CALLS.build"\n')
        for preset in ("release", "cpu"):
            self.stub(f"build/{preset}/bin/trireme", TRIREME)
        self.text = self.root / "text"
        self.text.mkdir()
        (self.text / "a.txt").write_text("a" * 3000, encoding="utf-8")

    def stub(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)

    def run_script(self, script, *arguments, **environment):
        self.calls.write_text("", encoding="utf-8")
        done = subprocess.run(
            [str(self.root / "jobs" / script), *map(str, arguments)], stdin=subprocess.DEVNULL,
            env={**os.environ, "PATH": self.path, "CALLS": str(self.calls), **environment},
            capture_output=True, text=True, timeout=30, check=False)
        called = self.calls.read_text(encoding="utf-8").replace(str(self.root), "ROOT").splitlines()
        return done, called

    def expect_refusal(self, script, arguments, status, message):
        done, called = self.run_script(script, *arguments)
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertIn(message, done.stderr)
        self.assertEqual(called, [])

    def nodes_that_fit(self, nodes, **values):
        """How many of so many nodes the next step takes: job_script.cc gives the values."""
        text = (self.root / "jobs/step.sh").read_text(encoding="utf-8")
        for name, value in values.items():
            self.assertIn(f"@{name}@", text)
            text = text.replace(f"@{name}@", str(value))
        script = self.root / "step.sh"
        script.write_text(text, encoding="utf-8")
        done = subprocess.run(
            ["bash", "-c", f'. {script}; nodes=({"n " * nodes}); until ranks_fit; do unset "nodes[-1]"; done; '
             "echo ${#nodes[@]}"], capture_output=True, text=True, timeout=30, check=True)
        return int(done.stdout)

    def test_a_step_takes_the_nodes_that_fill_its_grid(self):
        of_stages = {"TASKS_PER_NODE": 1, "MODEL_RANKS": 2, "MICRO_BATCHES": 0}
        self.assertEqual([self.nodes_that_fit(n, **of_stages) for n in (7, 6, 1)], [6, 6, 0])
        # Replicas that take statistics together divide the micro-batches.
        joined = {"TASKS_PER_NODE": 2, "MODEL_RANKS": 2, "MICRO_BATCHES": 12}
        self.assertEqual([self.nodes_that_fit(n, **joined) for n in (8, 7, 5, 3)], [6, 6, 4, 3])

    def quickstart(self, *arguments, **environment):
        return self.run_script("quickstart.sh", "--text", self.text, "--folder",
                               self.root / "run", *arguments, **environment)

    def test_quickstart_runs_the_phases_in_order(self):
        done, called = self.quickstart()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([line.split()[:3] for line in called], [
            ["trireme", "prepare", "--input"], ["mpiexec", "-n", "4"],
            ["trireme", "train", "--config"], ["trireme", "eval", "--checkpoint"],
            ["trireme", "generate", "--checkpoint"]])
        self.assertIn("--input ROOT/text --output ROOT/run/data.partial", called[0])
        self.assertIn("--config ROOT/jobs/quickstart.ini --run.folder ROOT/run/run", called[2])
        self.assertIn("--data.train ROOT/run/data/train.h5", called[2])
        self.assertNotIn("--grid", called[2])
        banners = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("== ")]
        self.assertEqual(banners, ["packages:", "build:", "corpus:", "prepare:", "train:", "eval:",
                                   "sample:"])
        table = done.stdout[done.stdout.index("seconds per phase"):].split()
        for phase in [*banners, "total:"]:
            self.assertIn(phase[:-1], table)

    def presets(self):
        """The presets that the quick start configures and builds."""
        built = self.root / "calls.build"
        built.unlink(missing_ok=True)
        done, _ = self.quickstart()
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = built.read_text(encoding="utf-8").splitlines()
        return [line.split("--preset ")[1].split()[0] for line in lines]

    def test_quickstart_builds_cuda_only_for_a_gpu_that_is_there(self):
        if not any(Path("/dev").glob("nvidia[0-9]*")):
            self.stub("stubs/nvidia-smi", STANDS_IN + "echo 'No devices were found'\n")
            self.assertEqual(self.presets(), ["cpu", "cpu"])
        self.stub("stubs/nvidia-smi", STANDS_IN + "echo 'GPU 0: NVIDIA H100 (UUID: GPU-1)'\n")
        self.assertEqual(self.presets(), ["release", "release"])
        # What the tests have configured already is not built a second time.
        self.stub("stubs/nvidia-smi", STANDS_IN + "exit 9\n")
        (self.root / "build/release/build.ninja").touch()
        self.assertEqual(self.presets(), ["release", "release"])

    def test_quickstart_goes_on_where_it_stopped(self):
        done, called = self.quickstart(TRAIN_STATUS="75")
        self.assertEqual(done.returncode, 75)
        self.assertIn("stopped in phase train, status 75", done.stderr)
        self.assertTrue(called[0].startswith("trireme prepare"))
        done, called = self.quickstart()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(called[0], "mpiexec -n 4", "the data was prepared again")

    def test_quickstart_short_takes_the_first_two_megabytes(self):
        (self.text / "b.txt").write_text("b" * 3000000, encoding="utf-8")
        done, called = self.quickstart("--short")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual((self.root / "run/short.txt").read_text(encoding="utf-8"),
                         "a" * 3000 + "b" * 1997000)
        self.assertIn("--input ROOT/run/short.txt", called[0])
        self.assertIn("--validation tail:200000", called[0])
        self.assertIn("--run.steps 20", called[2])

    def test_quickstart_fits_the_grid_to_the_ranks(self):
        for ranks, grid in [(6, "--grid.data 3 --grid.tensor 2"),
                            (3, "--grid.data 3 --grid.tensor 1")]:
            done, called = self.quickstart("--ranks", ranks)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f"mpiexec -n {ranks}", called)
            self.assertTrue(any(grid in line for line in called), called)

    def test_quickstart_does_not_repeat_what_it_cannot_read(self):
        self.assertEqual(self.quickstart()[0].returncode, 0)
        for name in ("data/train.h5", "corpus.source"):
            path = self.root / "run" / name
            path.unlink()
            path.symlink_to(path.name)  # a link to itself
            done, called = self.quickstart()
            self.assertEqual((done.returncode, called), (5, []), done.stderr)
            self.assertIn(f"run/{name} cannot be read: Too many levels of symbolic links", done.stderr)
            path.unlink()
        # A part of the text that cannot be read is not left out.
        (self.text / "b.txt").symlink_to("b.txt")
        done, called = self.run_script("quickstart.sh", "--text", self.text, "--folder", self.root / "other", "--short")
        self.assertEqual((done.returncode, called), (3, []), done.stderr)
        self.assertIn("cannot read the text", done.stderr)

    def test_quickstart_refuses(self):
        for arguments, status, message in [
                # bad input: `quickstart.sh`: unknown option | no option is called '...' | 2
                (["--shrt"], 2, "no option is called '--shrt'"),
                # bad input: `quickstart.sh`: an option without its value | ... needs a value | 2
                (["--steps"], 2, "--steps needs a value"),
                # bad input: `quickstart.sh`: steps or ranks that are no number, or 0 | ... must be a number
                # of at least 1, not '...' | 2
                (["--steps", "0"], 2, "--steps must be a number of at least 1, not '0'"),
                (["--ranks", "two"], 2, "--ranks must be a number of at least 1, not 'two'"),
                # bad input: `quickstart.sh`: a text that is not there | cannot read the text '...' | 3
                (["--text", "/none"], 3, "cannot read the text '/none'")]:
            self.expect_refusal("quickstart.sh", arguments, status, message)

    def test_quickstart_refuses_the_folder_of_another_corpus(self):
        self.quickstart()
        done, called = self.quickstart("--short")
        self.assertEqual((done.returncode, called), (2, []))
        # bad input: `quickstart.sh`: the folder of another corpus | ... was begun with another corpus
        # (...); give another --folder | 2
        self.assertIn("was begun with another corpus", done.stderr)

    def test_quickstart_takes_a_text_where_the_dictionary_cannot_be_had(self):
        self.stub("stubs/apt-get", STANDS_IN + "echo no such package >&2; exit 100\n")
        done, called = self.run_script("quickstart.sh", "--folder", self.root / "run")
        self.assertEqual((done.returncode, called), (3, []))
        self.assertIn("no such package", done.stderr)
        # bad input: `quickstart.sh`: the dictionary cannot be downloaded | the package dict-gcide cannot be
        # downloaded; give any text with --text PATH | 3
        self.assertIn("give any text with --text PATH", done.stderr)
        done, _ = self.quickstart()
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_install_packages_prints_the_command_without_rights(self):
        self.stub("stubs/id", STANDS_IN + "echo 1000\n")
        self.stub("stubs/sudo", STANDS_IN + "exit 1\n")
        self.stub("stubs/dpkg-query", STANDS_IN + "echo here=installed; echo gone=config-files\n")
        self.stub("stubs/apt-get", STANDS_IN + 'echo "apt-get" >> "$CALLS"\n')
        wanted = self.root / "list.txt"
        wanted.write_text("# a comment\nhere\n\ngone  # and why\nnever\n", encoding="utf-8")
        # bad input: `install_packages.sh`: packages missing, and the rights | packages are missing, and the
        # rights to install them. Ask for: apt-get install ... | 2
        self.expect_refusal("install_packages.sh", [wanted], 2,
                            "apt-get install --no-install-recommends gone never\n")

        self.stub("stubs/id", STANDS_IN + "echo 0\n")
        done, called = self.run_script("install_packages.sh", wanted)
        self.assertEqual((done.returncode, called), (0, ["apt-get", "apt-get"]))

        wanted.write_text("here\n", encoding="utf-8")
        done, called = self.run_script("install_packages.sh", wanted)
        self.assertEqual((done.returncode, called), (0, []))

    def test_a_package_without_a_service_is_never_started(self):
        self.stub("stubs/id", STANDS_IN + "echo 0\n")
        self.stub("stubs/dpkg-query", STANDS_IN)
        self.stub("stubs/apt-get", STANDS_IN + 'echo "$(cat "$TRIREME_ETC/usr/sbin/policy-rc.d" | tail -n 1)" >> "$CALLS"\n')
        wanted, etc = self.root / "list.txt", self.root / "etc"
        wanted.write_text("one\nmanager no-service  # why\n", encoding="utf-8")
        etc.mkdir()
        done, called = self.run_script("install_packages.sh", wanted, TRIREME_ETC=str(etc))
        self.assertEqual((done.returncode, called[-1]), (0, "exit 101"), done.stderr)
        self.assertEqual(os.readlink(etc / "etc/systemd/system/manager.service"), "/dev/null")
        self.assertFalse((etc / "etc/systemd/system/one.service").is_symlink())
        self.assertFalse((etc / "usr/sbin/policy-rc.d").exists(), "it would keep other services from starting")
        # Somebody's own stays.
        (etc / "usr/sbin/policy-rc.d").write_text("#!/bin/sh\nexit 7\n", encoding="utf-8")
        done, called = self.run_script("install_packages.sh", wanted, TRIREME_ETC=str(etc))
        self.assertEqual((done.returncode, called[-1]), (0, "exit 7"), done.stderr)
        self.assertTrue((etc / "usr/sbin/policy-rc.d").exists())

    def run_tests(self, *arguments, **environment):
        """tests/run.sh in a tree where nothing is to be built: what it calls."""
        shutil.copytree(self.repository / "tests", self.root / "tests", dirs_exist_ok=True,
                        ignore=lambda _, names: [name for name in names if name not in ("run.sh", "support", "torch_venv.sh")])
        for name in ("jobs/install_packages.sh", "jobs/install_cudnn_frontend.sh", "tests/support/torch_venv.sh",
                     "stubs/cmake"):
            self.stub(name, STANDS_IN + f'echo "{name} $*" >> "$CALLS"\n')
        self.stub("stubs/ctest", STANDS_IN + """
if [[ $* == *--print-labels* ]]; then printf '  unit\\n  mpi\\n  quick\\n'; exit; fi
mkdir -p build/release/Testing/Temporary
printf '1/2 Testing: sees_test\\nskipped: no GPU here\\n2/2 Testing: other_test\\nskipped is a word\\n' \
  > build/release/Testing/Temporary/LastTest.log
echo '1/3 Test #1: sees_test ........***Skipped   0.1 sec'
echo '2/3 Test #2: other_test .......   Passed    0.1 sec'
echo '3/3 Test  #3: mute_test ........***Skipped   0.1 sec'
echo '100% tests passed, 0 tests failed out of 3'
""")
        (self.root / "build/release").mkdir(parents=True, exist_ok=True)
        return self.run_script("../tests/run.sh", *arguments, **environment)

    def test_the_second_command_installs_what_it_needs(self):
        done, called = self.run_tests("--strict", "--unity", TORCH_PYTHON="")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("jobs/install_packages.sh ", called)
        self.assertIn("jobs/install_cudnn_frontend.sh ", called)
        self.assertIn("tests/support/torch_venv.sh ", called)
        has_ports = any(Path("/sys/class/infiniband").glob("*"))
        self.assertEqual("jobs/install_packages.sh jobs/packages_infiniband.txt" in called, not has_ports)
        self.assertIn("stubs/cmake --preset release -DTRIREME_FULL_TESTS=OFF -DTRIREME_STRICT=ON -DTRIREME_UNITY=16", called)
        self.assertTrue(done.stdout.endswith("\nSkipped\n  sees_test: skipped: no GPU here\n  mute_test: it does not say why\n"
                                             "1 passed, 0 failed, 2 skipped\n"), done.stdout)
        done, called = self.run_tests("--without-pytorch", "unit")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual([line for line in called if "torch" in line or "infiniband" in line], [])

    def test_the_inner_loop_builds_only_what_it_runs(self):
        done, called = self.run_tests("--quick", TORCH_PYTHON="")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("stubs/cmake --build build/release --target tests_quick", called)
        self.assertEqual([line for line in called if "torch" in line or "infiniband" in line or "cudnn" in line], [])

    def test_lint_builds_and_runs_nothing(self):
        self.run_tests()
        self.stub("tests/lint.sh", STANDS_IN + 'echo "lint $*" >> "$CALLS"\n')
        for given, wanted in (("--lint",), "lint "), (("--lint", "--full"), "lint --full"):
            done, called = self.run_script("../tests/run.sh", *given)
            self.assertEqual((done.returncode, called), (0, ["jobs/install_packages.sh ", wanted]), done.stderr)

    def test_the_second_command_goes_on_where_nothing_can_be_installed(self):
        self.run_tests()
        self.stub("jobs/install_packages.sh", STANDS_IN + "echo 'install_packages: packages are missing' >&2; exit 2\n")
        done, _ = self.run_script("../tests/run.sh", "--without-pytorch")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("goes on without these packages", done.stdout)

    def test_what_comes_beside_the_build_ends_with_a_build_that_fails(self):
        self.run_tests()
        ended = self.root / "ended"
        self.stub("tests/support/torch_venv.sh", STANDS_IN + f"""trap 'trap "" TERM; touch {ended}; exit 1' TERM
touch {self.root}/begun
sleep 20 &
wait
""")
        self.stub("stubs/cmake", STANDS_IN + f"until [[ -e {self.root}/begun ]]; do sleep 0.05; done; exit 1\n")
        done, _ = self.run_script("../tests/run.sh", TORCH_PYTHON="")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertTrue(done.stdout.endswith("the build failed\n0 passed, 1 failed, 0 skipped\n"), done.stdout)
        for _ in range(100):
            if ended.exists():
                return
            time.sleep(0.05)
        self.fail("the installation of PyTorch goes on")

    def test_the_second_command_refuses(self):
        # bad input: `tests/run.sh` with an option that it does not know | no option is called '...'; --help shows
        # all of them | 2
        done, called = self.run_tests("--fast")
        self.assertEqual((done.returncode, called), (2, []))
        self.assertIn("no option is called '--fast'; --help shows all of them", done.stderr)
        done, called = self.run_tests("--help")
        self.assertEqual((done.returncode, called), (0, []))
        for option in ("--full", "--sanitizers", "--without-pytorch", "--strict", "--unity", "--quick", "--lint"):
            self.assertIn(option, done.stdout)

    def test_ci_calls_the_two_commands_alone(self):
        """What it did besides, nobody who follows the README would have."""
        text = (self.repository / ".ci/run").read_text(encoding="utf-8")
        commands = re.findall(r'^ *phase (?:"[^"]*"|\S+) \d+ (\S+)', text, re.MULTILINE)
        self.assertEqual(set(commands), {"jobs/quickstart.sh", "tests/run.sh"})
        for word in ("apt-get", "install", "pip", "cmake", "ninja", "venv.sh"):
            self.assertNotRegex(text, rf"(?m)^[^#\n]*\b{re.escape(word)}\b")

    def test_a_pattern_that_nothing_matches_is_no_file(self):
        """A loop over files either asks for each whether it is there, or its shell drops such patterns."""
        scripts = [path for folder in ("jobs", "modules", "perf", "tests") for path in self.repository.glob(f"{folder}/**/*")
                   if path.suffix in (".sh", ".sbatch")]
        self.assertGreater(len(scripts), 20)
        for script in [*scripts, self.repository / ".ci/run"]:
            text = script.read_text(encoding="utf-8")
            for loop in re.finditer(r"^ *for (\w+) in ((?:[^;\n]|\\\n)*/[^;\n]*\*[^;\n]*); do\n(.*)\n", text, re.MULTILINE):
                name, pattern, body = loop.groups()
                if "$(" in pattern or pattern.startswith("/proc/"):
                    continue
                asked = re.search(rf'(-[ef]|-d|there) "?\$\{{?{name}\b', body)
                self.assertTrue(asked or "shopt -s nullglob" in text[:loop.start()], f"{script}: {loop.group(0)}")

    def test_the_first_command_says_its_options_and_passes_on_how_to_compile(self):
        done, called = self.run_script("quickstart.sh", "--help")
        self.assertEqual((done.returncode, called), (0, []))
        for option in ("--short", "--strict", "--unity"):
            self.assertIn(option, done.stdout)
        for given, wanted in ((), "-DTRIREME_STRICT=OFF"), (("--strict", "--unity"), "-DTRIREME_STRICT=ON -DTRIREME_UNITY=16"):
            built = self.root / "calls.build"
            built.unlink(missing_ok=True)
            done, _ = self.quickstart(*given)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertTrue(built.read_text(encoding="utf-8").splitlines()[0].endswith(wanted))

    def test_install_packages_refuses(self):
        # bad input: `install_packages.sh`: a list that cannot be read | cannot read the list of packages
        # '...' | 2
        self.expect_refusal("install_packages.sh", ["/none"], 2,
                            "cannot read the list of packages '/none'")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: job_scripts_test.py REPOSITORY")
    Scripts.repository = Path(sys.argv.pop()).resolve()
    unittest.main()
