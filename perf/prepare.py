#!/usr/bin/env python3
"""Measures `trireme prepare` on one text in every format and codec, on ranks, and by tokenizers of each family.

    perf/prepare.py TRIREME TEXT [--mb 24] [--rounds 3] [--mpiexec mpiexec]

TEXT is cut into documents of 2,000 characters and more at empty lines. Programs take turns; a row is the median of the rounds in MB of text a second.
What is compared: libarchive alone (bsdcat of Debian's libarchive-tools) where a file is packed, pyarrow's read_table for
Parquet, encode_batch of PyPI's `tokenizers` on as many threads for tokenizers. Needs pyarrow and tokenizers:
tests/support/venv.sh FOLDER pyarrow tokenizers makes such an environment. Prints tables.
"""
import argparse
import csv
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import pyarrow
import pyarrow.parquet
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

DOCUMENT = 2000  # characters
CODECS = {"gzip": ".gz", "zstd": ".zst", "xz": ".xz", "bzip2": ".bz2"}


def seconds_of(work):
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def medians(works, rounds):
    """The median seconds of each work; all take turns."""
    took = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            took[name].append(seconds_of(work))
    return {name: statistics.median(all_) for name, all_ in took.items()}


class Measurement:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        text = Path(options.text).read_text(encoding="utf-8", errors="ignore")[:options.mb * 1_000_000]
        self.documents = [""]
        for one in text.split("\n\n"):
            self.documents[-1] += one + "\n\n"
            if len(self.documents[-1]) >= DOCUMENT:
                self.documents.append("")
        self.documents = [one for one in self.documents if one]
        self.bytes = sum(len(one.encode()) for one in self.documents)

    def path(self, name):
        return self.folder / name

    def write_formats(self):
        """The documents in every format; plain text has a separator between them."""
        self.path("text.txt").write_text("\x01".join(self.documents))
        with open(self.path("text.jsonl"), "w") as file:
            for one in self.documents:
                file.write(json.dumps({"text": one, "source": "dictionary"}) + "\n")
        with open(self.path("text.csv"), "w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(("id", "text"))
            rows.writerows(enumerate(self.documents))
        table = pyarrow.table({"text": self.documents})
        for codec in ("snappy", "zstd"):
            pyarrow.parquet.write_table(table, self.path(f"{codec}.parquet"), compression=codec)
        for codec, ending in CODECS.items():
            with open(self.path(f"text.txt{ending}"), "wb") as file:
                subprocess.run([codec, "-c", self.path("text.txt")], stdout=file, check=True)

    def prepare(self, *inputs, tokenizer="byte", threads=1, before=()):
        def work():
            shutil.rmtree(self.path("out"), ignore_errors=True)
            subprocess.run([*before, self.options.trireme, "prepare", *inputs, "--output", self.path("out"), "--tokenizer",
                            tokenizer, "--threads", str(threads), "--document-separator", "\\x01"], check=True,
                           capture_output=True)
        return work

    def speed(self, seconds):
        return self.bytes / seconds * 1e-6

    def trained(self, model, trainer, **parts):
        """A tokenizer of 8,192 tokens."""
        made = tokenizers.Tokenizer(model)
        for name, part in parts.items():
            setattr(made, name, part)
        made.train_from_iterator(self.documents[:4000], trainer)
        return made

    def families(self):
        sizes = {"vocab_size": 8192, "show_progress": False}
        end = {"special_tokens": ["<unk>", "</s>"]}
        bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
        yield "BPE, ByteLevel", self.trained(
            models.BPE(), trainers.BpeTrainer(**sizes, special_tokens=["</s>"],
                                              initial_alphabet=pre_tokenizers.ByteLevel.alphabet()),
            pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=False), decoder=decoders.ByteLevel())
        yield "BPE, Prepend and Replace, byte_fallback", self.trained(
            models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True),
            trainers.BpeTrainer(**sizes, special_tokens=["<unk>", "</s>", *bytes_]),
            normalizer=normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]))
        yield "Unigram, NFKC, Metaspace", self.trained(
            models.Unigram(), trainers.UnigramTrainer(**sizes, **end, unk_token="<unk>"), normalizer=normalizers.NFKC(),
            pre_tokenizer=pre_tokenizers.Metaspace(), decoder=decoders.Metaspace())
        yield "BPE, Digits and Punctuation, ByteLevel", self.trained(
            models.BPE(), trainers.BpeTrainer(**sizes, special_tokens=["</s>"],
                                              initial_alphabet=pre_tokenizers.ByteLevel.alphabet()),
            pre_tokenizer=pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                   pre_tokenizers.Punctuation(),
                                                   pre_tokenizers.ByteLevel(add_prefix_space=False)]),
            decoder=decoders.ByteLevel())

    def show_formats(self):
        self.write_formats()
        names = ["text.txt", "text.jsonl", "text.csv", "snappy.parquet", "zstd.parquet",
                 *(f"text.txt{ending}" for ending in CODECS.values())]
        works = {name: self.prepare(self.path(name)) for name in names}
        with_bpe = {f"{name}, BPE": self.prepare(self.path(name), tokenizer=self.path("bpe.json")) for name in names}
        alone = {f"{name} alone": (lambda path=self.path(name): subprocess.run(["bsdcat", path], stdout=subprocess.DEVNULL,
                                                                               check=True))
                 for name in names if name.startswith("text.txt.")}
        alone.update({f"{name} alone": (lambda path=self.path(name): pyarrow.parquet.read_table(path, use_threads=False))
                      for name in names if name.endswith(".parquet")})
        took = medians({**works, **with_bpe, **alone}, self.options.rounds)
        print(f"{'':<16}{'bytes':>8}{'BPE':>8}{'of text':>9}{'peer alone':>12}")
        for name in names:
            peer = f"{self.speed(took[f'{name} alone']):12.0f}" if f"{name} alone" in took else f"{'-':>12}"
            of_text = took["text.txt, BPE"] / took[f"{name}, BPE"]
            print(f"{name:<16}{self.speed(took[name]):8.0f}{self.speed(took[f'{name}, BPE']):8.1f}{of_text:9.2f}{peer}")

    def show_ranks(self):
        bpe = self.path("bpe.json")
        text = self.path("text.jsonl")
        ranks = [self.options.mpiexec, "-n", "2"]
        took = medians({"1 thread": self.prepare(text, tokenizer=bpe), "2 threads": self.prepare(text, tokenizer=bpe, threads=2),
                        "1 rank under the launcher": self.prepare(text, tokenizer=bpe, before=[self.options.mpiexec, "-n", "1"]),
                        "2 ranks": self.prepare(text, tokenizer=bpe, before=ranks)}, self.options.rounds)
        print("\nJSON Lines, BPE: " + ", ".join(f"{name} {self.speed(one):.1f} MB/s" for name, one in took.items()))

    def show_tokenizers(self):
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        print(f"\n{'':<42}{'prepare':>9}{'tokenizers':>12}{'ratio':>7}")
        for number, (name, made) in enumerate(self.tokenizers):
            path = self.path(f"{number}.json")
            made.save(str(path))
            took = medians({"ours": self.prepare(self.path("text.jsonl"), tokenizer=path),
                            "theirs": lambda made=made: made.encode_batch_fast(self.documents, add_special_tokens=False)},
                           self.options.rounds)
            print(f"{name:<42}{self.speed(took['ours']):9.1f}{self.speed(took['theirs']):12.1f}"
                  f"{took['theirs'] / took['ours']:7.2f}")

    def show(self):
        self.tokenizers = list(self.families())
        self.tokenizers[0][1].save(str(self.path("bpe.json")))
        print(f"{self.bytes * 1e-6:.1f} MB in {len(self.documents)} documents, MB of text a second")
        self.show_formats()
        self.show_ranks()
        self.show_tokenizers()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("trireme")
    parser.add_argument("text")
    parser.add_argument("--mb", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--mpiexec", default="mpiexec")
    options = parser.parse_args()
    options.trireme = str(Path(options.trireme).resolve())
    with tempfile.TemporaryDirectory() as folder:
        Measurement(options, Path(folder)).show()


if __name__ == "__main__":
    main()
