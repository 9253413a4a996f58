#!/usr/bin/env python3
"""`trireme topo show`: descriptions of clusters become a table, JSON and a picture. `trireme topo order`: which rank
should take which place of a grid.

    python3 topo_show_test.py TRIREME
"""
import json
import sys
import unittest
import xml.etree.ElementTree
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
from cli_testing import ProgramTest  # noqa: E402

SVG = "{http://www.w3.org/2000/svg}"


def dump(leaves, hosts_per_leaf, spines, adapters=1):
    """What ibnetdiscover prints of a fat tree of two levels; the adapters of a host are on leaf
    switches of their own."""
    text = ["# Topology file"]

    def host_ports(group, rail):
        for i in range(hosts_per_leaf):
            host = group * hosts_per_leaf + i + 1
            yield host, 0xcc000000 + host * 16 + rail, i + 1

    for leaf in range(leaves):
        text.append(f'switchguid={0xaa0000 + leaf:#x}\nSwitch\t64 "S-{0xaa0000 + leaf:016x}"\t\t# "leaf{leaf + 1}" '
                    'base port 0 lid 2 lmc 0')
        for host, guid, port in host_ports(leaf // adapters, leaf % adapters):
            text.append(f'[{port}]\t"H-{guid:016x}"[1]({guid + 8:x}) \t\t# "n{host} mlx5_{leaf % adapters}" lid 1 4xHDR')
        for spine in range(spines):
            text.append(f'[{hosts_per_leaf + spine + 1}]\t"S-{0xbb0000 + spine:016x}"[{leaf + 1}]\t\t# "s" lid 1 4xHDR')
    for spine in range(spines):
        text.append(f'switchguid={0xbb0000 + spine:#x}\nSwitch\t64 "S-{0xbb0000 + spine:016x}"\t\t# "spine{spine + 1}" '
                    'base port 0 lid 2 lmc 0')
        for leaf in range(leaves):
            text.append(f'[{leaf + 1}]\t"S-{0xaa0000 + leaf:016x}"[{hosts_per_leaf + spine + 1}]\t\t# "l" lid 1 4xHDR')
    for leaf in range(leaves):
        for host, guid, port in host_ports(leaf // adapters, leaf % adapters):
            text.append(f'caguid={guid:#x}\nCa\t1 "H-{guid:016x}"\t\t# "n{host} mlx5_{leaf % adapters}"\n'
                        f'[1]({guid + 8:x}) \t"S-{0xaa0000 + leaf:016x}"[{port}]\t\t# lid 1 lmc 0 "l" lid 2 4xHDR')
    return "\n".join(text) + "\n"


class Show(ProgramTest):
    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def test_a_table_json_and_a_picture(self):
        self.write("dump", dump(4, 4, 2))
        self.write("topology.conf", "SwitchName=l1 Nodes=n[1-4]\nSwitchName=l2 Nodes=n[5-7]\n"
                   "SwitchName=l3 Nodes=n[8-12],n17\nSwitchName=l4 Nodes=n[13-16]\n")
        port = "sys/class/infiniband/mlx5_0/ports/1/"
        self.write(port + "state", "4: ACTIVE\n")
        self.write(port + "link_layer", "InfiniBand\n")
        self.write(port + "rate", "100 Gb/sec (2X HDR)\n")
        text = self.expect_done("topo", "show", "--dump", "dump", "--slurm", "topology.conf", "--sysfs", "sys",
                                "--host", "n3", "--json", "fabric.json", "--svg", "fabric.svg", "--grid", "4x2x4",
                                "--ranks-per-node", "2")
        self.assertEqual(text.splitlines(), [
            "level                  number  cables up       capacity up   taper  from",
            "hosts                      17         17 above 3200 Gbit/s          Slurm, ibnetdiscover",
            "switches of level 1         4          8       1600 Gbit/s          ibnetdiscover",
            "switches of level 2         2                                       ibnetdiscover",
            "leaf1 (0000000000aa0000): n[1-4]",
            "leaf2 (0000000000aa0001): n[5-7]",
            "leaf3 (0000000000aa0002): n[8-12,17]",
            "leaf4 (0000000000aa0003): n[13-16]",
            "remark: host 'n8': Slurm puts it below 'l3', ibnetdiscover below 'leaf2 (0000000000aa0001)'; "
            "Slurm counts",
            "remark: a host of Slurm is not in ibnetdiscover: n17",
            "remark: n3 mlx5_0 port 1: ibnetdiscover says 200 Gbit/s, sysfs 100 Gbit/s; ibnetdiscover counts"])
        written = json.loads((self.folder / "fabric.json").read_text())
        self.assertEqual((written["format_version"], len(written["vertices"]), len(written["cables"])), (1, 23, 25))
        self.assertEqual(len(written["remarks"]), 3)
        cables = {tuple(cable["ends"]): cable for cable in written["cables"]}
        self.assertEqual(cables["leaf3 (0000000000aa0002)", "n17"],
                         {"ends": ["leaf3 (0000000000aa0002)", "n17"], "from": "Slurm", "bytes_per_second": None})
        self.assertEqual(next(cable for cable in written["cables"] if "n1" in cable["ends"]),
                         {"ends": ["leaf1 (0000000000aa0000)", "n1"], "from": "Slurm", "bytes_per_second": 25e9,
                          "rate_from": "ibnetdiscover", "adapter": "mlx5_0"})
        # Each of 32 ranks has a cell for each of the three dimensions, and each host its name.
        drawn = xml.etree.ElementTree.parse(self.folder / "fabric.svg").getroot()
        titles = [title.text for title in drawn.iter(SVG + "title")]
        self.assertEqual(sum(title.startswith("place ") for title in titles), 3 * 32)
        self.assertIn("place 31: tensor 3", titles)
        self.assertIn("spine1 - leaf1: 1 cable, 200 Gbit/s each way, from ibnetdiscover", titles)
        names = {text.text for text in drawn.iter(SVG + "text")}
        self.assertLessEqual({f"n{i}" for i in range(1, 18)} | {"leaf1", "spine2"}, names)

    def test_the_load_of_links_in_a_step(self):
        self.write("dump", dump(2, 2, 2))
        self.write("run.ini", "[model]\nlayers = 2\nwidth = 64\nheads = 4\ncontext = 32\n"
                              "[batch]\nglobal = 8\nmicro = 1\n")

        def titles(*more):
            self.expect_done("topo", "show", "--dump", "dump", "--svg", "fabric.svg", "--grid", "4x1x2",
                             "--ranks-per-node", "2", *more)
            drawn = xml.etree.ElementTree.parse(self.folder / "fabric.svg").getroot()
            return [title.text for title in drawn.iter(SVG + "title")]

        def load(titles, link):
            told, = (title for title in titles if title.startswith(link + ":"))
            size, unit = told.split("; ")[1].split(" a step")[0].split()
            return float(size) * {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}[unit]

        self.assertFalse(any("a step" in title for title in titles()))
        # Tensor ranks are on one host. For n bytes that data ranks sum, a host sends 2 n for its two ranks and the
        # next host, and n for those of the other leaf; half of what leaves a leaf takes each cable.
        self.write("rank.ini", (self.folder / "run.ini").read_text() + "[grid]\norder = rank\n")
        drawn = titles("--config", "rank.ini")
        self.assertAlmostEqual(load(drawn, "spine1 - leaf1") / load(drawn, "n1"), 1 / 3, delta=0.01)
        self.assertIn("place 7: data 3", drawn)
        # The launcher deals the nodes out over the leaves: grid.order auto undoes it, rank does not.
        nodes = ("--nodes", "n1,n3,n2,n4")
        chosen = titles("--config", "run.ini")
        self.assertEqual(titles(*nodes, "--config", "run.ini"), chosen)
        self.assertLess(load(chosen, "spine1 - leaf1"), load(drawn, "spine1 - leaf1"))
        dealt = titles(*nodes, "--config", "rank.ini")
        self.assertAlmostEqual(load(dealt, "spine1 - leaf1") / load(drawn, "spine1 - leaf1"), 2, delta=0.03)
        # A file of an order; its node names have a domain.
        self.write("order", "n1.site.org\nn2.site.org\nn3.site.org\nn4.site.org\n")
        self.write("file.ini", (self.folder / "run.ini").read_text() + f"[grid]\norder = {self.folder / 'order'}\n")
        self.assertEqual(titles(*nodes, "--config", "file.ini"), drawn)

    def test_what_differs_from_its_like(self):
        # n2's cable has half the width, and one of leaf3's two cables up is slow.
        slow = dump(3, 4, 2).replace('"n2 mlx5_0" lid 1 4xHDR', '"n2 mlx5_0" lid 1 2xHDR')
        uplink = '[6]\t"S-0000000000bb0001"[3]\t\t# "s" lid 1 '
        self.write("dump", slow.replace(uplink + "4xHDR", uplink + "4xSDR"))
        text = self.expect_done("topo", "show", "--dump", "dump", "--json", "fabric.json")
        self.assertIn("leaf3 (0000000000aa0002): n[9-12]\n"
                      "slow cable: n2 mlx5_0 to leaf1 (0000000000aa0000): ibnetdiscover says 100 Gbit/s; usual there is "
                      "200 Gbit/s\n"
                      "slow cable: leaf3 (0000000000aa0002) to spine2 (0000000000bb0001): ibnetdiscover says 8 Gbit/s; "
                      "usual from switches of level 1 is 200 Gbit/s\n"
                      "taper: leaf3 (0000000000aa0002): a taper of 3.85:1; usual is 2:1\n", text)
        written = json.loads((self.folder / "fabric.json").read_text())
        self.assertEqual(written["slow_cables"][0], {"ends": ["leaf1 (0000000000aa0000)", "n2"],
                                                     "bytes_per_second": 12.5e9, "usual_bytes_per_second": 25e9})
        self.assertEqual([odd["switch"] for odd in written["odd_tapers"]], ["leaf3 (0000000000aa0002)"])
        # Nothing is said of these where the nodes do not need them.
        text = self.expect_done("topo", "show", "--dump", "dump", "--nodes", "n[3-6]")
        self.assertEqual([line for line in text.splitlines() if not line.startswith(("level", "remark"))], [
            "hosts                       4          4        800 Gbit/s          ibnetdiscover",
            "switches of level 1         2          4        800 Gbit/s     1:1  ibnetdiscover",
            "switches of level 2         2                                       ibnetdiscover",
            "leaf1 (0000000000aa0000): n[3-4]",
            "leaf2 (0000000000aa0001): n[5-6]"])
        # bad input: `topo`: a node that is in no description | --nodes n99: 'n99' is not in the fabric | 2
        self.expect_refusal(2, "--nodes n99: 'n99' is not in the fabric", "topo", "show", "--dump", "dump", "--nodes",
                            "n99")

    def test_a_host_on_a_spine(self):
        fabric = dump(2, 2, 2)
        fabric = fabric.replace('"spine1" base port 0 lid 2 lmc 0', '"spine1" base port 0 lid 2 lmc 0\n'
                                '[9]\t"H-00000000000000b1"[1](b2) \t\t# "nas1 mlx5_0" lid 9 4xHDR')
        self.write("dump", fabric + 'caguid=0xb1\nCa\t1 "H-00000000000000b1"\t\t# "nas1 mlx5_0"\n'
                   '[1](b2) \t"S-0000000000bb0000"[9]\t\t# lid 9 lmc 0 "s" lid 2 4xHDR\n')
        text = self.expect_done("topo", "show", "--dump", "dump", "--svg", "fabric.svg")
        self.assertIn("switches of level 1         2          4        800 Gbit/s     1:1  ibnetdiscover\n", text)
        self.assertIn("leaf1 (0000000000aa0000): n[1-2]\nleaf2 (0000000000aa0001): n[3-4]\n"
                      "spine1 (0000000000bb0000), of level 2: nas1\n", text)
        drawn = xml.etree.ElementTree.parse(self.folder / "fabric.svg").getroot()
        self.assertIn("nas1", {text.text for text in drawn.iter(SVG + "text")})

    def test_taper_and_rails(self):
        self.write("dump", dump(4, 8, 2, adapters=2))
        text = self.expect_done("topo", "show", "--dump", "dump")
        self.assertIn("switches of level 1         4          8       1600 Gbit/s     4:1  ibnetdiscover\n", text)
        self.assertIn("rails: 2, with 2, 2 leaf switches\n", text)
        self.assertIn("leaf1 (0000000000aa0000), leaf2 (0000000000aa0001): n[1-8]\n", text)

    def test_large_fabrics_are_summarised(self):
        self.write("dump", dump(20, 30, 4))
        self.expect_done("topo", "show", "--dump", "dump", "--svg", "fabric.svg")
        drawn = (self.folder / "fabric.svg").read_text()
        self.assertIn(">30 hosts: n[1-30]<", drawn)
        self.write("dump", dump(100, 16, 8))
        text = self.expect_done("topo", "show", "--dump", "dump", "--svg", "fabric.svg")
        self.assertIn("and 52 groups more (--json)", text)
        drawn = (self.folder / "fabric.svg").read_text()
        self.assertIn(">1600 hosts<", drawn)
        self.assertIn(">100 switches<", drawn)
        self.assertLess(len(drawn), 10_000)

    def test_names_are_untrusted(self):
        self.write("dump", dump(2, 2, 1).replace('"leaf1"', '"\x1b[2J<script>"'))
        text = self.expect_done("topo", "show", "--dump", "dump", "--svg", "fabric.svg", "--json", "fabric.json")
        self.assertNotIn("\x1b", text)
        xml.etree.ElementTree.parse(self.folder / "fabric.svg")
        self.assertNotIn("<script>", (self.folder / "fabric.svg").read_text())
        json.loads((self.folder / "fabric.json").read_text())

    def test_the_address_of_this_task(self):
        # On this machine there may be more: ports in /sys.
        address = {"SLURM_TOPOLOGY_ADDR": "spine[1-2].leaf2.n3", "SLURM_TOPOLOGY_ADDR_PATTERN": "switch.switch.node"}
        text = self.expect_done("topo", "show", environment={**address, "SLURMD_NODENAME": "n3"})
        self.assertIn("switches of level 2         2                                       Slurm", text)
        self.assertIn("leaf2: n3", text)
        # mpiexec gives the address of the node where it was called to all nodes.
        text = self.expect_done("topo", "show", environment={**address, "SLURMD_NODENAME": "n4"})
        self.assertNotIn("leaf2", text)

    def test_refuses_what_describes_nothing(self):
        self.write("text", "nothing\n")
        # bad input: `topo show`: a description that is none, or cannot be read | --dump none: cannot be read: No
        # such file or directory; text: no line describes a switch (Switch ...) ... | 2
        self.expect_refusal(2, "--dump none: cannot be read: No such file", "topo", "show", "--dump", "none")
        self.expect_refusal(2, "text: no line describes a switch (Switch ...) ", "topo", "show", "--dump", "text")
        self.expect_refusal(2, "text: no line describes a switch (SwitchName=...) ", "topo", "show", "--slurm", "text")
        self.write("dump", dump(2, 2, 1))
        # bad input: `topo show`: a grid that is none, or has more ranks than the nodes hold | --grid: 8 ranks, 1 on
        # each node, need 8 nodes; there are 4 | 2
        for grid in ("2x2", "0x1x1", "2x2x2x", "999999999999x1x1", "1048576x1048576x1048576"):
            self.expect_refusal(2, f"--grid {grid}: expected data x pipeline x tensor, as in 4x1x2", "topo", "show",
                                "--dump", "dump", "--grid", grid)
        self.expect_refusal(2, "--grid: 8 ranks, 1 on each node, need 8 nodes; there are 4", "topo", "show",
                            "--dump", "dump", "--grid", "2x2x2")
        # bad input: `topo show`: a configuration without a grid | topo show --config needs --grid, as in --grid 4x1x2
        # | 2
        self.expect_refusal(2, "topo show --config needs --grid, as in --grid 4x1x2", "topo", "show", "--dump", "dump",
                            "--config", "run.ini")
        # bad input: `topo show`: a file for JSON or a picture that cannot be written | none/a.svg.partial: cannot be
        # opened: No such file or directory | 5
        self.expect_refusal(5, "none/a.svg.partial: cannot be opened: No such file", "topo", "show", "--dump", "dump",
                            "--svg", "none/a.svg")


class Order(ProgramTest):
    def setUp(self):
        super().setUp()
        (self.folder / "topology.conf").write_text("SwitchName=l1 Nodes=n[1-2]\nSwitchName=l2 Nodes=n[3-4]\n"
                                                   "SwitchName=s Switches=l[1-2]\n", encoding="utf-8")
        (self.folder / "run.ini").write_text("[model]\npreset = gpt2-124m\n[batch]\nglobal = 64\nmicro = 8\n",
                                             encoding="utf-8")

    def order(self, *more):
        return self.expect_done("topo", "order", "--slurm", "topology.conf", *more)

    def test_the_launchers_order_and_a_cheaper_one(self):
        # The launcher's list goes to and fro between the leaves.
        text = self.order("--grid", "4x1x2", "--ranks-per-node", "2", "--nodes", "n1,n3,n2,n4", "--config", "run.ini",
                          "--output", "order")
        self.assertRegex(text, r"(?m)^a step: data ranks sum [\d.]+ MiB, tensor ranks [\d.]+ GiB, first and last stage 0 B; "
                               r"stages exchange 0 B$")
        self.assertRegex(text, r"(?m)^launcher +[\d.]+ m?s +[\d.]+ m?s  out of the leaf switch of n1$")
        self.assertRegex(text, r"(?m)^chosen +[\d.]+ m?s +[\d.]+ m?s  out of n1$")
        self.assertIn("\nno order is cheaper than the chosen one\n", text)
        self.assertIn("\nplaces of the grid on each node: n1: 0-1, n2: 2-3, n3: 4-5, n4: 6-7\n", text)
        self.assertEqual((self.folder / "order").read_text(encoding="utf-8").split(), list("01452367"))
        # Their names are in the order of the leaves.
        text = self.order("--grid", "4x1x2", "--ranks-per-node", "2", "--config", "run.ini")
        costs = [line.split(maxsplit=1)[1] for line in text.splitlines() if line.startswith(("launcher", "chosen"))]
        self.assertEqual(costs[0], costs[1])

    def test_refusals(self):
        # bad input: `topo order`: no grid, more ranks than the nodes hold, a node that is not in the fabric | topo order
        # needs --grid, ...; --grid: 16 ranks, 2 on each node, need 8 nodes; there are 4; --nodes ...: 'n9' is not in
        # the fabric | 2
        self.expect_refusal(2, "topo order needs --grid, as in --grid 4x1x2", "topo", "order", "--slurm", "topology.conf")
        for message, *more in (("--grid: 16 ranks, 2 on each node, need 8 nodes; there are 4", "--ranks-per-node", "2"),
                               ("--nodes n[8-9]: 'n8' is not in the fabric", "--nodes", "n[8-9]")):
            self.expect_refusal(2, message, "topo", "order", "--slurm", "topology.conf", "--grid", "4x2x2", *more)
        # bad input: `topo order --config`: a run on islands | grid.islands is 2 in --config, but islands stand in the
        # launcher's order: only the order of one grid can be chosen | 2
        (self.folder / "islands.ini").write_text("[grid]\nislands = 2\n", encoding="utf-8")
        self.expect_refusal(2, "grid.islands is 2 in --config, but islands stand in the launcher's order: only the order "
                               "of one grid can be chosen", "topo", "order", "--slurm", "topology.conf", "--grid",
                            "4x1x1", "--config", "islands.ini")


if __name__ == "__main__":
    ProgramTest.program = Path(sys.argv.pop(1)).resolve()
    unittest.main()
