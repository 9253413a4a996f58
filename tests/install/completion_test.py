#!/usr/bin/env python3
"""The completion of bash and zsh and the manual page, as `trireme completion` writes them.

    python3 completion_test.py REPOSITORY TRIREME BUILD_FOLDER

The page is read by groff and mandoc; zsh and mandoc, where not installed, are unpacked from Debian's
packages beside the build. What cannot be had is skipped, visibly.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

REPOSITORY, TRIREME, BUILD = (Path(path).resolve() for path in sys.argv[1:4])


def output(*command, **options):
    return subprocess.run([str(word) for word in command], check=True, text=True,
                          capture_output=True, **options).stdout


def unpacked(*packages):
    """The folder in which these Debian packages lie unpacked, None where they cannot be had."""
    folder = BUILD / "debian_documents"
    script = REPOSITORY / "tests/support/debian_packages.sh"
    done = subprocess.run([script, folder, *packages], check=False, capture_output=True)
    return folder if done.returncode == 0 else None


def keys(command):
    """The flags of a command, as its --help lists them."""
    return set(re.findall(r"^  (--[\w.-]+)", output(TRIREME, command, "--help"), re.MULTILINE))


COMMANDS = re.findall(r"^  (\w+) ", output(TRIREME, "--help"), re.MULTILINE)


RULES = {"adafactor", "adam", "adamw", "lamb", "lars", "lion", "muon", "schedule_free", "sgd"}

class Bash(unittest.TestCase):
    def complete(self, *words):
        """What the shell offers for the last word; None where it falls back to names of files."""
        quoted = " ".join("'" + word + "'" for word in words)
        script = f"""
            source <({TRIREME} completion bash)
            compopt() {{ no_files=1; }}
            no_files=
            COMP_WORDS=({quoted}) COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
            _trireme
            printf '%s\\n' "${{COMPREPLY[@]}}"
            [[ -n $no_files || ${{#COMPREPLY[@]}} -gt 0 ]] || echo FILES"""
        offered = output("bash", "-c", script).split()
        return None if offered == ["FILES"] else set(offered)

    def test_commands(self):
        self.assertGreater(len(COMMANDS), 5)
        self.assertEqual(self.complete("trireme", ""), {*COMMANDS, "--help", "--version"})
        self.assertEqual(self.complete("trireme", "che"), {"checkpoint"})

    def test_every_flag_of_every_command(self):
        for command in COMMANDS:
            aliases = set(re.findall(r"\(also\s+(--[-\w]+)\)", output(TRIREME, command, "--help")))
            self.assertEqual(self.complete("trireme", command, "--"), keys(command) | aliases)
        self.assertEqual(self.complete("trireme", "train", "--optim.b"),
                         {"--optim.beta1", "--optim.beta2"})

    def test_values(self):
        self.assertEqual(self.complete("trireme", "train", "--optim.name", ""), RULES)
        self.assertEqual(self.complete("trireme", "train", "--optim.name", "a"), {"adafactor", "adam", "adamw"})
        self.assertEqual(self.complete("trireme", "train", "--optim.name", "="), RULES)
        self.assertEqual(self.complete("trireme", "train", "--optim.name", "=", "s"), {"schedule_free", "sgd"})
        self.assertEqual(self.complete("trireme", "train", "--device", "cu"), {"cuda"})
        self.assertEqual(self.complete("trireme", "train", "--model.tied", ""),
                         {"true", "false", "auto"})
        self.assertEqual(self.complete("trireme", "train", "--run.steps", ""), set())
        self.assertIsNone(self.complete("trireme", "train", "--data.train", ""))
        self.assertIsNone(self.complete("trireme", "eval", "--checkpoint", "ru"))

    def test_arguments(self):
        self.assertEqual(self.complete("trireme", "checkpoint", ""), {"list", "inspect", "verify", "prune"})
        self.assertIsNone(self.complete("trireme", "checkpoint", "list", ""))
        self.assertEqual(self.complete("trireme", "completion", "b"), {"bash"})
        self.assertIsNone(self.complete("trireme", "prepare", ""))


class Zsh(unittest.TestCase):
    def zsh(self):
        if shutil.which("zsh"):
            return ["zsh"], {}
        root = unpacked("zsh", "zsh-common")
        if root is None:
            self.skipTest("zsh is neither installed nor to be had")
        library = root / "usr/lib/x86_64-linux-gnu"
        setup = (f"module_path=({library}/zsh/5.9); "
                 f"fpath=({root}/usr/share/zsh/functions/**/*(/))")
        return [str(next(root.glob("**/bin/zsh")))], {"setup": setup}

    def test_parses(self):
        program, _ = self.zsh()
        subprocess.run([*program, "-n"], input=output(TRIREME, "completion", "zsh"), text=True,
                       check=True)

    def test_describes_all(self):
        text = output(TRIREME, "completion", "zsh")
        for command in COMMANDS:
            self.assertIn(f"    '{command}:", text)
            for flag in keys(command):
                self.assertIn(f"'{flag}", text)

    def test_completes_on_a_terminal(self):
        program, how = self.zsh()
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "_trireme").write_text(output(TRIREME, "completion", "zsh"),
                                                   encoding="utf-8")
            setup = how.get("setup", "")
            (Path(folder) / ".zshrc").write_text(
                f"{setup}\nfpath=({folder} $fpath)\nautoload -U compinit\ncompinit -u -D\n"
                "unsetopt zle_bracketed_paste 2> /dev/null\nPS1='ready> '\n", encoding="utf-8")
            # A zsh inside a zsh: the inner one has a terminal, the outer one types. ^U clears a line.
            script = f"""{setup}
                zmodload zsh/zpty || exit 9
                zpty inner {program[0]} -d -i
                type_and_read() {{
                  zpty -w -n inner "$1"; local text=; repeat 50 {{
                    while zpty -r -t inner chunk; do text+=$chunk; done
                    [[ $text == *"$2"* ]] && {{ print -r -- FOUND; return }}
                    sleep 0.1
                  }}
                  print -r -- "MISSING $2 IN $text" }}
                type_and_read '' 'ready> '
                type_and_read $'trireme chec\t' 'kpoint'
                type_and_read $'\025trireme train --optim.nam\t' 'e='
                type_and_read $'\025trireme train --optim.name=s\t' 'sgd'
                zpty -d inner"""
            done = subprocess.run([*program, "-f", "-c", script], text=True, capture_output=True,
                                  check=False, timeout=60,
                                  env={**os.environ, "TERM": "dumb", "ZDOTDIR": folder})
            self.assertEqual(done.stdout.split("\n"), ["FOUND"] * 4 + [""], done.stderr)


class ManualPage(unittest.TestCase):
    page = output(TRIREME, "completion", "man")

    def test_groff_has_no_complaint(self):
        if not shutil.which("groff"):
            self.skipTest("groff is not installed")
        done = subprocess.run(["groff", "-man", "-ww", "-Tutf8", "-rLL=100n"], input=self.page,
                              text=True, capture_output=True, check=True)
        self.assertEqual(done.stderr, "")
        text = re.sub(r"\x1b\[[\d;]*m|.\x08", "", done.stdout)
        for command in COMMANDS:
            for flag in keys(command):
                self.assertTrue(re.search(re.escape(flag) + r"\b", text), flag)

    def test_mandoc_has_no_complaint(self):
        mandoc = shutil.which("mandoc")
        if not mandoc:
            root = unpacked("mandoc")
            mandoc = root and root / "usr/bin/mandoc"
        if not mandoc:
            self.skipTest("mandoc is neither installed nor to be had")
        done = subprocess.run([mandoc, "-T", "lint", "-W", "warning"], input=self.page, text=True,
                              capture_output=True, check=False)
        # A page of a version needs no date.
        found = [line for line in done.stdout.splitlines() if "missing date" not in line]
        self.assertEqual(found, [])

    def test_statuses_are_those_of_the_page(self):
        rows = re.findall(r"^\| (\d+) \| (.*) \|$", (REPOSITORY / "src/cli/README.md").read_text("utf-8"),
                          re.MULTILINE)
        self.assertGreater(len(rows), 5)
        told = re.findall(r"^\.TP\n\.B (\d+)\n(.*)\.$", self.page, re.MULTILINE)
        self.assertEqual(rows, [(status, text.replace("\\-", "-")) for status, text in told])

    def test_built_files_are_up_to_date(self):
        for text in ("bash", "zsh", "man"):
            self.assertEqual((BUILD / "modules" / f"trireme.{text}").read_text(encoding="utf-8"),
                             output(TRIREME, "completion", text))


if __name__ == "__main__":
    del sys.argv[1:4]
    unittest.main()
