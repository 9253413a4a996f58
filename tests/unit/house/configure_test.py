"""What the configuration of a build looks for, on machines that are made up of a few scripts.

usage: configure_test.py SOURCE_FOLDER
"""
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path


class Machine(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)
        self.programs = self.folder / "bin"
        self.programs.mkdir()

    def program(self, name, script):
        path = self.programs / name
        path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        path.chmod(0o755)

    def cmake(self, *arguments, **variables):
        environment = {**os.environ, "PATH": f"{self.programs}:{os.environ['PATH']}", **variables}
        return subprocess.run(["cmake", *map(str, arguments)], cwd=self.folder, env=environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=50, check=False)


class Architectures(Machine):
    def here(self, script):
        """The list for a machine whose nvidia-smi is this script."""
        self.program("nvidia-smi", script)
        (self.folder / "ask.cmake").write_text(
            f"include({SOURCE}/src/cmake/TriremeCudaArchitectures.cmake)\n"
            'trireme_architectures_here(found why)\nmessage("${found} | ${why}")\n', encoding="utf-8")
        return self.cmake("-P", "ask.cmake").stdout.strip()

    def test_are_those_of_the_gpus_that_the_driver_shows(self):
        self.assertEqual(self.here("printf '9.0\\n9.0\\n'"), "90a | the GPUs of this machine")
        self.assertEqual(self.here("printf '12.0\\n8.6\\n9.0\\n'"), "86;90a;120 | the GPUs of this machine")

    def test_are_hoppers_where_there_is_none(self):
        for script in ("echo 'NVIDIA-SMI has failed'; exit 9", "echo 'No devices were found'", "echo 7.5"):
            self.assertTrue(self.here(script).startswith("90a | as the driver shows no GPU"), script)


class Mpi(Machine):
    def configure(self):
        (self.folder / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.25)\nproject(Ask LANGUAGES NONE)\n"
            f"include({SOURCE}/src/cmake/TriremeDependencies.cmake)\n", encoding="utf-8")
        done = self.cmake("-S", ".", "-B", "build", PKG_CONFIG_LIBDIR=str(self.folder), PKG_CONFIG_PATH="")
        return done.returncode, " ".join(done.stdout.split())

    def test_another_one_is_named(self):
        self.program("mpiexec", "echo; echo 'mpiexec (OpenRTE) 4.1.4'; echo 'Report bugs to ...'")
        status, text = self.configure()
        self.assertNotEqual(status, 0)
        self.assertIn("MPI: Trireme needs MPICH 4.0 or later, and pkg-config knows no module mpich; "
                      f"{self.programs}/mpiexec calls itself 'mpiexec (OpenRTE) 4.1.4'. Load MPICH's module", text)

    def test_the_one_that_was_found_is_told(self):
        (self.folder / "mpich.pc").write_text("prefix=/opt/mpich\nName: mpich\nDescription: MPI\nVersion: 4.2.1\n",
                                              encoding="utf-8")
        self.assertIn("-- MPI: MPICH 4.2.1 in /opt/mpich", self.configure()[1])


if __name__ == "__main__":
    SOURCE = Path(sys.argv.pop(1)).resolve()
    unittest.main()
