#!/usr/bin/env python3
"""`grid.order`, `comm.algorithms`, `comm.tune`: whichever rank takes whichever place of the grid, and whichever
algorithms carry its sums, the checkpoints are the same to the last bit.

usage: grid_order_test.py TRIREME CHECKPOINT_DIFFERENCE MPIEXEC
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from cli_testing import fabric_dump, network_rates  # noqa: E402

PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve()
DIFFERENCE = pathlib.Path(sys.argv.pop(1)).resolve()
MPIEXEC = sys.argv.pop(1)
RUN, ORDER = "run", "order"
TRAIN = (f"train --run.folder {RUN} --data.train data/train.h5 --model.layers 2 --model.width 32 --model.heads 4 "
         "--model.context 16 --batch.global 16 --batch.micro 2 --model.dropout 0.1 --run.steps 4 "
         "--checkpoint.every 2 --eval.every 0 --log.every 1 --threads 1 --comm.timeout 60").split()
# A leaf of two nodes, and one of one.
ADDRESS = {"n1": "spine.leaf1.n1", "n2": "spine.leaf2.n2", "n3": "spine.leaf1.n3", "n4": "spine.leaf2.n4",
           "odd": "spine.odd"}
# Whether tests/run.sh --full asks for it.
WHOLE_PRODUCT = os.environ.get("TRIREME_TESTS") == "full"
SVG = "{http://www.w3.org/2000/svg}"


class GridOrder(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder, True)
        words = [f"{a}{b}" for a in ("ro", "sa", "mi", "te", "lu") for b in ("wing", "ls", "st", "r")]
        (cls.folder / "text.txt").write_text(" ".join(words[(i * i + i // 7) % len(words)] for i in range(3000)))
        subprocess.run([PROGRAM, "prepare", "--input", "text.txt", "--output", "data", "--tokenizer", "byte"],
                       check=True, capture_output=True, cwd=cls.folder)

    def train(self, ranks, *more, order=None, nodes=None, status=0, environment=()):
        """Standard output and errors. `nodes` names the node of each rank, as Slurm would."""
        if order is not None:
            (self.folder / ORDER).write_text("\n".join(map(str, order)))
            more += ("--grid.order", ORDER)
        words = [*TRAIN[1:], *more]
        last = dict(zip(words[::2], words[1::2]))  # a flag may be given once only
        flags = [TRAIN[0], *(word for pair in last.items() for word in pair)]
        return self.on_ranks(ranks, flags, nodes, status, environment)

    def on_ranks(self, ranks, flags, nodes=None, status=0, environment=(), text=None):
        command = [MPIEXEC]
        for rank in range(ranks if nodes else 1):
            where = ["-env", "SLURMD_NODENAME", nodes[rank], "-env", "SLURM_TOPOLOGY_ADDR", ADDRESS[nodes[rank]],
                     "-env", "SLURM_TOPOLOGY_ADDR_PATTERN", "switch.switch.node"] if nodes else []
            command += [":"] * (rank > 0) + ["-n", str(1 if nodes else ranks), *where, str(PROGRAM), *flags]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, errors="replace",
                              timeout=120, input=text, env={**os.environ, "OMP_NUM_THREADS": "1", "TRIREME_NETWORK": "",
                                                            "XDG_CACHE_HOME": str(self.folder / "cache"), **dict(environment)})
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def checkpoint(self, step):
        return self.folder / RUN / f"checkpoints/step-{step:08d}.h5"

    def result(self, *arguments, again=False, keep=None, steps=(2, 4), **options):
        """What a run prints. Compares its checkpoints with those that an earlier call kept, or keeps them. With
        `again`, the run goes on."""
        if not again:
            shutil.rmtree(self.folder / RUN, ignore_errors=True)
        said = self.train(*arguments, **options)
        if keep:
            shutil.rmtree(self.folder / "kept", ignore_errors=True)
            shutil.copytree(self.folder / RUN / "checkpoints", self.folder / "kept")
        else:
            for step in steps:
                kept = self.folder / "kept" / self.checkpoint(step).name
                differ = subprocess.run([DIFFERENCE, "--bits", kept, self.checkpoint(step)], check=True,
                                        capture_output=True, text=True)
                self.assertEqual(differ.stdout, "", said)
        return said

    def places(self):
        events = [json.loads(line) for line in (self.folder / RUN / "events.jsonl").read_text().splitlines()]
        return [event["places"] for event in events if event["event"] == "start"][-1]

    def picture(self):
        """The titles of the report's picture of the network."""
        page = xml.etree.ElementTree.parse(self.folder / RUN / "report.html")
        drawn, = (svg for svg in page.iter(SVG + "svg") if svg.get("aria-label") == "Ranks and links")
        return [title.text for title in drawn.iter(SVG + "title")]

    def test_what_is_odd_in_the_description_is_told(self):
        # bad input: `train`: the description of the network is odd (`comm.network auto`) | comm.network: the address
        # '...' does not fit its pattern '...'; ..., at most five lines; event `network` | 0
        shutil.rmtree(self.folder / RUN, ignore_errors=True)
        said = self.train(2, "--grid.data", "2", nodes=["n1", "odd"])
        line = "the address 'spine.odd' does not fit its pattern 'switch.switch.node'"
        self.assertEqual(said.count("trireme: comm.network: " + line + "\n"), 1, said)
        events = [json.loads(text) for text in (self.folder / RUN / "events.jsonl").read_text().splitlines()]
        told, = (event["detail"] for event in events if event["event"] == "network")
        self.assertIn(line, told)

    def test_every_order_gives_the_same_bits(self):
        for grid, order in (((1, 1, 1), [0]), ((2, 1, 1), [1, 0]), ((2, 1, 2), [3, 0, 2, 1]),
                            ((1, 2, 2), [2, 3, 1, 0]), ((3, 2, 1), [4, 1, 5, 3, 0, 2]),
                            ((2, 2, 2), [5, 2, 7, 0, 3, 6, 1, 4])):
            with self.subTest(grid=grid):
                ranks = len(order)
                shape = [word for name, size in zip(("data", "pipeline", "tensor"), grid)
                         for word in ("--grid." + name, str(size))]
                said = self.result(ranks, *shape, order=range(ranks), keep=True)
                self.assertNotIn("rank order", said)
                said = self.result(ranks, *shape, order=order)
                self.assertEqual(said.count("rank order of order; places of the grid on each node: "), ranks > 1, said)
                if ranks not in (4, 6):
                    continue
                # A requeue puts the ranks elsewhere once more.
                self.checkpoint(4).unlink()
                said = self.result(ranks, *shape, order=[order[-1], *order[:-1]], again=True)
                self.assertIn("going on from", said)
                self.assertNotIn("agree to rounding", said)

    def test_auto_follows_the_network(self):
        grid = ("--grid.data", "2", "--grid.tensor", "2")
        said = self.result(4, *grid, keep=True)
        self.assertNotIn("rank order", said)
        # One leaf; a launcher that deals ranks out would send the tensor ranks' sums from node to node.
        said = self.result(4, *grid, nodes=["n1", "n3", "n1", "n3"])
        self.assertRegex(said, r"rank order: by the model the busiest link has \d+ % of the load that grid.order "
                               r"rank gives it; places of the grid on each node: n1: 0-1, n3: 2-3\n")
        self.assertEqual(self.places(), "n1: 0-1, n3: 2-3")
        # The report has a picture of the ranks on their hosts, with what a step sends over their cables.
        titles = self.picture()
        self.assertIn("place 3: data 1", titles)
        self.assertEqual({title.split(";")[0] for title in titles if ": 1 cable" in title},
                         {f"{node}: 1 cable, 100 Gbit/s each way, from Slurm and assumption" for node in ("n1", "n3")})
        self.assertFalse(any("leaf2" in title for title in titles), titles)
        # A requeue to two leaves, where the launcher's order is as good as any.
        self.checkpoint(4).unlink()
        said = self.result(4, *grid, nodes=["n2", "n2", "n1", "n1"], again=True)
        self.assertIn("going on from", said)
        self.assertNotIn("rank order", said)
        self.assertEqual(self.places(), "n2: 0-1, n1: 2-3")
        titles = self.picture()
        self.assertRegex("\n".join(titles), r"spine - leaf2: 1 cable, 100 Gbit/s each way, from Slurm and assumption; "
                                            r"[\d.]+ (KiB|B) a step, ")
        # It goes on on a single node, of which there is no picture; that of the start before is gone.
        self.checkpoint(4).unlink()
        self.result(4, *grid, nodes=["n1"] * 4, again=True)
        self.assertFalse((self.folder / RUN / "fabric.json").exists())
        self.assertNotIn("Ranks and links", (self.folder / RUN / "report.html").read_text())
        # It goes on on nodes that the launcher deals out over the leaves, of which two share one.
        self.checkpoint(4).unlink()
        said = self.train(4, "--grid.data", "4", nodes=["n1", "n2", "n3", "n2"])
        self.assertIn("rank order: ", said)
        self.assertEqual(self.places(), "n1: 0, n3: 1, n2: 2-3")

    def test_inference_follows_the_network(self):
        shutil.rmtree(self.folder / RUN, ignore_errors=True)
        self.train(4, "--grid.data", "4")
        grid = ["--grid.data", "2", "--grid.tensor", "2", "--threads", "1"]
        evaluate = ["eval", "--checkpoint", RUN, "--data", "data/train.h5", *grid]
        generate = ["generate", "--checkpoint", RUN, "--tokens", "8", *grid]

        def table(said):
            return [line for line in said.splitlines() if line.startswith(("loss", "perplexity"))]

        def texts(said):
            return said[:said.index("trireme: ")]

        for command, result in ((evaluate, table), (generate, texts)):
            prompts = {"text": "rowing\nsails\n" if command is generate else None}
            usual = self.on_ranks(4, command, **prompts)
            self.assertNotIn("rank order", usual)
            self.assertTrue(result(usual))
            # In the second case rank 0 is of the second replica.
            for dealt in (["n1", "n3", "n1", "n3"], ["n3", "n1", "n3", "n1"]):
                said = self.on_ranks(4, command, nodes=dealt, **prompts)
                self.assertRegex(said, r"rank order: by the model the busiest link has \d+ % of the load that "
                                       r"grid.order rank gives it; places of the grid on each node: n1: 0-1, n3: 2-3\n")
                self.assertEqual(result(said), result(usual))
            said = self.on_ranks(4, [*command, "--grid.order", "rank"], nodes=dealt, **prompts)
            self.assertNotIn("rank order", said)
            self.assertEqual(result(said), result(usual))
        # bad input: `eval`, `generate`, `predict`: `--grid.order` names a file that is not there | grid.order
        # ...: cannot be read: No such file or directory | 2
        said = self.on_ranks(4, [*evaluate, "--grid.order", "nothing"], status=2)
        self.assertEqual(said.count("nothing"), 1, said)
        # bad input: `eval`, `generate`, `predict`: `--comm.network` names a file that is not there | the description
        # of the network ...: cannot be read: No such file or directory | 2
        said = self.on_ranks(4, [*evaluate, "--comm.network", "nothing"], status=2)
        self.assertEqual(said.count("nothing"), 1, said)

    def forced(self, grid, combinations, shuffled, one_leaf, two_leaves):
        """Checkpoints of every combination in every placement, in the launcher's order and shuffled, on nodes of one
        leaf and of two, before and after a requeue, are those of the default algorithms on one node. A requeue
        changes both the order and the leaves, so one for each combination is a pairwise cover."""
        ranks = len(shuffled)
        in_order = list(range(ranks))
        steps = ("--run.steps", "2", "--checkpoint.every", "1")
        self.result(ranks, *grid, *steps, keep=True)
        requeues = [((in_order, one_leaf), (shuffled, two_leaves)), ((shuffled, one_leaf), (in_order, two_leaves))]
        requeues += [(after, before) for before, after in requeues]
        for i, algorithms in enumerate(combinations):
            for before, after in requeues if WHOLE_PRODUCT else [requeues[i % len(requeues)]]:
                with self.subTest(algorithms=algorithms, before=before, after=after):
                    for order, nodes in before, after:
                        again = order is after[0]
                        said = self.result(ranks, *grid, *steps, "--comm.algorithms", algorithms, order=order, nodes=nodes,
                                           steps=(2,), again=again)
                        self.assertIn(f"and {algorithms}; ", said)
                        self.assertEqual("going on from" in said, again, said)
                        self.assertNotIn("agree to rounding", said)
                        if not again:
                            self.checkpoint(2).unlink()

    def test_every_algorithm_gives_the_same_bits(self):
        # Six replicas: not a power of two. The leaves of three nodes hold parts that are no subtrees of the sums.
        self.forced(("--grid.data", "6"), [f"all_reduce={name}" for name in (
            "direct", "pairwise", "stepwise", "bruck", "doubling", "halving", "binomial", "tiered")],
                    [4, 1, 5, 3, 0, 2], ["n1", "n1", "n1", "n3", "n3", "n3"], ["n1", "n2", "n3", "n2", "n1", "n2"])

    def test_every_algorithm_of_tensor_ranks_gives_the_same_bits(self):
        self.forced(("--grid.tensor", "4", "--grid.sequence_parallel", "true"),
                    [f"reduce_scatter={scatter},all_gather={gather},all_reduce={reduce},broadcast={broadcast}"
                     for scatter, gather, reduce, broadcast in (
                         ("pairwise", "pairwise", "tiered", "binomial"), ("halving", "bruck", "binomial", "chain"),
                         ("tiered", "halving", "bruck", "tiered"), ("stepwise", "stepwise", "halving", "binomial"),
                         ("pairwise", "ring", "direct", "chain"), ("halving", "tiered", "doubling", "tiered"))],
                    [2, 3, 1, 0], ["n1", "n1", "n3", "n3"], ["n1", "n2", "n3", "n2"])

    def test_tuning_changes_no_bit(self):
        # Each size is called four times a step at least: that is enough for all that is tried.
        tuned = ("--grid.data", "3", "--grid.tensor", "2", "--comm.tune", "true", "--run.steps", "24",
                 "--checkpoint.every", "8")
        steps = (8, 16, 24)
        self.result(6, *tuned, "--comm.tune", "false", keep=True)
        table = json.loads((self.folder / RUN / "communication.json").read_text())
        self.assertEqual(table["tuned"], [])
        for where in ({}, {"order": [4, 1, 5, 3, 0, 2], "nodes": ["n1", "n2", "n3", "n2", "n1", "n2"]}):
            said = self.result(6, *tuned, steps=steps, **where)
            self.assertIn("comm.tune: data: all_reduce of ", said)
            self.assertIn("comm.tune: tensor: all_reduce of ", said)
            self.assertNotRegex(said, r"[0-9]e[+][0-9]")  # "2.9 ms", not "2.92e+03 us"
            table = json.loads((self.folder / RUN / "communication.json").read_text())
            self.assertEqual({row["communicator"] for row in table["tuned"]} & {"data", "tensor"}, {"data", "tensor"})
            for row in table["tuned"]:
                tried = {one["algorithm"]: one["measured_s"] for one in row["tried"]}
                self.assertGreaterEqual(len(tried), 2, row)
                self.assertGreater(min(tried.values()), 0, row)
                self.assertLessEqual(tried[row["algorithm"]], tried[row["planned"]], row)
            changed = [row for row in table["tuned"] if row["algorithm"] != row["planned"]]
            tables = {one["name"]: one["table"] for one in table["communicators"]}
            for row in changed:
                self.assertIn(row["algorithm"], tables[row["communicator"]])
            self.assertIn("What comm.tune has measured", (self.folder / RUN / "report.html").read_text())
            self.assertIn('"event": "tuned"', (self.folder / RUN / "events.jsonl").read_text().replace('":"', '": "'))
        # A start that follows tunes anew and still has the same bits.
        self.checkpoint(24).unlink()
        said = self.result(6, *tuned, steps=steps, again=True)
        self.assertIn("going on from", said)
        self.assertNotIn("agree to rounding", said)

    def test_tuning_of_what_a_stage_sums_changes_no_bit(self):
        # A tied matrix is on both stages, and each key and value head on two tensor ranks.
        tuned = ("--grid.pipeline", "2", "--grid.tensor", "2", "--model.kv_heads", "1", "--run.steps", "24",
                 "--checkpoint.every", "24")
        self.result(4, *tuned, keep=True)
        self.result(4, *tuned, "--comm.tune", "true", steps=(24,))
        table = json.loads((self.folder / RUN / "communication.json").read_text())
        self.assertLessEqual({"tied", "kv_copies"}, {row["communicator"] for row in table["tuned"]})
        self.assertLessEqual({"tied", "kv_copies"}, {one["name"] for one in table["communicators"]})

    def test_tuning_of_rounded_sums_changes_no_bit(self):
        rounded = ("--grid.data", "4", "--comm.reduce", "bf16", "--run.steps", "24", "--checkpoint.every", "24")
        self.result(4, *rounded, keep=True)
        self.result(4, *rounded, "--comm.tune", "true", steps=(24,))

    def test_tuning_in_any_order_comes_before_the_steps(self):
        shutil.rmtree(self.folder / RUN, ignore_errors=True)
        said = self.train(4, "--grid.data", "2", "--grid.tensor", "2", "--comm.order", "any", "--comm.tune", "true")
        self.assertRegex(said, r"network +the default, and what was measured at the start\n")
        self.assertLess(said.index("comm.tune: data: all_reduce of 4 KiB by "), said.index("step 1/4"))
        table = json.loads((self.folder / RUN / "communication.json").read_text())
        first = table["tuned"][0]
        self.assertEqual((first["communicator"], first["collective"], first["bytes"]), ("data", "all_reduce", 4096))
        # MPI's own choice is among those that are tried, each once.
        for row in table["tuned"]:
            tried = [one["algorithm"] for one in row["tried"]]
            self.assertEqual(len(tried), len(set(tried)), row)
            self.assertIn("library", tried)
            self.assertGreater(min(one["measured_s"] for one in row["tried"]), 0, row)
        # What was chosen is in the checkpoint.
        inspected = subprocess.run([PROGRAM, "checkpoint", "inspect", RUN], check=True, capture_output=True, text=True,
                                   cwd=self.folder).stdout
        tables = {one["name"]: one["table"] for one in table["communicators"]}
        self.assertRegex(inspected, r"(?m)^network +none$")
        for name in ("data", "tensor"):
            self.assertRegex(inspected, rf"(?m)^algorithms_{name} +{re.escape(tables[name])}$")
        # Another choice is told.
        said = self.train(4, "--grid.data", "2", "--grid.tensor", "2", "--comm.order", "any", "--run.steps", "6",
                          "--comm.algorithms", "all_reduce=binomial")
        self.assertRegex(said, r"results would otherwise agree to rounding, not to the bit: comm.algorithms was auto, is "
                               r"all_reduce=binomial; algorithms_data differ; ")

    def test_a_run_that_told_mpi_its_algorithm_goes_on(self):
        shutil.rmtree(self.folder / RUN, ignore_errors=True)
        self.train(2, "--grid.data", "2", "--comm.order", "any", "--comm.algorithms", "all_reduce=library")
        config = self.folder / RUN / "config.ini"
        config.write_text(config.read_text().replace("all_reduce=library\n", "all_reduce=library-doubling\n"))
        said = self.on_ranks(2, ["train", "--config", f"{RUN}/config.ini", "--run.steps", "6"])
        self.assertEqual(said.count(": comm.algorithms = all_reduce=library-doubling: MPI chooses its algorithm itself now, so "
                                    "all_reduce=library takes its place\n"), 1)
        self.assertIn("step 6/6", said)
        said = self.train(2, "--grid.data", "2", "--comm.order", "any", "--comm.algorithms", "all_reduce=library-ring", status=2)
        self.assertIn("comm.algorithms all_reduce=library-ring: no such algorithm of all_reduce, there are direct, ", said)

    def test_replicas_of_a_node_share_a_copy(self):
        rates = self.folder / "two_nodes.json"
        rates.write_text(json.dumps(network_rates(["n1", "n3"])))
        sharded = ("--grid.data", "4", "--shard.stage", "3", "--comm.network", str(rates))
        said = self.result(4, *sharded[:-2], keep=True)
        self.assertRegex(said, r"shards +shard.stage 3: each rank holds 1/4 of weights, [a-z ,]+; a step ")
        said = self.result(4, *sharded, nodes=["n1", "n3", "n1", "n3"])
        self.assertRegex(said, r"shards +shard.stage 3: each rank holds 1/2 of weights, [a-z ,]+"
                               r"optimizer state \(shard.group by the network\); a step ")
        self.assertEqual(self.places(), "n1: 0-1, n3: 2-3")
        # What is given stays.
        said = self.result(4, *sharded, "--shard.group", "4", nodes=["n1", "n3", "n1", "n3"])
        self.assertRegex(said, r"shards +shard.stage 3: each rank holds 1/4 of ")

    def row_of_network(self, said):
        """What the start-up table says of the network; it names the command that measures what is assumed."""
        found = re.search(r"(?m)^network +(.*?)(; trireme topo probe measures them)?$", said)
        if found:
            self.assertEqual(found[2] is None, "measured 20" in found[1], said)
        return found and found[1]

    def network(self, nodes, environment):
        """What a run says of the network by itself, and its remarks."""
        shutil.rmtree(self.folder / RUN, ignore_errors=True)
        said = self.train(2, "--grid.data", "2", "--run.steps", "1", nodes=nodes, environment=environment)
        return self.row_of_network(said), [line for line in said.splitlines() if "comm.network: " in line]

    def test_auto_takes_the_rates_that_a_probe_has_left_in_the_usual_place(self):
        here = {"SLURM_CLUSTER_NAME": "little"}
        rates = self.folder / "cache/trireme/network-little.json"
        said = self.on_ranks(2, ["topo", "probe", "--collectives", "false"], nodes=["n1", "n3"], environment=here)
        self.assertIn(f"stored in {rates}\n", said)
        source, remarks = self.network(["n1", "n3"], here)
        self.assertRegex(source, rf"^{re.escape(str(rates))}, measured 20\d\d-")
        self.assertEqual(remarks, [])
        table = json.loads((self.folder / RUN / "communication.json").read_text())
        self.assertEqual(table["source"], source)
        # Rates of other nodes are not used, and neither are those of another cluster.
        source, remarks = self.network(["n1", "n2"], here)
        self.assertEqual(remarks, [f"trireme: comm.network: {rates}: measured without n2; not used, run trireme topo probe "
                                   "on these nodes"])
        self.assertEqual(source, "the cluster's description of its network, usual speeds assumed")
        other = {"SLURM_CLUSTER_NAME": "other"}
        self.assertEqual(self.network(["n1", "n3"], other), ("the cluster's description of its network, usual speeds assumed", []))
        # There is neither a folder for caches nor a name of the cluster.
        home = self.folder / "home/.cache/trireme/network-local.json"
        home.parent.mkdir(parents=True)
        rates.rename(home)
        source, remarks = self.network(["n1", "n3"], {"XDG_CACHE_HOME": "", "HOME": str(self.folder / "home"),
                                                      "SLURM_CLUSTER_NAME": ""})
        self.assertRegex(source, rf"^{re.escape(str(home))}, measured 20\d\d-")
        self.assertEqual(remarks, [])

    def test_auto_takes_the_rates_that_the_environment_names(self):
        def network(rates, nodes=("n1", "n3")):
            return self.network(nodes, {"TRIREME_NETWORK": str(rates)})
        rates = self.folder / "cluster.json"
        rates.write_text(json.dumps(network_rates(["n1", "n3"])))
        source, remarks = network(rates)
        self.assertRegex(source, rf"^{re.escape(str(rates))}, measured 2026-")
        self.assertEqual(remarks, [])
        self.assertEqual(network(rates, ("n1", "n1")), (None, []))  # one node
        source, remarks = network(rates, ("n1", "n2"))
        self.assertEqual(remarks, [f"trireme: comm.network: {rates}: measured without n2; not used, run trireme topo "
                                   "probe on these nodes"])
        self.assertIn("the cluster's description", source)
        # A file that is named must be there; the usual one need not.
        # bad input: `train`: `TRIREME_NETWORK` names a file that cannot be read, or is damaged | comm.network: ...FILE:
        # cannot be read: ...; not used | 0
        source, remarks = network(self.folder / "none.json")
        self.assertEqual(len(remarks), 1)
        self.assertRegex(remarks[0], r"^trireme: comm.network: .*none.json: cannot be read: No such file or directory; "
                                     r"not used$")
        self.assertIn("the cluster's description", source)
        rates.write_text("{}")
        self.assertRegex(network(rates)[1][0], r"cluster.json: not a file of network rates: .*; not used$")

    def described(self, files, nodes=("n1", "n2", "n3", "n4"), environment=(), keep=False):
        """What the start-up table says of the network, and the remarks. Checkpoints are those of an earlier run."""
        said = self.result(len(nodes), "--grid.data", str(len(nodes)), "--run.steps", "2", "--comm.network", files,
                           nodes=nodes, steps=(2,), keep=keep, environment=environment)
        events = [json.loads(line) for line in (self.folder / RUN / "events.jsonl").read_text().splitlines()]
        start = next(event for event in events if event["event"] == "start")
        table = re.search(r"; data: (all_reduce .*)", start["detail"])
        remarks = re.findall(r"(?m)^trireme: comm.network: (.*)$", said)
        return self.row_of_network(said), table and table[1], remarks

    def test_a_run_follows_a_dump(self):
        self.assertEqual(self.described("none", keep=True), (None, None, []))
        # Slurm's addresses put n1 and n3 together, and the dump n1 and n4.
        self.assertEqual(self.described("auto")[0], "the cluster's description of its network, usual speeds assumed")
        self.assertEqual(self.places(), "n1: 0, n3: 1, n2: 2, n4: 3")
        dump, tree = self.folder / "fabric.txt", self.folder / "tree.conf"
        dump.write_text(fabric_dump([["n1", "n4"], ["n2.site.org", "n3"]]))
        wide = self.described("fabric.txt")
        self.assertEqual((wide[0], wide[2]), ("fabric.txt, speeds of its cables", []))
        self.assertEqual(self.places(), "n1: 0, n4: 1, n2: 2, n3: 3")
        titles = "\n".join(self.picture())
        self.assertRegex(titles, r"n4: 1 cable, 200 Gbit/s each way, from ibnetdiscover")
        # The rates of its cables decide which algorithms are chosen.
        dump.write_text(fabric_dump([["n1", "n4"], ["n2", "n3"]], uplink="1xSDR"))
        narrow = self.described("fabric.txt")
        self.assertEqual(narrow[0], wide[0])
        self.assertNotEqual(narrow[1], wide[1])
        # Slurm's description next to it counts for places.
        tree.write_text("SwitchName=a Nodes=n[1,3]\nSwitchName=b Nodes=n[2,4]\nSwitchName=top Switches=a,b\n")
        self.assertEqual(self.described("tree.conf")[::2], ("tree.conf, usual speeds assumed", []))
        self.assertEqual(self.places(), "n1: 0, n3: 1, n2: 2, n4: 3")
        dump.write_text(fabric_dump([["n1", "n3", "n4"], ["n2"]]))
        source, _, remarks = self.described("tree.conf,fabric.txt")
        self.assertEqual((source, len(remarks)), ("fabric.txt,tree.conf, speeds of its cables", 1), remarks)
        self.assertRegex(remarks[0], r"^host 'n4': Slurm puts it below 'b', ibnetdiscover below 'leaf1 \(\S+'; Slurm counts$")
        self.assertEqual(self.places(), "n1: 0, n3: 1, n2: 2, n4: 3")
        # A module may name the dump of its cluster.
        dump.write_text(fabric_dump([["n1", "n3"], ["n2", "n4"]]))
        self.assertEqual(self.described("auto", environment={"TRIREME_FABRIC": "fabric.txt"})[::2],
                         ("the cluster's description of its network, speeds of its cables", []))
        # Slurm tells of its nodes, so a dump of another cluster is left out.
        dump.write_text(fabric_dump([["a1", "a2"], ["a3"]]))
        source, _, remarks = self.described("auto", environment={"TRIREME_FABRIC": "fabric.txt"})
        self.assertEqual((source, len(remarks)), ("the cluster's description of its network, usual speeds assumed", 1), remarks)
        self.assertRegex(remarks[0], "^ibnetdiscover describes none of the hosts of Slurm, such as 'n1': it is of another "
                                     "cluster and is left out$")

    def test_a_run_goes_on_with_an_odd_description(self):
        nodes = ("n1", "n2", "n3")
        self.described("none", nodes, keep=True)
        dump, tree = self.folder / "fabric.txt", self.folder / "tree.conf"
        good = fabric_dump([["n1", "n3"], ["n2"]])
        good_source = "fabric.txt, speeds of its cables"

        def odd(text, remark, source=good_source, file=dump, files="fabric.txt"):
            file.write_text(text)
            found, _, remarks = self.described(files, nodes)
            self.assertEqual(found, source)
            self.assertEqual(len(remarks), 1, remarks)
            self.assertRegex(remarks[0], f"^{remark}$")
        # bad input: `train`: `comm.network` names a dump of another cluster | comm.network: FILE: has none of the job's
        # nodes, such as n1; not used | 0
        odd(fabric_dump([["a1", "a2"], ["a3"]]), r"fabric.txt: has none of the job's nodes, such as n1; not used", None)
        # bad input: `train`: `comm.network` names a dump without some of the job's nodes | comm.network: FILE: n3 not
        # found there; counted as beyond all other nodes | 0
        odd(fabric_dump([["n1"], ["n2"]]), r"fabric.txt: n3 not found there; counted as beyond all other nodes")
        # bad input: `train`: in a dump that `comm.network` names a GUID is described twice, two ports have one GUID, a
        # rate is unknown | comm.network: FILE, line 31: the GUID ... is described a second time; ...: port 1 of ... has
        # the GUID ..., which is that of port 1 of ...; ...: a rate that is unknown | 0
        odd(good + '\nCa\t1 "H-0000000000bb1010"\t\t# "n1 mlx5_0"\n',
            r"fabric.txt, line \d+: the GUID 0000000000bb1010 is described a second time")
        odd(good.replace("\n[1](bb1021)", "\n[1](bb1011)"),
            r"fabric.txt, line \d+: port 1 of 0000000000bb1020 has the GUID 0000000000bb1011, which is that of port 1 of "
            r"0000000000bb1010")
        odd(good.replace("lid 9 4xHDR", "lid 9 4xZDR", 1), r"fabric.txt, line \d+: a rate that is unknown")
        # bad input: `train`: in Slurm's topology that `comm.network` names a switch is below itself | comm.network: FILE,
        # line 3: switch 'b' is below itself, by way of 'top' | 0
        odd("SwitchName=a Nodes=n[1-3]\nSwitchName=top Switches=a,b\nSwitchName=b Switches=top\n",
            r"tree.conf, line 3: switch 'b' is below itself, by way of 'top'", "tree.conf, usual speeds assumed", tree, "tree.conf")
        # bad input: `train`: `comm.network` names rates that were measured on other nodes, and a description |
        # comm.network: FILE: measured without n[2-3]; not used, run trireme topo probe on these nodes | 0
        dump.write_text(good)
        odd(json.dumps(network_rates(["n1", "n4"])), r"stale.json: measured without n\[2-3\]; not used, run trireme topo "
            r"probe on these nodes", good_source, self.folder / "stale.json", "stale.json,fabric.txt")
        # bad input: `train`: `comm.network` names rates that another number of ranks has measured | (no remark: rates
        # are of nodes; times of collectives among other numbers of ranks are not used) | 0
        (self.folder / "more.json").write_text(json.dumps(network_rates(["n1", "n2", "n3", "n4"])))
        source, _, remarks = self.described("more.json", nodes)
        self.assertRegex(source, r"^more.json, measured 2026-")
        self.assertEqual(remarks, [])
        # bad input: `train`: `comm.network` names a file that describes no network | FILE: describes no network: expected
        # rates that trireme topo probe has stored, a dump of ibnetdiscover, or Slurm's ... | 2
        shutil.rmtree(self.folder / RUN)
        said = self.train(2, "--grid.data", "2", "--comm.network", "text.txt", nodes=["n1", "n2"], status=2)
        self.assertRegex(said, r"\Atrireme: text.txt: describes no network: expected rates that trireme topo probe has "
                               r"stored, a dump of ibnetdiscover, or Slurm's [^\n]*\n\Z")
        self.assertFalse((self.folder / RUN).exists())

    def test_what_the_report_of_ranks_says(self):
        self.result(4, "--grid.data", "2", "--grid.tensor", "2", "--log.stragglers", "0.001", "--log.trace", "3",
                    order=[3, 0, 2, 1], keep=True)
        table = json.loads((self.folder / RUN / "ranks.json").read_text())
        rows = [dict(zip(table["columns"], row)) for row in table["ranks"]]
        self.assertEqual([(row["data"], row["tensor"]) for row in rows], [(0, 1), (1, 1), (1, 0), (0, 0)])
        trace = json.loads((self.folder / RUN / "trace.json").read_text())
        names = {event["args"]["name"].split(" (")[0] for event in trace["traceEvents"]
                 if event["name"] == "process_name"}
        self.assertEqual(names, {"rank 3: data 0, pipeline 0, tensor 0", "rank 0: data 0, pipeline 0, tensor 1",
                                 "rank 2: data 1, pipeline 0, tensor 0", "rank 1: data 1, pipeline 0, tensor 1"})

    def test_bad_orders(self):
        for order, words in (
                # bad input: `train`: `grid.order` names a file that lists too few ranks, or one twice, or what is
                # neither rank nor node | grid.order ...: lists 1 of 2 ranks: each must be listed once; ..., line 2:
                # rank 0 stands in line 1 already; ... | 2
                ([0], "grid.order order: lists 1 of 2 ranks: each must be listed once"),
                ([0, 0], "grid.order order, line 2: rank 0 stands in line 1 already"),
                ([0, 2], "grid.order order, line 2: 2 is not a rank: there are 0 to 1"),
                ([0, "x"], "grid.order order, line 2: 'x' is not a rank"),
                (["n9"], "grid.order order, line 1: 'n9' is neither a rank nor a node of this run, which is on ")):
            with self.subTest(order=order):
                shutil.rmtree(self.folder / RUN, ignore_errors=True)
                said = self.train(2, order=order, status=2)
                self.assertEqual(said.count("trireme: "), 1, said)
                self.assertIn("trireme: " + words, said)
                self.assertFalse((self.folder / RUN).exists())
        # bad input: `train`: a `grid.order` that is no word and no file | grid.order ranks: cannot be read: ... | 2
        said = self.train(2, "--grid.order", "ranks", status=2)
        self.assertIn("grid.order ranks: cannot be read: No such file", said)


if __name__ == "__main__":
    unittest.main()
