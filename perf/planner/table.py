"""The published rows: published.csv, a line a run. sources.json tells where each table is from and what it lacks."""

import csv
import hashlib
import json
import pathlib

HERE = pathlib.Path(__file__).resolve().parent
WORDS = {"table", "model", "program", "device", "network", "type", "recompute", "attention", "assumed", "options"}
MEASURED = ("seconds", "state_gib", "activation_gib", "activation_percent", "memory_gib")


class Row:
    """A line of published.csv: its columns are attributes; figures that were not published are None."""

    def __init__(self, line):
        for name, text in line.items():
            if name == "options":
                value = frozenset(text.split("+")) - {""}
            elif name in WORDS:
                value = text
            elif name in MEASURED or name in ("calculon_seconds", "peer_percent"):
                value = float(text) if text else None
            else:
                value = int(text)
            setattr(self, name, value)
        self.data = self.gpus // (self.tensor * self.pipeline * self.context)
        layout = {name: text for name, text in line.items() if name not in MEASURED and name not in
                  ("assumed", "calculon_seconds", "peer_percent", "out_of_memory")}
        self.key = json.dumps(layout, sort_keys=True)

    @property
    def specified(self):
        return not self.assumed

    @property
    def fitted_half(self):
        """Half of the rows, by a hash of what they are: the constants are fitted to these."""
        return hashlib.sha256(self.key.encode()).digest()[0] % 2 == 0

    @property
    def matrix_parameters(self):
        """The weights of a layer's matrices."""
        head = self.hidden // self.heads
        attention = 2 * self.hidden * self.hidden + 2 * self.hidden * self.kv_heads * head
        return attention + self.hidden * self.ffn * (2 + self.gated)

    @property
    def layer_parameters(self):
        """With biases and norms: a gated layer has no biases and two norms of one vector, others have both."""
        vectors = 2 * self.hidden if self.gated else 9 * self.hidden + self.ffn
        return self.matrix_parameters + vectors

    @property
    def tied(self):
        return not self.gated

    def layout(self):
        words = [f"{self.gpus} GPUs", f"s{self.sequence}", f"d{self.data}"]
        split = (("t", self.tensor), ("p", self.pipeline), ("c", self.context))
        words += [f"{letter}{value}" for letter, value in split if value > 1]
        words += [f"z{self.shard}"] if self.shard else []
        words += [f"m{self.micro}", f"b{self.batch}"]
        words += [f"v{self.chunks}"] if self.chunks > 1 else []
        words += [self.recompute] if self.recompute != "none" else []
        words += ["sp"] if self.sequence_parallel else []
        return " ".join(words + sorted(self.options))


def read_rows(path=HERE / "published.csv"):
    with open(path, encoding="utf-8", newline="") as file:
        return [Row(line) for line in csv.DictReader(file)]


def read_json(name):
    return json.loads((HERE / name).read_text(encoding="utf-8"))
