#!/usr/bin/env python3
"""perf/planner.py on the committed rows: the tables are whole, memory is what the papers say, and constants are few.

    python3 published_runs_test.py REPOSITORY
"""
import re
import subprocess
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "perf/planner"))
import fit  # noqa: E402
import peer_memory  # noqa: E402
import peer_step  # noqa: E402
import report  # noqa: E402
from devices import DEVICES, NETWORKS  # noqa: E402
from table import MEASURED, read_json, read_rows  # noqa: E402


class Published(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rows, cls.profiles = read_rows(), read_json("profiles.json")
        cls.constants = read_json("constants.json")

    def of(self, table):
        found = [row for row in self.rows if row.table == table]
        self.assertTrue(found, table)
        return found

    def test_every_row_has_what_a_prediction_needs(self):
        sources = read_json("sources.json")
        keys = [row.key for row in self.rows]
        self.assertEqual(len(keys), len(set(keys)), "two rows of one layout")
        self.assertEqual(set(sources), {row.table for row in self.rows})
        for row in self.rows:
            with self.subTest(row.table, layout=row.layout()):
                self.assertIn(row.device, DEVICES)
                self.assertIn(row.network, NETWORKS)
                self.assertIn(row.program, self.profiles)
                self.assertEqual(row.data * row.tensor * row.pipeline * row.context, row.gpus)
                self.assertEqual(row.hidden % row.heads, 0)
                self.assertTrue(row.out_of_memory or any(getattr(row, name) for name in MEASURED))

    def test_constants_are_as_few_as_promised(self):
        for name, values in self.constants.items():
            owners = {}
            for constant in values:
                owner = constant.rsplit(".", 1)[0]
                owners[owner] = owners.get(owner, 0) + 1
            for owner, count in owners.items():
                most = {"device": 4, "network": 3, "program": 2}[owner.split(".")[0]]
                self.assertLessEqual(count, most, f"{name} {owner}")

    def test_korthikanti_figure_1(self):
        """Its GiB, within 0.1 %: states of 18 bytes a parameter, activations by equations 2 and 4."""
        for row in self.of("korthikanti-figure1"):
            profile = self.profiles[row.program]
            states = peer_memory.states(row, profile) / peer_memory.GIB
            self.assertAlmostEqual(states / row.state_gib, 1, delta=1e-3)
            activations = peer_memory.activations(row, profile) / peer_memory.GIB
            self.assertAlmostEqual(activations / row.activation_gib, 1, delta=1e-3)

    def test_korthikanti_figure_7(self):
        """Its percentages were read off a picture: within 0.15 of a percent of all."""
        for row in self.of("korthikanti-figure7"):
            share = 100 * peer_memory.activation_share(row, self.profiles[row.program])
            self.assertAlmostEqual(share, row.activation_percent, delta=0.15, msg=row.layout())

    def test_allocators_of_simumax(self):
        """The most that an allocator held, where all conditions are known: within 1 %."""
        for row in self.of("simumax-b200") + self.of("simumax-b200-long"):
            told = peer_memory.largest(row, self.profiles[row.program]) / peer_memory.GIB
            self.assertAlmostEqual(told / row.memory_gib, 1, delta=0.01, msg=row.layout())

    def test_the_half_that_was_not_fitted_is_near(self):
        errors = [abs(self.seconds(row, "half") / row.seconds - 1) for row in self.rows
                  if row.seconds and row.specified and not row.fitted_half]
        self.assertGreater(len(errors), 120)
        self.assertLess(sum(errors) / len(errors), 0.05)

    def test_a_fit_comes_nearer_and_changes_only_what_its_rows_tell_of(self):
        made = [peer_step.workload(row, self.profiles[row.program]) for row in self.of("simumax-b200")]
        before, after = fit.fit(made, self.profiles, rounds=0), fit.fit(made, self.profiles, rounds=12)

        def off(values):
            return sum(abs(peer_step.seconds(each, fit.look_up(values)) / each.row.seconds - 1) for each in made)

        self.assertLess(off(after), off(before) / 2)
        changed = {name.rsplit(".", 1)[0] for name in after if after[name] != before[name]}
        self.assertEqual(changed, {"device.b200", "network.nvlink5", "program.megatron-te"})

    def seconds(self, row, which):
        made = peer_step.workload(row, self.profiles[row.program])
        return peer_step.seconds(made, fit.look_up(self.constants[which]))

    def test_time_follows_what_a_step_does(self):
        row = self.of("sc21-table1")[6]
        made = peer_step.workload(row, self.profiles[row.program])
        values = dict(self.constants["half"])
        whole = peer_step.seconds(made, fit.look_up(values))
        for name, longer in ((f"device.{row.device}.product", 0.5), (f"network.{row.network}.link", 0.5),
                             (f"network.{row.network}.nic", 0.5), (f"device.{row.device}.start", 2)):
            changed = peer_step.seconds(made, fit.look_up({**values, name: values[name] * longer}))
            self.assertGreater(changed, whole, name)
            self.assertLess(changed, 2 * whole, name)

    def test_ranks(self):
        self.assertEqual(report.spearman([1, 2, 3, 4], [10, 20, 30, 40]), 1)
        self.assertEqual(report.spearman([1, 2, 3, 4], [4, 3, 2, 1]), -1)
        self.assertAlmostEqual(report.spearman([1, 2, 2, 3], [1, 2, 3, 4]), 0.9486833, places=6)
        self.assertIsNone(report.spearman([1, 1, 1], [1, 2, 3]))

    def run_it(self, *words):
        command = [sys.executable, ROOT / "perf/planner.py", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def test_it_prints_every_row(self):
        done = self.run_it("--rows")
        self.assertEqual(done.returncode, 0, done.stderr)
        timed = re.findall(r"%  (?:fitted|other)(?:;|$)", done.stdout, re.MULTILINE)
        self.assertEqual(len(timed), sum(1 for row in self.rows if row.seconds))

    def test_unknown_tables_and_programs_are_named(self):
        done = self.run_it("--table", "sc22")
        self.assertEqual(done.returncode, 1)
        self.assertIn("no table is called sc22", done.stderr)
        done = self.run_it("--backend", "trireme", "--program", "/no/such/trireme")
        self.assertIn("/no/such/trireme: no such program", done.stderr)


if __name__ == "__main__":
    unittest.main()
