#!/usr/bin/env python3
"""tests/lint.sh and the hook before commits, in repositories of their own; stand-ins for CMake and clang-tidy.

    python3 lint_test.py REPOSITORY
"""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

STANDS_IN = "#!/usr/bin/env bash\n"
# Knows all sources but those of CUDA.
CMAKE = STANDS_IN + """mkdir -p build/lint
for file in $(git ls-files '*.cc'); do echo '  "file": "'$PWD/$file'"'; done > build/lint/compile_commands.json
"""
# Finds a fault where the word stands.
TIDY = STANDS_IN + """file=${*: -1}
echo "$file" >> "$CALLS"
if grep -n fault "$file"; then echo "$PWD/$file:1:1: error: a fault [some-check]"; exit 1; fi
"""
FORMATTED = "int f() {\n  return 1;\n}\n"


class Lint(unittest.TestCase):
    repository = Path()

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = Path(scratch.name) / "clone"
        self.calls = Path(scratch.name) / "calls"
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        self.environment |= {"CALLS": str(self.calls), "PATH": f"{scratch.name}/stubs:{os.environ['PATH']}",
                             "HOME": scratch.name, "GIT_CONFIG_NOSYSTEM": "1"}
        for name in ("tests/lint.sh", ".clang-format", ".githooks/pre-commit"):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(self.repository / name, self.root / name)
        for name, text in (("cmake", CMAKE), ("clang-tidy-16", TIDY)):
            stub = Path(scratch.name) / "stubs" / name
            stub.parent.mkdir(exist_ok=True)
            stub.write_text(text, encoding="utf-8")
            stub.chmod(0o755)
        self.write("tests/unit/house/house_rules_test.py", "import sys, os\nsys.exit(os.environ.get('BROKEN_RULE'))\n")
        self.write(".gitignore", "/build/\n")
        self.write("CMakeLists.txt", "project(Trireme VERSION 0.1.0 LANGUAGES CXX)\n")
        self.git("init", "-q", "-b", "main")
        for key, value in (("user.name", "a"), ("user.email", "a@b"), ("commit.gpgsign", "false")):
            self.git("config", key, value)

    def write(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text, encoding="utf-8")

    def run_in(self, root, *command, **environment):
        return subprocess.run(command, cwd=root, env=self.environment | environment, capture_output=True, text=True,
                              check=False, timeout=60)

    def git(self, *arguments, **environment):
        return self.run_in(self.root, "git", *arguments, **environment)

    def commit(self, message="m"):
        self.git("add", "-A")
        done = self.git("commit", "-qm", message)
        self.assertEqual(done.returncode, 0, done.stderr)

    def lint(self, *arguments, root=None, **environment):
        """What it said, with its status, and the files that clang-tidy was asked about."""
        self.calls.unlink(missing_ok=True)
        done = self.run_in(root or self.root, "tests/lint.sh", *arguments, **environment)
        asked = self.calls.read_text(encoding="utf-8").split() if self.calls.exists() else []
        return done, sorted(asked)

    def version(self, number):
        self.write("CMakeLists.txt", f"project(Trireme VERSION {number} LANGUAGES CXX)\n")
        self.commit(f"Version {number}")

    def test_what_changed_since_the_version(self):
        for name in ("old", "changed", "user", "moved"):
            self.write(f"src/{name}.cc", FORMATTED)
        self.write("src/user.cc", '#include "only.h"\n\n' + FORMATTED)
        self.write("src/only.h", FORMATTED)
        self.version("0.2.0")
        self.write("CMakeLists.txt", "project(Trireme VERSION 0.2.0 LANGUAGES CXX)\nadd_test(a)\n")  # no other version
        done, asked = self.lint()
        self.assertEqual((done.returncode, asked), (0, []), done.stdout + done.stderr)
        self.assertIn("0 sources changed since", done.stdout)
        self.write("src/changed.cc", FORMATTED + "\n" + FORMATTED)
        self.git("mv", "src/moved.cc", "src/elsewhere.cc")
        self.commit()
        self.write("src/only.h", FORMATTED + "\n" + FORMATTED)
        self.write("src/unused.h", FORMATTED)
        done, asked = self.lint()
        self.assertEqual((done.returncode, asked), (0, ["src/changed.cc", "src/user.cc"]), done.stdout + done.stderr)
        self.assertTrue(done.stdout.endswith("clang-tidy: 2 files\n2 passed, 0 failed, 0 skipped\n"), done.stdout)
        done, asked = self.lint("--full")
        self.assertEqual(asked, ["src/changed.cc", "src/elsewhere.cc", "src/old.cc", "src/user.cc"])

    def test_what_it_finds_and_what_it_does_not_reach(self):
        self.version("0.2.0")
        self.write("src/new.cc", "int  fault;\n")
        self.git("add", "-A")
        done, _ = self.lint()
        self.assertEqual(done.returncode, 1)
        self.assertIn("src/new.cc:1:1: error: a fault [some-check]\n", done.stdout)
        self.assertIn("src/new.cc:1:4: error: code should be clang-formatted", done.stderr)
        self.assertTrue(done.stdout.endswith("0 passed, 2 failed, 0 skipped\n"), done.stdout)
        self.write("src/new.cc", "int a;\n")
        done, asked = self.lint(TRIREME_TIDY_SECONDS="0")
        self.assertEqual((done.returncode, asked), (0, []))
        self.assertIn("clang-tidy did not reach 1 of them in 0 s", done.stdout)

    def test_a_shallow_clone_is_checked_for_its_format(self):
        self.version("0.2.0")
        self.write("src/new.cc", FORMATTED)
        self.commit()
        shallow = self.root.parent / "shallow"
        self.run_in(self.root.parent, "git", "clone", "-q", "--depth", "1", f"file://{self.root}", str(shallow))
        done, asked = self.lint(root=shallow)
        self.assertEqual((done.returncode, asked), (0, []), done.stdout + done.stderr)
        self.assertIn("skipped: clang-tidy: the commit that last changed the version is not here; the format of all files "
                      "was checked\n1 passed, 0 failed, 1 skipped\n", done.stdout)
        (shallow / "src/new.cc").write_text("int  a;\n", encoding="utf-8")
        self.assertEqual(self.lint(root=shallow)[0].returncode, 1)

    def test_the_hook_looks_at_what_is_staged(self):
        self.commit()
        self.git("config", "core.hooksPath", ".githooks")
        self.write("src/a.cc", "int  a;\n")
        self.git("add", "-A")
        self.write("src/a.cc", "int a;\n")
        done = self.git("commit", "-qm", "a")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("src/a.cc: not as clang-format-14 lays it out; clang-format-14 -i src/a.cc && git add src/a.cc",
                      done.stdout + done.stderr)
        self.git("add", "-A")
        done = self.git("commit", "-qm", "a", BROKEN_RULE="src/a.cc: a rule")
        self.assertEqual((done.returncode, done.stderr), (1, "src/a.cc: a rule\n"))
        self.assertEqual(self.git("commit", "-qm", "a").returncode, 0)

    def test_refuses(self):
        # bad input: `tests/lint.sh` with an option that it does not know | no option is called '...'; --help shows all
        # of them | 2
        done, asked = self.lint("--fast")
        self.assertEqual((done.returncode, asked), (2, []))
        self.assertIn("no option is called '--fast'; --help shows all of them", done.stderr)
        self.assertIn("--staged", self.lint("--help")[0].stdout)


if __name__ == "__main__":
    if not shutil.which("clang-format-14"):
        print("skipped: there is no clang-format-14")
        sys.exit(77)
    Lint.repository = Path(sys.argv.pop()).resolve()
    unittest.main()
