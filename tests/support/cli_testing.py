"""What the tests of the program `trireme` share."""
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

LAUNCHER = ("PMI_", "PMIX_", "OMPI_", "SLURM_", "TRIREME_SITE", "TRIREME_NETWORK")
OPENMP = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")


def network_rates(hosts):
    """What `trireme topo probe` stores (src/topology/README.md): the hosts are on two leaves, whose uplinks are
    slow."""
    def distance(latency, flow, host, block):
        return {"latency": latency, "flow": flow, "host": host, "block": block}
    return {"format": "trireme network rates", "version": 1, "cluster": "", "measured": 1790000000, "hosts": hosts,
            "distances": [distance(5e-7, 5e9, 2e10, 0), distance(2e-6, 1e10, 1e10, 0),
                          distance(4e-6, 1e10, 1e10, 2e9)],
            "tiers": [[i * 2 // len(hosts) for i in range(len(hosts))]],
            "costs": {"message": 1e-7, "reduced_byte": 1e-10, "copied_byte": 0},
            "collectives": [{"collective": "all_reduce", "algorithm": "doubling", "bytes": 1024, "ranks": 16,
                             "seconds": 1.25e-5}]}


def fabric_dump(leaves, host="4xHDR", uplink="4xHDR"):
    """A dump of ibnetdiscover. `leaves` lists the hosts of each leaf switch; a spine switch has a cable to each."""
    def guid(number):
        return f"{number:016x}"
    def switch(number, name, ports):
        return [f"switchguid=0x{number:x}({number:x})", f'Switch\t36 "S-{guid(number)}"\t\t# "{name}" base port 0 lid 1 lmc 0',
                *ports, ""]
    lines, adapters = ["#", "# Topology file: generated", "vendid=0x2c9"], []
    for i, hosts in enumerate(leaves, 1):
        ports = [f'[36]\t"S-{guid(0xaa00)}"[{i}]\t\t# "spine" lid 1 {uplink}']
        for port, name in enumerate(hosts, 1):
            adapter = 0xbb0000 + 0x1000 * i + 0x10 * port
            ports.append(f'[{port}]\t"H-{guid(adapter)}"[1]({adapter + 1:x}) \t\t# "{name} mlx5_0" lid 9 {host}')
            adapters += [f"caguid=0x{adapter:x}", f'Ca\t1 "H-{guid(adapter)}"\t\t# "{name} mlx5_0"',
                         f'[1]({adapter + 1:x}) \t"S-{guid(0xaa00 + i)}"[{port}]\t\t# lid 9 lmc 0 "leaf{i}" lid 1 {host}', ""]
        lines += switch(0xaa00 + i, f"leaf{i}", ports)
    lines += switch(0xaa00, "spine", [f'[{i}]\t"S-{guid(0xaa00 + i)}"[36]\t\t# "leaf{i}" lid 1 {uplink}'
                                      for i in range(1, len(leaves) + 1)])
    return "\n".join(lines + adapters)


class ProgramTest(unittest.TestCase):
    """Each test has a folder of its own, `self.folder`, in which the program runs."""
    program = Path()

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)
        self.folder.chmod(0o755)

    def run_program(self, *arguments, before=(), text=b"", environment=(), **options):
        """The finished process, its output decoded; `before` stands in front of the program."""
        own = {name: value for name, value in os.environ.items()
               if not name.startswith(LAUNCHER) and name not in OPENMP}
        done = subprocess.run(
            [*map(str, before), str(self.program), *map(str, arguments)], input=text,
            env={**own, **dict(environment)}, cwd=self.folder, capture_output=True, timeout=100,
            check=False, **options)
        # A model may write bytes that are not UTF-8.
        done.stdout = done.stdout.decode(errors="surrogateescape")
        done.stderr = done.stderr.decode()
        return done

    def expect_done(self, *arguments, **options):
        done = self.run_program(*arguments, **options)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        return done.stdout

    def expect_refusal(self, status, message, *arguments, **options):
        """The status, and one line for the user with the message in it."""
        done = self.run_program(*arguments, **options)
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertRegex(done.stderr, r"\Atrireme: [^\n]+\n\Z")
        self.assertIn(message, done.stderr)
        return done

    def prepare(self, name="data", *arguments):
        """A folder of byte-level shards of the text below."""
        text = "".join(f"Line {i} of a text that stands for a corpus.\n" for i in range(400))
        (self.folder / "text.txt").write_text(text, encoding="utf-8")
        self.expect_done("prepare", "text.txt", "--output", name, "--tokenizer", "byte", *arguments)
        return self.folder / name
