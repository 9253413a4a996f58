#!/usr/bin/env python3
"""Tokenizers that come with weights, stay in runs and checkpoints, and leave with exports.

    python3 tokenizer_files_test.py TRIREME MPIEXEC
"""
import array
import base64
import json
import os
import shutil
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/support"))
import safetensors_files as files  # noqa: E402
from cli_testing import ProgramTest  # noqa: E402

RECORDED = ROOT / "tests/unit/io/tokenizers"
WORDS = ["robin", "sails", "mist", "lure", "tern", "wind", "reed", "moss"]


class TokenizerFiles(ProgramTest):
    mpiexec = ""

    def setUp(self):
        super().setUp()
        text = " ".join(WORDS[(i * i + i // 5) % len(WORDS)] for i in range(1500))
        (self.folder / "text.txt").write_text(text)

    def theirs(self, name, tokenizer="llama3", **config):
        """A folder as transformers saves it, with all files of a tokenizer."""
        model = (RECORDED / f"{tokenizer}.json").read_bytes()
        described = json.loads(model)
        vocabulary = len(set(described["model"]["vocab"]) | {one["content"] for one in described["added_tokens"]})
        about, tensors = files.llama(vocabulary=vocabulary + 3, context=32)
        folder = self.folder / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(about))
        files.write(folder / "model.safetensors", tensors)
        brought = {"tokenizer.json": model, "chat_template.jinja": b"{{ bos_token }}\r\n",
                   "tokenizer_config.json": json.dumps(config, indent=3).encode(),
                   "generation_config.json": b'{"do_sample":  true}'}
        for file, content in brought.items():
            (folder / file).write_bytes(content)
        return folder, brought

    def prepare(self, output, *arguments):
        self.expect_done("prepare", "text.txt", "--output", output, "--validation", "tail:1000", *arguments)
        return self.folder / output

    def train(self, run, data, *arguments, steps=2, before=()):
        return self.run_program("train", "--run.folder", run, "--data.train", f"{data}/train.h5", "--data.validation",
                                f"{data}/validation.h5", "--batch.global", 4, "--batch.micro", 2, "--run.threads", 1,
                                "--run.steps", steps, *arguments, before=before)

    def held(self, folder, names):
        return {name: (self.folder / folder / name).read_bytes() for name in names}

    def check_ends(self, folder, brought, begin, end):
        """config.json has the tokens around texts."""
        added = json.loads(brought["tokenizer.json"])["added_tokens"]
        numbers = {one["content"]: one["id"] for one in added}
        config = json.loads((self.folder / folder / "config.json").read_text())
        self.assertEqual((config["bos_token_id"], config["eos_token_id"]), (numbers[begin], numbers[end]))

    def generated(self, run, *arguments):
        done = self.run_program("generate", "--checkpoint", run, "--prompt", "robin", "--tokens", 8, *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_files_that_were_brought_leave_as_they_came(self):
        folder, brought = self.theirs("theirs", eos_token="<|eot_id|>", bos_token="<|begin_of_text|>")
        told = self.expect_done("import", "--from", folder, "--output", "run", before=[self.mpiexec, "-n", 3])
        self.assertIn("byte-level BPE", told)
        self.assertEqual(self.held("run/tokenizer", brought), brought)
        shutil.rmtree(folder)
        # No data are needed.
        text = self.generated("run")
        self.assertEqual(self.generated("run", "--tokenizer", "run/tokenizer"), text)
        self.expect_done("export", "--checkpoint", "run", "--output", "out", before=[self.mpiexec, "-n", 2])
        self.assertEqual(self.held("out", brought), brought)
        self.check_ends("out", brought, "<|begin_of_text|>", "<|eot_id|>")
        # They stay with the run that goes on.
        data = self.prepare("data", "--tokenizer", "run/tokenizer")
        inspected = self.expect_done("data", "inspect", data / "train.h5")
        self.assertIn("begin of text", inspected)
        config = ["--config", "run/config.ini"]
        done = self.train("run", "data", *config)
        self.assertEqual(done.returncode, 0, done.stderr)
        shutil.rmtree(data)
        self.generated("run")
        self.expect_done("export", "--checkpoint", "run", "--output", "later")
        self.assertEqual(self.held("later", brought), brought)
        self.assertEqual(self.expect_done("checkpoint", "verify", "run").count("good"), 2)

    def test_exports_say_the_tokens_of_the_texts_learned(self):
        begin, end, other_end = "<|begin_of_text|>", "<|eot_id|>", "<|end_of_text|>"
        folder, brought = self.theirs("theirs", eos_token={"content": end, "special": True}, bos_token=begin, more=[1])
        numbers = {one["content"]: one["id"] for one in json.loads(brought["tokenizer.json"])["added_tokens"]}
        brought["special_tokens_map.json"] = json.dumps({"eos_token": end, "pad_token": end}).encode()
        brought["generation_config.json"] = json.dumps({"eos_token_id": [numbers[end], 3], "bos_token_id": numbers[begin],
                                                        "top_p": 0.9}).encode()
        for name, content in brought.items():
            (folder / name).write_bytes(content)
        self.expect_done("import", "--from", folder, "--output", "run")
        self.prepare("data", "--tokenizer", folder, "--begin-of-text", "none", "--end-of-text", other_end)
        done = self.train("other", "data", "--config", "run/config.ini", "--run.start_from", "run")
        self.assertEqual(done.returncode, 0, done.stderr)
        told = f"the model's texts begin with no token and end with {other_end}, but the files that came with it say that " \
               f"they begin with {begin} and end with {end}; changed in that: tokenizer_config.json, " \
               "special_tokens_map.json, generation_config.json, tokenizer.json"
        self.assertIn(told, done.stdout)
        done = self.run_program("export", "--checkpoint", "other", "--output", "out")
        self.assertEqual((done.returncode, done.stderr), (0, f"trireme: {told}\n"))
        self.assertEqual(self.held("out", brought), self.held("other/tokenizer", brought))
        self.assertEqual(self.held("out", ["chat_template.jinja"]), {"chat_template.jinja": b"{{ bos_token }}\r\n"})
        read = {name: json.loads((self.folder / "out" / name).read_text()) for name in brought if name.endswith(".json")}
        self.assertEqual(read["tokenizer_config.json"], {"eos_token": other_end, "bos_token": begin, "more": [1]})
        self.assertEqual(read["special_tokens_map.json"], {"eos_token": other_end, "pad_token": end})
        self.assertEqual(read["generation_config.json"], {"eos_token_id": [numbers[other_end], numbers[end], 3],
                                                          "bos_token_id": None, "top_p": 0.9})
        template = read["tokenizer.json"]["post_processor"]["processors"][1]
        self.assertEqual([[*one] for one in template["single"]], [["Sequence"]])
        untouched = json.loads(brought["tokenizer.json"])
        untouched["post_processor"] = read["tokenizer.json"]["post_processor"]
        self.assertEqual(read["tokenizer.json"], untouched)
        # What prepare makes of them is what the model has learned; a run folder is such a folder, too.
        for tokenizer in ("out", "other"):
            self.prepare("again", "--tokenizer", tokenizer)
            self.assertEqual(self.run_program("eval", "--checkpoint", "other", "--data", "again/validation.h5").stderr, "")
        # And back again: this run's files are those that came.
        self.prepare("back", "--tokenizer", folder)
        done = self.train("back-run", "back", "--config", "run/config.ini", "--run.start_from", "other")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.held("back-run/tokenizer", brought), brought)

    def test_files_that_cannot_be_taken_are_left_out(self):
        folder, brought = self.theirs("theirs", eos_token="<|eot_id|>")
        (folder / "vocab.json").mkdir()
        (folder / "merges.txt").symlink_to("nowhere")
        os.mkfifo(folder / "vocab.txt")
        with open(folder / "added_tokens.json", "wb") as file:
            file.truncate((64 << 20) + 1)
        (folder / "special_tokens_map.json").write_text("version https://git-lfs.github.com/spec/v1\n")
        done = self.run_program("import", "--from", folder, "--output", "run")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertRegex(done.stderr, "files of the tokenizer that are left out: .*special_tokens_map.json: a pointer of Git LFS "
                         ".*added_tokens.json: .* longer than 64 MiB; .*vocab.json: a folder, not a file; .*merges.txt: it is "
                         "a link, .*vocab.txt: a pipe, not a file\n$")
        self.assertIn("byte-level BPE", done.stdout)
        self.assertEqual(sorted(path.name for path in (self.folder / "run/tokenizer").iterdir()), sorted(brought))
        # The tokenizer itself, and what says how it is used.
        for name in ("tokenizer.json", "tokenizer_config.json"):
            (folder / name).write_text("version https://git-lfs.github.com/spec/v1\n")
            done = self.run_program("import", "--from", folder, "--output", f"without-{name}")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stdout, f"tokenizer +none is known: .*{name}: a pointer of Git LFS")
            (folder / name).write_bytes(brought[name])

    def test_what_a_user_changed_in_the_run_folder_stays(self):
        folder, brought = self.theirs("theirs", eos_token="<|eot_id|>")
        self.expect_done("import", "--from", folder, "--output", "run")
        data = self.prepare("data", "--tokenizer", "run")
        own = self.folder / "run/tokenizer"
        (own / "chat_template.jinja").write_text("mine")
        (own / "README.md").write_text("mine too")
        (own / "generation_config.json").unlink()
        for steps in (1, 1, 2):
            done = self.train("run", data, "--config", "run/config.ini", steps=steps)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("run/tokenizer: not the checkpoint's chat_template.jinja, which generate, predict and export take; "
                          "it stays as it is\n", done.stdout)
            self.assertEqual(self.held("run/tokenizer", [*brought, "README.md"]),
                             {**brought, "chat_template.jinja": b"mine", "README.md": b"mine too"})
        self.expect_done("export", "--checkpoint", "run", "--output", "out")
        self.assertEqual(self.held("out", brought), brought)
        # Files of an earlier checkpoint are replaced.
        self.prepare("begun", "--tokenizer", folder, "--begin-of-text", "none")
        done = self.train("run", "begun", "--config", "run/config.ini", "--run.accept_changes", "true", steps=3)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.run_program("export", "--checkpoint", "run", "--output", "later").returncode, 0)
        names = ["tokenizer.json", "tokenizer_config.json"]
        self.assertNotEqual(self.held("later", names), self.held("out", names))
        self.assertEqual(self.held("run/tokenizer", names), self.held("later", names))
        self.assertEqual(self.held("run/tokenizer", ["chat_template.jinja"]), {"chat_template.jinja": b"mine"})

    def test_numbers_without_a_tokenizer_drop_the_one_that_came(self):
        folder, _ = self.theirs("theirs", eos_token="<|eot_id|>")
        self.expect_done("import", "--from", folder, "--output", "run")
        tokens = array.array("H", [i * i % 499 for i in range(2000)])
        (self.folder / "tokens.bin").write_bytes(tokens.tobytes())
        self.expect_done("prepare", "tokens.bin", "--tokens", "true", "--vocabulary", 502, "--end-of-text", 1, "--output",
                         "numbers", "--validation", "tail:200")
        done = self.train("run", "numbers", "--config", "run/config.ini")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("the files of the tokenizer that came with the weights are not kept: data.train has numbers, and nothing "
                      "says of which tokenizer", done.stdout)
        # With their tokenizer they stay; its begin of text is before no document.
        done = self.run_program("prepare", "tokens.bin", "--tokens", "true", "--tokenizer", folder, "--output", "named",
                                "--validation", "tail:200")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r"\d+ of \d+ documents do not begin with the begin of text \d+ <\|begin_of_text\|>: ")
        done = self.run_program("prepare", "tokens.bin", "--tokens", "true", "--tokenizer", folder, "--output", "named",
                                "--validation", "tail:200", "--begin-of-text", "none")
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_messages_advise_what_a_command_has(self):
        folder, brought = self.theirs("theirs")
        model = json.loads(brought["tokenizer.json"])
        model["added_tokens"].append({"id": 499, "content": "</s>", "special": True})
        (folder / "tokenizer.json").write_text(json.dumps(model))
        self.assertIn("eos_token of a tokenizer_config.json beside it names one", told := self.expect_done(
            "import", "--from", folder, "--output", "run"))
        self.assertNotIn("--end-of-text", told)
        # bad input: `generate --tokenizer`: a tokenizer.json that does not say which token ends or begins texts | PATH:
        # several of its tokens may end texts (...): eos_token of a tokenizer_config.json beside it names one; PATH: 'a' is
        # none of its special tokens (...), so it cannot begin texts: add_bos_token false in a tokenizer_config.json
        # beside it takes none | 3
        self.expect_refusal(3, "eos_token of a tokenizer_config.json beside it names one", "generate", "--checkpoint", "run",
                            "--prompt", "robin", "--tokenizer", folder)
        # bad input: `prepare --tokenizer`: the same | ...: --end-of-text TOKEN names one; ...: --begin-of-text TOKEN
        # names one, or none | 3
        self.expect_refusal(3, ": --end-of-text TOKEN names one", "prepare", "text.txt", "--output", "data", "--tokenizer",
                            folder)
        model["added_tokens"][0]["special"] = False
        (folder / "tokenizer.json").write_text(json.dumps(model))
        (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|eot_id|>"}))
        self.expect_refusal(3, "so it cannot begin texts: add_bos_token false in a tokenizer_config.json beside it takes none",
                            "generate", "--checkpoint", "run", "--prompt", "robin", "--tokenizer", folder)
        self.expect_refusal(3, "so it cannot begin texts: --begin-of-text TOKEN names one, or none", "prepare", "text.txt",
                            "--output", "data", "--tokenizer", folder)

    def test_rank_files_go_along(self):
        ranks = [bytes([b]) for b in range(256)] + [b"%c%c" % (a, b) for a in range(97, 123) for b in range(97, 123)]
        ranks += [b" %d" % i for i in range(128000 - len(ranks))]
        pattern = r"\s+|\p{L}+|\p{N}+|[^\s\p{L}\p{N}]+"
        tekken = {"config": {"pattern": pattern, "default_vocab_size": 420, "default_num_special_tokens": 20},
                  "vocab": [{"rank": i, "token_bytes": base64.b64encode(one).decode()} for i, one in enumerate(ranks[:400])]}
        tiktoken = b"".join(base64.b64encode(one) + b" %d\n" % i for i, one in enumerate(ranks))
        for file, content, vocabulary in (("tekken.json", json.dumps(tekken).encode(), 420),
                                          ("tokenizer.model", tiktoken, 128256)):
            name = file.partition(".")[0]
            about, tensors = files.llama(vocabulary=vocabulary, layers=1, width=4, heads=2, hidden=8, context=32)
            folder = self.folder / name
            folder.mkdir()
            (folder / "config.json").write_text(json.dumps(about))
            files.write(folder / "model.safetensors", tensors)
            (folder / file).write_bytes(content)
            told = self.expect_done("import", "--from", folder, "--output", f"{name}-run")
            self.assertIn(f"{vocabulary} tokens", told)
            self.prepare(f"{name}-data", "--tokenizer", f"{name}-run")
            done = self.train(f"{name}-run", f"{name}-data", "--config", f"{name}-run/config.ini")
            self.assertEqual(done.returncode, 0, done.stderr)
            text = self.generated(f"{name}-run")
            self.assertEqual(self.generated(f"{name}-run", "--tokenizer", f"{name}-run/tokenizer/{file}"), text)
            self.assertEqual(self.run_program("export", "--checkpoint", f"{name}-run", "--output", f"{name}-out").returncode, 0)
            self.assertEqual((self.folder / f"{name}-out" / file).read_bytes(), content)

    def test_weights_know_the_tokens_around_texts(self):
        folder, _ = self.theirs("theirs", eos_token="<|eot_id|>")
        self.expect_done("import", "--from", folder, "--output", "run")
        data = self.prepare("data", "--tokenizer", folder, "--begin-of-text", "none")
        model = ["--config", "run/config.ini"]
        done = self.train("other", data, *model, "--run.start_from", "run", before=[self.mpiexec, "-n", 2])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"begin of text is none in .*train.h5, \d+ in the model of run/checkpoints/step-0")
        # The checkpoint says how it was trained on; an evaluation with it tells a difference as well.
        begun = self.prepare("begun", "--tokenizer", folder, "--end-of-text", "<|end_of_text|>")
        done = self.run_program("eval", "--checkpoint", "other", "--data", begun / "validation.h5")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r"begin of text is \d+ in .*, none in the model of .*; end of text is \d+ in ")
        # bad input: `train`: `run.start_from` imported weights with a padded vocabulary, and data of another tokenizer |
        # SHARD has a vocabulary of 499 tokens, the model of CHECKPOINT one of 502: use data of the tokenizer ... | 3
        swapped = json.loads((folder / "tokenizer.json").read_text())
        vocabulary = swapped["model"]["vocab"]
        vocabulary["A"], vocabulary["B"] = vocabulary["B"], vocabulary["A"]
        (self.folder / "swapped.json").write_text(json.dumps(swapped))
        self.prepare("swapped", "--tokenizer", "swapped.json")
        done = self.train("third", "swapped", *model, "--run.start_from", "run")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("has a vocabulary of 499 tokens, the model of run/checkpoints/step-00000000.h5 one of 502: use data "
                      "of the tokenizer that", done.stderr)
        done = self.train("third", "swapped", *model, "--run.start_from", "run", "--run.accept_changes", "true")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertFalse((self.folder / "third/tokenizer/chat_template.jinja").exists())
        # bad input: `train`: imported weights in the run folder, and data of another tokenizer | ... is of another
        # run: the tokens of data.train was (xxh64:...), is (xxh64:...); ... | 2
        done = self.train("run", "swapped", *model)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("is of another run: the tokens of data.train was", done.stderr)

    def test_files_of_another_tokenizer_are_not_kept(self):
        folder, brought = self.theirs("theirs", eos_token="<|eot_id|>")
        for name in ("config.json", "model.safetensors", *brought):
            shutil.move(folder / name, self.folder / name)
        self.expect_done("import", "--from", "model.safetensors", "--output", "run")
        other = json.loads(brought["tokenizer.json"])
        other["normalizer"] = {"type": "Lowercase"}
        (self.folder / "lower.json").write_text(json.dumps(other))
        data = self.prepare("data", "--tokenizer", "lower.json", "--end-of-text", "<|eot_id|>")
        done = self.train("run", data, "--config", "run/config.ini")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("the files of the tokenizer that came with the weights are not kept", done.stdout)
        self.expect_done("export", "--checkpoint", "run", "--output", "out")
        self.assertEqual((self.folder / "out/tokenizer.json").read_bytes(), (self.folder / "lower.json").read_bytes())
        self.assertFalse((self.folder / "out/chat_template.jinja").exists())

    def test_empty_files_come_and_go(self):
        folder, brought = self.theirs("theirs", eos_token="<|eot_id|>")
        (folder / "merges.txt").write_bytes(b"")
        self.expect_done("import", "--from", folder, "--output", "run")
        self.expect_done("export", "--checkpoint", "run", "--output", "out")
        self.assertEqual(self.held("out", [*brought, "merges.txt"]), {**brought, "merges.txt": b""})

    def test_our_own_tokenizers_leave_as_others_read_them(self):
        shape = ["--model.layers", 1, "--model.width", 16, "--model.heads", 2, "--model.context", 32]
        for tokenizer in ("bpe:300", "byte"):
            name = tokenizer[:4].strip(":")
            data = self.prepare(f"{name}-data", "--tokenizer", tokenizer)
            done = self.train(f"{name}-run", data, *shape)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.expect_done("export", "--checkpoint", f"{name}-run", "--output", f"{name}-out")
            names = ["tokenizer.json", "tokenizer_config.json"]
            written = self.held(f"{name}-run/tokenizer", names)
            self.assertEqual(self.held(f"{name}-out", names), written)
            config = json.loads((self.folder / f"{name}-out/config.json").read_text())
            self.assertIsNone(config["bos_token_id"])
            self.assertIsNotNone(config["eos_token_id"])
            # The run goes on with data of its own tokenizer, which is another file of the same tokens.
            again = self.prepare(f"{name}-again", "--tokenizer", f"{name}-run")
            done = self.train(f"{name}-run", again, *shape, steps=3)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("the tokenizer of data.train was (xxh64:", done.stdout)
            text = self.generated(f"{name}-run", "--tokenizer", f"{name}-run/tokenizer")
            shutil.rmtree(data)
            self.assertEqual(self.generated(f"{name}-run"), text)

    def test_a_tokenizer_that_is_not_read_stays_with_the_weights(self):
        folder, brought = self.theirs("theirs")
        model = json.loads(brought["tokenizer.json"])
        model["model"]["dropout"] = 0.5
        brought["tokenizer.json"] = json.dumps(model).encode()
        (folder / "tokenizer.json").write_bytes(brought["tokenizer.json"])
        told = self.expect_done("import", "--from", folder, "--output", "run")
        self.assertRegex(told, "tokenizer +none is known: .*tokenizer.json: .*dropout")
        self.expect_done("export", "--checkpoint", "run", "--output", "out")
        self.assertEqual(self.held("out", brought), brought)
        self.expect_refusal(2, "these weights came without a tokenizer that is read: --tokenizer PATH names", "generate",
                            "--checkpoint", "run", "--prompt", "robin")
        self.generated("run", "--tokenizer", RECORDED / "llama3.json")

    def test_a_damaged_tokenizer_is_seen(self):
        folder, brought = self.theirs("theirs", eos_token="<|eot_id|>")
        self.expect_done("import", "--from", folder, "--output", "run")
        path = self.folder / "run/checkpoints/step-00000000.h5"
        bytes_ = bytearray(path.read_bytes())
        at = bytes_.index(brought["tokenizer.json"][:4000]) + 2000
        bytes_[at] ^= 1
        path.write_bytes(bytes_)
        done = self.run_program("generate", "--checkpoint", "run", "--prompt", "robin")
        self.assertEqual(done.returncode, 4, done.stderr)


if __name__ == "__main__":
    TokenizerFiles.program, TokenizerFiles.mpiexec = Path(sys.argv.pop(1)).resolve(), sys.argv.pop(1)
    unittest.main()
