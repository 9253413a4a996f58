#!/usr/bin/env python3
"""A simulated InfiniBand fabric (ibsim) with a real subnet manager (opensm): what ibnetdiscover prints of it is read
by `trireme topo show`.

    python3 ibsim_test.py TRIREME

Skipped, with status 77, where the packages ibsim-utils, opensm and infiniband-diags are missing.
"""
import glob
import json
import os
import shutil
import subprocess
import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
from cli_testing import ProgramTest  # noqa: E402

SKIPPED = 77
LEAVES, HOSTS, SPINES = 3, 4, 2  # hosts of each leaf
SHIM = glob.glob("/usr/lib/*/umad2sim/libumad2sim.so")
os.environ["PATH"] += ":/usr/sbin"  # where opensm is


def net_file():
    """Three leaves of four hosts on two spines; the cables to the second spine are slower."""
    text = []
    for leaf in range(1, LEAVES + 1):
        text.append(f'switchguid={0xaa0100 + leaf:#x}\nSwitch\t{HOSTS + SPINES} "leaf{leaf}"\t\t# "leaf{leaf}" '
                    'base port 0 lid 0 lmc 0')
        for port in range(1, HOSTS + 1):
            host = (leaf - 1) * HOSTS + port
            text.append(f'[{port}]\t"n{host}"[1]\t\t# "n{host}" lid 0 4xHDR')
        for spine in range(1, SPINES + 1):
            text.append(f'[{HOSTS + spine}]\t"spine{spine}"[{leaf}]\t\t# "spine{spine}" lid 0 {"4xHDR" if spine == 1 else "4xEDR"}')
    for spine in range(1, SPINES + 1):
        text.append(f'switchguid={0xbb0100 + spine:#x}\nSwitch\t{LEAVES} "spine{spine}"\t\t# "spine{spine}" '
                    'base port 0 lid 0 lmc 0')
        for leaf in range(1, LEAVES + 1):
            text.append(f'[{leaf}]\t"leaf{leaf}"[{HOSTS + spine}]\t\t# "leaf{leaf}" lid 0 {"4xHDR" if spine == 1 else "4xEDR"}')
    for host in range(1, LEAVES * HOSTS + 1):
        leaf, port = (host - 1) // HOSTS + 1, (host - 1) % HOSTS + 1
        text.append(f'caguid={0xcc0000 + 16 * host:#x}\nCa\t1 "n{host}"\t\t# "n{host} mlx5_0"\n'
                    f'[1]\t"leaf{leaf}"[{port}]\t\t# lid 0 lmc 0 "leaf{leaf}" lid 0 4xHDR')
    return "\n".join(text) + "\n"


class SimulatedFabric(ProgramTest):
    def setUp(self):
        super().setUp()
        (self.folder / "net").write_text(net_file())
        self.simulation = {**os.environ, "IBSIM_SOCKNAME": f"trireme{os.getpid()}", "SIM_HOST": "n1"}
        # Its standard input is the console. It makes files in its folder.
        self.console = self.begin(["ibsim", "-s", "net"], self.simulation, stdin=subprocess.PIPE)
        self.wait_for(lambda: self.discover() is not None, "ibsim")
        # -o: it configures the fabric once and ends.
        subprocess.run(["opensm", "-o", "-e", "-R", "ftree", "-f", str(self.folder / "opensm.log"), "-s", "0"],
                       env=self.shim(), cwd=self.folder, capture_output=True, timeout=100, check=True)
        self.assertNotIn(" lid 0 ", self.discover())

    def shim(self):
        return {**self.simulation, "LD_PRELOAD": SHIM[0]}

    def begin(self, command, environment, **options):
        process = subprocess.Popen(command, env=environment, cwd=self.folder, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, **options)

        def end():
            process.kill()
            process.wait()
            if process.stdin is not None:
                process.stdin.close()
        self.addCleanup(end)
        return process

    def wait_for(self, done, what):
        for _ in range(300):
            if done():
                return
            time.sleep(0.1)
        self.fail(f"{what} does not answer")

    def discover(self):
        done = subprocess.run(["ibnetdiscover"], env=self.shim(), cwd=self.folder, capture_output=True, text=True,
                              timeout=60, check=False)
        return done.stdout if done.returncode == 0 and "Switch" in done.stdout else None

    def show(self, *more):
        (self.folder / "dump").write_text(self.discover())
        text = self.expect_done("topo", "show", "--dump", "dump", "--json", "fabric.json", *more)
        return text, json.loads((self.folder / "fabric.json").read_text())

    def test_hosts_switches_rates_and_a_link_that_is_gone(self):
        text, fabric = self.show()
        self.assertEqual(fabric["remarks"], [])
        self.assertEqual([level["number"] for level in fabric["levels"]], [LEAVES * HOSTS, LEAVES, SPINES])
        for leaf in range(LEAVES):
            self.assertIn(f"leaf{leaf + 1} (0000000000aa010{leaf + 1}): n[{leaf * HOSTS + 1}-{leaf * HOSTS + HOSTS}]\n", text)
        rates = {tuple(end.split()[0] for end in cable["ends"]): cable["bytes_per_second"] for cable in fabric["cables"]}
        self.assertEqual(len(rates), LEAVES * (HOSTS + SPINES))
        self.assertEqual({rates[f"leaf{(host - 1) // HOSTS + 1}", f"n{host}"] for host in range(1, LEAVES * HOSTS + 1)}, {25e9})
        self.assertEqual({rates["spine1", f"leaf{leaf}"] for leaf in (1, 2, 3)}, {25e9})
        self.assertEqual({rates["spine2", f"leaf{leaf}"] for leaf in (1, 2, 3)}, {12.5e9})
        self.assertAlmostEqual(fabric["levels"][1]["taper"], 12 * 25 / (3 * 37.5))

        self.console.stdin.write(b'Unlink "leaf2"[5]\nUnlink "n12"[1]\n')
        self.console.stdin.flush()
        self.wait_for(lambda: '"n12 mlx5_0"' not in (self.discover() or '"n12 mlx5_0"'), "the console of ibsim")
        (self.folder / "topology.conf").write_text(
            "".join(f"SwitchName=l{leaf + 1} Nodes=n[{leaf * HOSTS + 1}-{leaf * HOSTS + HOSTS}]\n" for leaf in range(LEAVES)))
        text, fabric = self.show("--slurm", "topology.conf")
        self.assertEqual(fabric["levels"][1]["cables_up"], LEAVES * SPINES - 1)
        self.assertEqual(fabric["remarks"], ["a host of Slurm is not in ibnetdiscover: n12"])
        self.assertIn("n[9-12]\n", text)


if __name__ == "__main__":
    missing = [name for name in ("ibsim", "opensm", "ibnetdiscover") if shutil.which(name) is None]
    if missing or not SHIM:
        print("skipped: not installed:", ", ".join(missing) or "libumad2sim.so")
        sys.exit(SKIPPED)
    ProgramTest.program = Path(sys.argv.pop(1)).resolve()
    unittest.main()
