#!/usr/bin/env python3
"""`trireme topo choose` and `explain`: the algorithms of a job's collectives on a described network.

    python3 topo_choose_test.py TRIREME
"""
import json
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
from cli_testing import ProgramTest, network_rates  # noqa: E402


class TopoChoose(ProgramTest):
    def setUp(self):
        super().setUp()
        (self.folder / "rates.json").write_text(json.dumps(network_rates(["n1", "n2", "n3", "n4"])), encoding="utf-8")

    def test_choose(self):
        text = self.expect_done("topo", "choose", "--network", "rates.json", "--ranks-per-node", "4",
                                "--json", "table.json")
        self.assertIn("16 ranks on 4 nodes, below 2 switches; rates.json, measured 2026-09-21", text)
        table = json.loads((self.folder / "table.json").read_text(encoding="utf-8"))
        self.assertEqual((table["ranks"], table["nodes"], table["order"]), (16, 4, "tree"))
        sizes = {}
        for rule in table["rules"]:
            self.assertIn(rule["algorithm"], text)
            self.assertGreater(rule["predicted_s"], 0)
            self.assertNotIn("library", rule["algorithm"])
            before = sizes.get(rule["collective"], 0)
            self.assertTrue(rule["up_to_bytes"] is None or rule["up_to_bytes"] > before, rule)
            sizes[rule["collective"]] = rule["up_to_bytes"]
        self.assertEqual(set(sizes.values()), {None})  # each ends with a rule for all that is larger
        self.assertEqual(set(sizes), {"all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all"})

    def explain(self, *arguments):
        text = self.expect_done("topo", "explain", *arguments, "--json", "why.json")
        return text, json.loads((self.folder / "why.json").read_text(encoding="utf-8"))

    def test_explain(self):
        text, small = self.explain("all_reduce", "1K", "--network", "rates.json", "--ranks-per-node", "4")
        said, large = self.explain("all_reduce", "64M", "--network", "rates.json", "--ranks-per-node", "4")
        self.assertNotEqual(small["chosen"], large["chosen"])
        for why in (small, large):
            times = [one["predicted_s"] for one in why["candidates"]]
            self.assertEqual(times, sorted(times))
            best = next(one for one in why["candidates"] if one["may_be_chosen"])
            chosen = next(one for one in why["candidates"] if one["algorithm"] == why["chosen"])
            self.assertLess(chosen["predicted_s"], 1.1 * best["predicted_s"])
        # It takes the whole buffers of all ranks at once, which no table allows for large calls.
        self.assertRegex(said, r"(?m)^direct .*; left out: needs [\d.]+ MiB of memory, a table allows 1$")
        self.assertFalse(next(one for one in large["candidates"] if one["algorithm"] == "direct")["may_be_chosen"])
        self.assertTrue(next(one for one in small["candidates"] if one["algorithm"] == "direct")["may_be_chosen"])
        # The slow links above the leaves bind, and what was measured stands beside what is predicted.
        self.assertIn("the leaf switch of rank 0", " ".join(one["link"] for one in large["candidates"]))
        measured = {one["algorithm"]: one.get("measured_s") for one in small["candidates"]}
        self.assertEqual(measured["doubling"], 1.25e-5)
        self.assertIn("12.5", text)

    def test_of_a_description_without_rates(self):
        (self.folder / "topology.conf").write_text(
            "SwitchName=l1 Nodes=n[1-4]\nSwitchName=l2 Nodes=n[5-8]\nSwitchName=s Switches=l[1-2]\n", encoding="utf-8")
        text = self.expect_done("topo", "choose", "--slurm", "topology.conf", "--ranks", "6")
        self.assertIn("6 ranks on 6 nodes, below 2 switches; Slurm's topology, usual speeds assumed", text)
        # bad input: `topo choose`, `explain`: rates for another number of tiers than the described
        # network has | remark: FILE: rates for 2 distances, but the ranks have 3; not used | 0
        flat = network_rates(["n1", "n2"])
        flat["tiers"], flat["distances"] = [], flat["distances"][:2]
        (self.folder / "flat.json").write_text(json.dumps(flat), encoding="utf-8")
        text = self.expect_done("topo", "choose", "--slurm", "topology.conf", "--network", "flat.json")
        self.assertIn("remark: flat.json: rates for 2 distances, but the ranks have 3; not used", text)

    def test_of_some_nodes(self):
        (self.folder / "topology.conf").write_text(
            "SwitchName=l1 Nodes=n[1-4]\nSwitchName=l2 Nodes=n[5-8]\nSwitchName=s Switches=l[1-2]\n", encoding="utf-8")
        text = self.expect_done("topo", "choose", "--slurm", "topology.conf", "--nodes", "n[2-3],n7.site.org",
                                "--ranks-per-node", "2")
        self.assertIn("6 ranks on 3 nodes, below 2 switches; ", text)
        text = self.expect_done("topo", "explain", "all_reduce", "1M", "--network", "rates.json", "--nodes", "n[3-4]")
        self.assertIn("2 ranks on 2 nodes, below 1 switches; rates.json", text)
        # bad input: `topo choose`, `explain`: a node that the description or the file of rates lacks | --nodes n9: 'n9'
        # is not one of the nodes of rates.json; --nodes n9: 'n9' is not in the fabric | 2
        self.expect_refusal(2, "--nodes n9: 'n9' is not one of the nodes of rates.json", "topo", "choose", "--network",
                            "rates.json", "--nodes", "n9")
        self.expect_refusal(2, "--nodes n9: 'n9' is not in the fabric", "topo", "choose", "--slurm", "topology.conf",
                            "--nodes", "n9")

    def test_refusals(self):
        # bad input: `topo choose`, `explain`: more ranks than the nodes hold | --ranks 5: the network has 4 nodes,
        # which hold 4 at 1 a node (--ranks-per-node) | 2
        self.expect_refusal(2, "--ranks 5: the network has 4 nodes, which hold 4 at 1 a node (--ranks-per-node)",
                            "topo", "choose", "--network", "rates.json", "--ranks", "5")
        # bad input: `topo choose`, `explain`: more ranks than can be planned for | --ranks-per-node 1048576: 4 nodes
        # hold 4194304 ranks then; at most 65536 can be planned for (--ranks) | 2
        self.expect_refusal(2, "--ranks-per-node 1048576: 4 nodes hold 4194304 ranks then; at most 65536 can be planned "
                            "for (--ranks)", "topo", "choose", "--network", "rates.json", "--ranks-per-node", "1048576")
        self.expect_refusal(2, "--ranks 65537: at most 65536 can be planned for", "topo", "explain", "all_reduce", "1M",
                            "--network", "rates.json", "--ranks-per-node", "1048576", "--ranks", "65537")
        # bad input: `topo explain` of something that is no collective | topo explain all_ruin: unknown collective;
        # there are all_reduce, ... | 2
        self.expect_refusal(2, "topo explain all_ruin: unknown collective; there are all_reduce", "topo", "explain",
                            "all_ruin", "1M", "--network", "rates.json")
        # bad input: `topo explain` without a size | topo explain takes a collective and a size, as in: explain
        # all_reduce 1M | 2
        self.expect_refusal(2, "topo explain takes a collective and a size, as in: explain all_reduce 1M", "topo",
                            "explain", "all_reduce", "--network", "rates.json")
        # bad input: `topo choose`, `explain` of one rank | --ranks 1: one rank has nothing to send | 2
        self.expect_refusal(2, "--ranks 1: one rank has nothing to send", "topo", "choose", "--network", "rates.json",
                            "--ranks", "1")
        (self.folder / "rates.json").write_text("{", encoding="utf-8")
        self.expect_refusal(2, "rates.json: not a file of network rates: ", "topo", "choose", "--network", "rates.json")


if __name__ == "__main__":
    ProgramTest.program = Path(sys.argv.pop()).resolve()
    unittest.main()
