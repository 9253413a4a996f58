#!/usr/bin/env python3
"""What trireme topo probe says of a leaf-spine network whose rates are known.

    python3 probe_slurm_test.py TRIREME

Rates are low, so that no processor limits them. A rate is compared with what tbf lets pass: it counts whole Ethernet
frames, of which 1448 in 1514 bytes are data. What else runs on this host only slows messages down, so a measurement
that is off is made again.
"""
import json
import re
import subprocess
import sys
import unittest
from pathlib import Path

from slurm_testing import Cluster, main

PAYLOAD = 1448 / 1514
HOST, UPLINK = 160, 80  # Mbit/s
ATTEMPTS = 4


def near(measured, mbit):
    return abs(measured / (mbit * 1e6 / 8 * PAYLOAD) - 1) <= 0.1


class Probe(unittest.TestCase):
    program = ""

    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(Cluster("--mode", "network", "--nodes", "4", "--leaves", "2", "--host-rate",
                                                    f"{HOST}mbit", "--uplink-rate", f"{UPLINK}mbit"))

    def probe(self, ranks=4, collectives=False):
        """What it prints, what it writes for programs, and the file of rates."""
        files = [self.cluster.scratch / name for name in ("probe.json", "rates.json")]
        text = self.cluster.call("srun", "--mpi=pmi2", "-N4", f"-n{ranks}", self.program, "topo", "probe", "--json", files[0],
                                 "--network", files[1], "--collectives", str(collectives).lower(),
                                 environment={"UCX_TLS": "tcp,self", "OMP_NUM_THREADS": "1"}, timeout=90)
        return text, *(json.loads(file.read_text(encoding="utf-8")) for file in files)

    def probe_until(self, good, ranks=4):
        """The first measurement that is good, or the last one."""
        for _ in range(ATTEMPTS):
            found = self.probe(ranks)
            if good(found):
                break
            print(found[0])
        return found

    def shape(self, link, mbit, node=None):
        """Sets the rate of a link's end on this host, or of a node's own end."""
        prefix = next(line.split("=")[1] for line in (self.cluster.folder / "slurm.conf").read_text().splitlines()
                      if line.startswith("ClusterName="))
        within = [] if node is None else ["nsenter", f"--net=/run/netns/{prefix}n{node}"]
        subprocess.run([*within, "tc", "qdisc", "change", "dev", link if node else prefix + link, "root", "tbf", "rate",
                        f"{mbit}mbit", "burst", "512k", "limit", "8m"], check=True)

    def test_the_file_of_the_switches_is_read_as_slurm_reads_it(self):
        told = self.cluster.scratch / "topology.txt"
        told.write_text(self.cluster.call("scontrol", "show", "topology"), encoding="utf-8")

        def shown(file):
            fabric = self.cluster.scratch / "fabric.json"
            text = self.cluster.call(self.program, "topo", "show", "--slurm", file, "--json", fabric)
            cables = json.loads(fabric.read_text(encoding="utf-8"))["cables"]
            return text, sorted(cable["ends"] for cable in cables)
        text, cables = shown(self.cluster.folder / "topology.conf")
        self.assertEqual(cables, [["leaf1", "n1"], ["leaf1", "n2"], ["leaf2", "n3"], ["leaf2", "n4"], ["spine1", "leaf1"],
                                  ["spine1", "leaf2"]])
        self.assertNotIn("remark", text)
        self.assertEqual((text, cables), shown(told))

    def test_rates_are_those_of_the_links(self):
        def good(found):
            same, across = found[2]["distances"][1:]
            return near(same["flow"], HOST) and near(same["host"], HOST) and near(across["flow"], UPLINK) \
                and near(across["block"], UPLINK) and found[1]["slow"] == []
        text, data, rates = self.probe_until(good, ranks=8)
        self.assertEqual((rates["hosts"], rates["tiers"]), (["n1", "n2", "n3", "n4"], [[0, 0, 1, 1]]))
        same, across = rates["distances"][1:]
        for what, rate, mbit in (("same leaf", same["flow"], HOST), ("out of a node", same["host"], HOST),
                                 ("across", across["flow"], UPLINK), ("out of a leaf", across["block"], UPLINK)):
            self.assertTrue(near(rate, mbit), f"{what}: {rate * 8e-6:.1f} Mbit/s, not {mbit}\n{text}")
        self.assertLess(across["latency"], 1.0)
        self.assertGreater(rates["distances"][0]["flow"], same["flow"])
        self.assertEqual(data["slow"], [])
        self.assertIn("\nno link is slower than others like it\n", text)
        self.assert_wider_uplinks_change_the_choice(rates)

    def assert_wider_uplinks_change_the_choice(self, rates):
        """What is measured decides: with narrow uplinks few bytes may cross them, with wide ones another algorithm is
        best. Each is predicted to be faster than the other where it is chosen."""
        narrow = self.explain(rates)
        for link in ("u1", "u2", "d1", "d2"):
            self.shape(link, 8 * UPLINK)
            self.addCleanup(self.shape, link, UPLINK)
        # Both hosts of a leaf together are the limit now.
        text, _, rates = self.probe_until(lambda found: near(found[2]["distances"][2]["block"], 2 * HOST))
        self.assertTrue(near(rates["distances"][2]["block"], 2 * HOST), text)
        wide = self.explain(rates)
        self.assertNotEqual(wide["chosen"], narrow["chosen"], text)
        for here, there in (wide, narrow), (narrow, wide):
            predicted = {one["algorithm"]: one["predicted_s"] for one in here["candidates"]}
            self.assertLess(predicted[here["chosen"]], predicted[there["chosen"]], text)

    def test_collectives_are_timed_while_that_takes_seconds(self):
        text, _, rates = self.probe(collectives=True)
        self.assertIn("\nall_reduce ", text)
        sizes = {}
        for one in rates["collectives"]:
            self.assertEqual(one["ranks"], 4)
            sizes.setdefault(one["collective"], set()).add(one["bytes"])
        # 16 MiB would take two seconds a run on links this slow.
        self.assertEqual(sizes["all_reduce"], {1 << 10, 32 << 10, 1 << 20, 4 << 20})

    def explain(self, rates):
        """Which algorithm is chosen for an all_reduce of 256 KiB on such a network, and why. Of this size the
        two best ones differ by a third."""
        files = [self.cluster.scratch / name for name in ("changed.json", "why.json")]
        files[0].write_text(json.dumps(rates), encoding="utf-8")
        self.cluster.call(self.program, "topo", "explain", "all_reduce", "256K", "--network", files[0], "--json", files[1])
        return json.loads(files[1].read_text(encoding="utf-8"))

    def assert_doctor_says(self, *lines, options=()):
        for _ in range(ATTEMPTS):
            text = self.cluster.call("srun", "--mpi=pmi2", "-N4", "-n4", self.program, "doctor", *options, timeout=90,
                                     environment={"UCX_TLS": "tcp,self", "OMP_NUM_THREADS": "1"})
            if all(re.search(line, text) for line in lines):
                break
        for line in lines:
            self.assertRegex(text, line)

    def test_a_slow_cable_is_named(self):
        self.shape("h3", HOST / 4)
        self.shape("eth0", HOST / 4, node=3)
        self.addCleanup(self.shape, "h3", HOST)
        self.addCleanup(self.shape, "eth0", HOST, node=3)

        def good(found):
            return [slow["where"] for slow in found[1]["slow"]] == ["n3 sends", "n3 receives"]
        text, data, _ = self.probe_until(good)
        self.assertEqual([slow["where"] for slow in data["slow"]], ["n3 sends", "n3 receives"], text)
        for slow in data["slow"]:
            self.assertTrue(near(slow["rate"], HOST / 4), text)
        self.assertRegex(text, r"\nslow: n3 sends at [0-9.]+ MB/s; usual is [0-9.]+\n")
        self.assert_doctor_says(r"(?m)^warning +network +on n3: n3 sends at [0-9.]+ GB/s; usual is [0-9.]+ GB/s; see to its "
                                r"cable", r"(?m)^warning +network +on n3: n3 receives at ")

    def test_a_slow_uplink_is_named(self):
        self.shape("u2", UPLINK / 2)
        self.addCleanup(self.shape, "u2", UPLINK)

        def where(data):
            return [slow["where"] for slow in data["slow"]]
        expected = ["leaf of n[3-4] to leaf of n[1-2]"]
        text, data, _ = self.probe_until(lambda found: where(found[1]) == expected)
        self.assertEqual(where(data), expected, text)
        self.assertTrue(near(data["slow"][0]["rate"], UPLINK / 2), text)
        self.assert_doctor_says(r"(?m)^warning +network +leaf of n\[3-4\] to leaf of n\[1-2\] at [0-9.]+ GB/s; usual is "
                                r"[0-9.]+ GB/s; see to the cables on the way$")

    def test_cables_that_reach_little_are_named(self):
        # A description by which each cable has 2 Gbit/s: the nodes cannot fill it, but they could send more than goes up.
        dump = self.cluster.scratch / "fabric.txt"
        text = ""
        for number, name in ((1, "leaf1"), (2, "leaf2"), (3, "spine")):
            text += f'Switch\t8 "S-{number:016x}"\t# "{name}"\n'
            if number < 3:
                text += f'[8]\t"S-{3:016x}"[{number}]\t# "spine" lid 3 1xSDR\n'
        for node in range(1, 5):
            text += (f'Ca\t1 "H-{16 * node:016x}"\t# "n{node} mlx5_0"\n'
                     f'[1](b{node}) \t"S-{(node + 1) // 2:016x}"[{node}]\t# lid 1 lmc 0 "leaf" lid 2 1xSDR\n')
        dump.write_text(text, encoding="utf-8")
        line = (r"(?m)^{} +uplinks +the nodes below a leaf switch reach {}[0-9]* Gbit/s together; its cables upwards have 2 "
                r"Gbit/s, and the nodes could send 0\.[23][0-9]* Gbit/s")
        self.assert_doctor_says(line.format("warning", r"0\.0[67]"), options=("--dump", dump))
        for link in ("u1", "u2", "d1", "d2"):
            self.shape(link, 8 * UPLINK)
            self.addCleanup(self.shape, link, UPLINK)
        self.assert_doctor_says(line.format("ok", r"0\.[23]"), options=("--dump", dump))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: probe_slurm_test.py TRIREME")
    Probe.program = Path(sys.argv.pop(1)).resolve()
    main()
