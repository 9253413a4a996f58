#!/usr/bin/env python3
"""The report pages: well-formed, complete in themselves, with the plots that they promise; and, where
there is a Chromium, what it makes of them: no message on its console, and a picture that is not empty.

usage: report_test.py REPORT_PROGRAM [--keep FOLDER]
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree
import zlib

PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve()
KEEP = pathlib.Path(sys.argv.pop(2)).resolve() if sys.argv[1:2] == ["--keep"] else None
if KEEP:
    sys.argv.pop(1)
HTML = "{http://www.w3.org/1999/xhtml}"
SVG = "{http://www.w3.org/2000/svg}"
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def text_of(element):
    return " ".join("".join(element.itertext()).split())


class Pages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.folder = KEEP or pathlib.Path(cls.scratch.name)
        cls.done = subprocess.run([PROGRAM, cls.folder], capture_output=True, text=True, check=True)
        cls.pages = {name: cls.folder / path for name, path in (
            ("study", "study.html"), ("one", "study_one.html"), ("empty", "study_empty.html"),
            ("run", "run/report.html"), ("new", "run_new/report.html"))}

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def tree(self, name):
        return ElementTree.fromstring(self.pages[name].read_text(encoding="utf-8"))

    def plots(self, name):
        return {svg.get("aria-label"): svg for svg in self.tree(name).iter(SVG + "svg")}

    def test_pages_need_nothing_beside_themselves(self):
        for name, path in self.pages.items():
            with self.subTest(name):
                text = path.read_text(encoding="utf-8")
                for element in self.tree(name).iter():
                    self.assertNotIn(element.tag.split("}")[1],
                                     ("script", "link", "img", "iframe", "object", "image", "use"))
                    for attribute in element.attrib:
                        self.assertNotRegex(attribute, r"^(on|src|href)|}href")
                self.assertEqual([], re.findall(r"@import|url\(|@font-face", text))
                outside = set(re.findall(r"https?://[^\"' ]*", text))
                self.assertLessEqual(outside, {"http://www.w3.org/1999/xhtml",
                                               "http://www.w3.org/2000/svg"})
                for needed in ("prefers-color-scheme: dark", "@media print"):
                    self.assertIn(needed, text)

    def test_numbers_are_finite(self):
        for name, path in self.pages.items():
            with self.subTest(name):
                self.assertNotRegex(path.read_text(encoding="utf-8"), r"[\"> ,-](nan|inf)\b")

    def test_plots_of_a_study(self):
        tree = self.tree("study")
        self.assertEqual([text_of(h) for h in tree.iter(HTML + "h2")],
                         ["Verdict", "strong, pipeline 1 x tensor 2", "weak, pipeline 1 x tensor 2"])
        plots = self.plots("study")
        self.assertEqual(set(plots), {"Speedup", "Parallel efficiency", "Throughput gained",
                                      "Memory bandwidth gained", "Where the time goes"})
        for title, plot in plots.items():
            self.assertGreaterEqual(len(list(plot.iter(SVG + "title"))), 4, title)
        words = {text_of(t) for t in plots["Speedup"].iter(SVG + "text")}
        self.assertLessEqual({"Speedup", "nodes", "measured", "ideal", "Amdahl", "universal law", "1",
                              "16"}, words)
        page = text_of(tree)
        self.assertIn("30 of 30 points", page)
        self.assertIn('gpt2-124m, "quoted" <b>&amp;', page)
        # sqrt((1 - 0.05) / 0.002) nodes, as the results were made.
        self.assertIn("0.0500 0.002000", " ".join(
            text_of(cell) for cell in tree.iter(HTML + "td")))
        self.assertIn("21.8", page)

    def test_a_study_with_little(self):
        self.assertIn("Nothing is measured yet", text_of(self.tree("empty")))
        self.assertIn("no law can be fitted", text_of(self.tree("one")))
        self.assertIn('content="30"', self.pages["one"].read_text())

    def test_the_page_of_a_run(self):
        tree = self.tree("run")
        plots = self.plots("run")
        self.assertEqual(set(plots), {"Loss", "Throughput", "Time of a step", "Peak memory of a rank",
                                      "Where the time went", "Ranks and links"})
        titles = [t.text for t in plots["Loss"].iter(SVG + "title")]
        self.assertTrue(any(t.startswith("steps 1 to 3: ") for t in titles), titles[:3])
        self.assertTrue(any(t.startswith("started again at step 250") for t in titles))
        self.assertFalse(any("started again at step 0" in t for t in titles))
        self.assertEqual(sum("evaluation loss" in t for t in titles), 10)
        goodput, ranks, chosen, tuned, used, events, checkpoints = tree.iter(HTML + "table")
        rows = [[text_of(cell) for cell in row] for row in goodput.iter(HTML + "tr")]
        self.assertEqual([row[0] for row in rows], [
            "where the time went", "computation", "exposed communication", "data", "evaluation", "checkpoints",
            "steps not kept", "starting", "queue", "failures", "between starts", "other", "whole run"])
        self.assertEqual(rows[5][1], "2.75 s")
        self.assertEqual(rows[-1][2], "100.0 %")
        self.assertAlmostEqual(sum(float(row[2].split()[0]) for row in rows[1:-1]), 100.0, delta=0.5)
        rows = [[text_of(cell) for cell in row] for row in events.iter(HTML + "tr")]
        self.assertEqual([row[2] for row in rows[1:]], ["start", "start"])
        rows = [[text_of(cell) for cell in row] for row in checkpoints.iter(HTML + "tr")]
        self.assertEqual([row[1:4] for row in rows[1:]], [["250", "checkpoint", "1.25"], ["500", "checkpoint", "1.50"]])
        rows = [[text_of(cell) for cell in row] for row in ranks.iter(HTML + "tr")]
        self.assertEqual(len(rows), 1 + 32)  # the slowest
        self.assertEqual(rows[1], ["39", "<n2>", "39, 0, 0", "0.439", "0", "0", "1.39", "1907", "300"])
        self.assertEqual(rows[32][0], "8")
        page = text_of(tree)
        self.assertRegex(page, r"Goodput \d+\.\d % of 8 min \d+ s; checkpoints 2 s")
        self.assertIn("Ranks, steps 981 to 1000, the 32 slowest", page)
        self.assertIn("Straggler: rank 39 on <n2> computes 1.6 x", page)
        self.assertIn("1 step was skipped", page)
        self.assertIn("1000 of 1000", page)
        self.assertNotIn("http-equiv", self.pages["run"].read_text())

    def test_the_communication_of_a_run(self):
        tree = self.tree("run")
        page = text_of(tree)
        self.assertIn("Algorithms by size are chosen for rates.json, measured 2026-01-31. Order of sums: tree.", page)
        self.assertIn("data ranks sum 114 MiB, tensor ranks sum 57.2 MiB, neighbouring stages exchange 28.6 MiB", page)
        picture = self.plots("run")["Ranks and links"]
        titles = [title.text for title in picture.iter(SVG + "title")]
        self.assertEqual(sum(title.startswith("place ") for title in titles), 3 * 16)
        self.assertIn("place 15: data 3", titles)
        self.assertTrue(any(re.match(r"host0: 1 cable, 100 Gbit/s each way, from assumption; [\d.]+ MiB a step, [\d.]+ ms",
                                     title) for title in titles), titles)
        # The rows that took least time are left out, whatever their communicator.
        chosen, tuned, used = ([[text_of(cell) for cell in row] for row in table.iter(HTML + "tr")]
                               for table in list(tree.iter(HTML + "table"))[2:5])
        self.assertEqual(chosen, [["communicator of rank 0", "ranks", "nodes", "algorithms"],
                                  ["data", "8", "8", "all_reduce doubling to 256 KiB, halving"],
                                  ["<tensor>", "2", "1", "all_reduce direct"]])
        self.assertEqual(tuned, [["communicator", "collective", "size", "takes", "took before", "tried, us"],
                                 ["data", "all_reduce", "4 KiB", "halving", "doubling", "doubling 250.0, halving 125.0"]])
        self.assertEqual(used[0], ["communicator", "collective", "size", "algorithm", "times", "predicted, us",
                                   "measured, us", "bus bandwidth, MB/s", "share of the busiest link"])
        rows = used[1:]
        self.assertEqual(len(rows), 60)
        # The program that writes the pages has made them so.
        for row in rows:
            i = int(row[4]) - 1
            known = [f"{500 + 4 * i}.0", "1000.0", str(300 + i), f"out of n{i % 3}: {i + 10} %"]
            self.assertEqual(row[5:], known if i < 69 else ["", "1000.0", "", ""])
        self.assertIn(["data", "all_reduce", "8 KiB", "halving", "22", "584.0", "1000.0", "321", "out of n0: 31 %"], rows)
        self.assertEqual([row[0] for row in rows].count("<tensor>"), 5)
        self.assertEqual(min(int(row[4]) for row in rows), 11)
        self.assertIn("10 rows that took less time are left out.", page)
        self.assertNotIn("Ranks and links", text_of(self.tree("new")))

    def test_a_run_without_a_step(self):
        self.assertIn("No step is done yet", text_of(self.tree("new")))

    def test_a_fault_is_one_line(self):
        # bad input: `train`: the report or the events cannot be written | no report: ...: cannot be opened:
        # Permission denied; the run goes on | 0
        self.assertRegex(self.done.stderr, r"\Atrireme: no report: [^\n]*no_such_run[^\n]*\n\Z")

    @unittest.skipUnless(BROWSER, "there is no Chromium here")
    def test_a_browser_draws_them(self):
        for name in ("study", "run"):
            path = self.pages[name]
            for scheme in ("light", "dark"):
                with self.subTest(page=name, scheme=scheme):
                    picture = self.folder / f"{name}_{scheme}.png"
                    flags = ["--force-dark-mode"] if scheme == "dark" else []
                    done = self.browse(*flags, f"--screenshot={picture}", "--window-size=1100,2400", path)
                    self.assertNotIn("CONSOLE", done.stderr)
                    self.assertEqual(self.brightness(picture) > 128, scheme == "light", done.stderr)

    def test_printing(self):
        if not BROWSER:
            self.skipTest("there is no Chromium here")
        for name in ("study", "run"):
            target = self.folder / f"{name}.pdf"
            self.browse("--no-pdf-header-footer", f"--print-to-pdf={target}", self.pages[name])
            self.assertTrue(target.read_bytes().startswith(b"%PDF"))

    def browse(self, *arguments):
        *flags, page = arguments
        return subprocess.run(
            [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
             f"--user-data-dir={self.scratch.name}/browser", *flags, page.as_uri()],
            capture_output=True, text=True, timeout=100, check=True,
            env={**os.environ, "HOME": self.scratch.name})

    def brightness(self, picture):
        """The brightness of the top left pixel, 0 to 255: the paper."""
        data = picture.read_bytes()
        width, height, depth, kind = (int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big"),
                                      data[24], data[25])
        self.assertEqual((width, height, depth), (1100, 2400, 8))
        self.assertIn(kind, (2, 6))
        packed, at = b"", 8
        while at < len(data):
            size = int.from_bytes(data[at:at + 4], "big")
            if data[at + 4:at + 8] == b"IDAT":
                packed += data[at + 8:at + 8 + size]
            at += size + 12
        return sum(zlib.decompress(packed)[1:4]) / 3  # whatever the filter: nothing is left of it or above


if __name__ == "__main__":
    unittest.main()
