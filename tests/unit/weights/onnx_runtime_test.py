#!/usr/bin/env python3
"""What onnxruntime computes with the graphs of `trireme export --format onnx`, against `trireme eval` and `predict`.

    python3 onnx_runtime_test.py TRIREME
"""
import json
import re
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
import numpy as np  # noqa: E402
import onnx  # noqa: E402
import safetensors_files as files  # noqa: E402
from cli_testing import ProgramTest  # noqa: E402
from onnx_session import inference_session  # noqa: E402
from PIL import Image  # noqa: E402

END_OF_TEXT = 256  # of byte-level tokens
CONTEXT = 16
SIDE, CLASSES = 32, 3  # of pictures


def log_shares(logits):
    """Logarithms of a softmax, in fp64."""
    logits = logits.astype(np.float64)
    logits = logits - logits.max(-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


class Exported(ProgramTest):
    def export(self, run, output, *arguments):
        """Checks the graph with its weights, and returns a function that computes with it."""
        self.expect_done("export", "--checkpoint", run, "--output", output, "--format", "onnx", *arguments)
        path = self.folder / output / "model.onnx"
        self.assertEqual(sorted(file.name for file in path.parent.iterdir()), ["model.onnx", "model.onnx.data"])
        onnx.checker.check_model(str(path), full_check=True)
        model = onnx.load(path, load_external_data=False)
        self.assertEqual([(opset.domain, opset.version) for opset in model.opset_import], [("", 17)])
        self.metadata = {entry.key: entry.value for entry in model.metadata_props}
        self.weights = [tensor for tensor in model.graph.initializer
                        if tensor.data_location == onnx.TensorProto.EXTERNAL]
        self.assertLess(path.stat().st_size, 300_000)  # the weights are not in it
        session = inference_session(path)
        self.inputs_of_graph = [given.name for given in session.get_inputs()]
        return lambda *given: session.run(["logits"], dict(zip(self.inputs_of_graph, given, strict=True)))[0]

    def number(self, name, text):
        return float(re.search(rf"(?m)^{name} +(\S+)$", text)[1])


    def imported(self, name, made):
        config, tensors = made
        (self.folder / name).mkdir()
        (self.folder / name / "config.json").write_text(json.dumps(config))
        files.write(self.folder / name / "model.safetensors", tensors)
        self.expect_done("import", "--from", name, "--output", f"run-{name}")
        return f"run-{name}"

    def check_weights(self, output, tensors):
        """They are those that were imported, under their names."""
        self.assertEqual({tensor.name: list(tensor.dims) for tensor in self.weights},
                         {theirs: shape for theirs, (_, shape, _) in tensors.items()})
        data = (self.folder / output / "model.onnx.data").read_bytes()
        for tensor in self.weights:
            where = {entry.key: entry.value for entry in tensor.external_data}
            self.assertEqual(where["location"], "model.onnx.data")
            offset, length = int(where["offset"]), int(where["length"])
            self.assertEqual(offset % (64 if length < 4096 else 4096), 0)
            self.assertEqual(data[offset:offset + length], tensors[tensor.name][2], tensor.name)


class Texts(Exported):
    def setUp(self):
        super().setUp()
        self.shard = self.prepare("data", "--validation", "none") / "train.h5"
        tokens = np.array([*(self.folder / "text.txt").read_bytes(), END_OF_TEXT])
        self.inputs = np.concatenate([[END_OF_TEXT], tokens[:-1]])
        self.targets = tokens

    def trained(self, name, *keys):
        """Two steps that go far."""
        self.expect_done("train", "--data.train", self.shard, "--run.folder", f"run-{name}", "--run.steps", 2,
                         "--optim.lr", 0.05, "--schedule.warmup", 1, "--batch.global", 4, "--batch.micro", 2,
                         "--run.threads", 1, "--model.vocabulary", 257, *keys)
        return f"run-{name}"

    def check(self, run, output, *arguments):
        compute = self.export(run, output, *arguments)
        evaluated = self.expect_done("eval", "--checkpoint", run, "--data", self.shard, "--batch.micro", 16)
        self.check_loss(compute, self.number("loss", evaluated))
        return compute

    def check_loss(self, compute, ours):
        whole = len(self.inputs) // CONTEXT * CONTEXT
        logits = [compute(self.inputs[:whole].reshape(-1, CONTEXT)).reshape(whole, -1)]
        if whole < len(self.inputs):
            logits.append(compute(self.inputs[None, whole:])[0])
        of_targets = log_shares(np.concatenate(logits))[np.arange(len(self.targets)), self.targets]
        theirs = -of_targets.mean()
        self.assertLess(abs(ours - theirs) / theirs, 1e-5, f"{ours} {theirs}")

    def check_sizes(self, compute):
        """Any number of texts of any length; what comes later changes nothing."""
        windows = self.inputs[:5 * CONTEXT].reshape(5, CONTEXT)
        whole = compute(windows)
        self.assertEqual(whole.shape, (5, CONTEXT, 257))
        for count, length in ((1, CONTEXT), (5, 7), (2, 1)):
            part = compute(windows[:count, :length])
            self.assertEqual(part.shape, (count, length, 257))
            np.testing.assert_allclose(part, whole[:count, :length], rtol=0, atol=1e-5 * np.abs(whole).max())
        changed = windows.copy()
        changed[:, 9:] = 7
        np.testing.assert_array_equal(compute(changed)[:, :9], whole[:, :9])
        self.assertFalse(np.array_equal(compute(changed)[:, 9:], whole[:, 9:]))

    def test_models_of_others(self):
        for name, made in (("gpt2", files.gpt2()), ("llama", files.llama()),
                           ("llama-of-one-key", files.llama(kv_heads=1, layers=1)),
                           ("llama-of-all-keys", files.llama(kv_heads=4))):
            with self.subTest(name):
                run = self.imported(name, made)
                compute = self.check(run, f"out-{name}")
                self.check_sizes(compute)
                self.check_weights(f"out-{name}", made[1])
                self.assertEqual(self.metadata["model.family"], "gpt")
                self.assertEqual(self.metadata["model.context"], str(CONTEXT))

    def test_models_that_only_we_have(self):
        for name, keys in (("rms", ("--model.preset", "test-gpt", "--model.norm", "rms")),
                           ("no-biases", ("--model.preset", "test-gpt", "--model.bias", "false", "--model.tied",
                                          "false")),
                           ("learned", ("--model.preset", "test-llama", "--model.positions", "learned",
                                        "--model.tied", "true", "--model.norm_epsilon", 0.25)),
                           ("rotary", ("--model.preset", "test-gpt", "--model.positions", "rotary",
                                       "--model.rotary_theta", 17, "--model.kv_heads", 4, "--model.norm", "rms")),
                           ("gemma", ("--model.preset", "test-llama", "--model.block", "both", "--model.activation",
                                      "geglu", "--model.query_key_norm", "head", "--model.norm_plus_one", "true",
                                      "--model.head_size", 8, "--model.attention_scale", 0.2, "--model.attention_cap",
                                      2, "--model.window", 3, "--model.window_layers", "110", "--model.window_theta",
                                      100, "--model.rotary_scaling", "linear factor=8", "--model.window_scaling",
                                      "none", "--model.embedding_scale", 5.5, "--model.logit_cap", 3,
                                      "--model.qkv_bias", "true")),
                           ("olmo", ("--model.preset", "test-llama", "--model.block", "after",
                                     "--model.query_key_norm", "width", "--model.qkv_bias", "true",
                                     "--model.attention_scale", 0.1)),
                           ("neox", ("--model.preset", "test-llama", "--model.block", "parallel", "--model.norm",
                                     "layer", "--model.activation", "gelu_erf", "--model.rotary_share", 0.5)),
                           ("cohere", ("--model.preset", "test-llama", "--model.block", "parallel_one_norm",
                                       "--model.norm", "layer", "--model.rotary_pairs", "adjacent",
                                       "--model.rotary_share", 0.5, "--model.rotary_layers", "1110",
                                       "--model.residual_scale", 0.3, "--model.logit_scale", 0.25)),
                           ("yarn", ("--model.preset", "test-llama", "--model.norm", "layer", "--model.rotary_scaling",
                                     "yarn factor=4 original_max_position_embeddings=4 llama_4_scaling_beta=0.3"))):
            with self.subTest(name):
                run = self.trained(name, *keys)
                compute = self.check(run, f"out-{name}")
                self.check_sizes(compute)
                self.assertIn("blocks.6.attention.query.weight", {tensor.name for tensor in self.weights})

    def test_positions_end(self):
        compute = self.export(self.imported("gpt2", files.gpt2()), "out")
        with self.assertRaisesRegex(Exception, "out of"):
            compute(self.inputs[None, :CONTEXT + 1])
        # Rotary positions go on.
        compute = self.export(self.imported("llama", files.llama()), "out2")
        self.assertEqual(compute(self.inputs[None, :3 * CONTEXT]).shape, (1, 3 * CONTEXT, 257))

    def test_half_the_bits(self):
        """The loss is that of the rounded weights."""
        for dtype, kind in (("bf16", onnx.TensorProto.BFLOAT16), ("fp16", onnx.TensorProto.FLOAT16)):
            for name, made in (("gpt2", files.gpt2()), ("llama", files.llama())):
                with self.subTest(f"{name} {dtype}"):
                    run = self.imported(f"{name}-{dtype}", made)
                    compute = self.export(run, f"{run}-onnx", "--dtype", dtype)
                    self.assertEqual({tensor.data_type for tensor in self.weights}, {kind})
                    self.expect_done("export", "--checkpoint", run, "--output", f"{run}-out", "--dtype", dtype)
                    self.expect_done("import", "--from", f"{run}-out", "--output", f"{run}-rounded")
                    done = self.expect_done("eval", "--checkpoint", f"{run}-rounded", "--data", self.shard)
                    self.check_loss(compute, self.number("loss", done))
                    self.assertFalse(np.array_equal(compute(self.inputs[None, :4]),
                                                    self.export(run, f"{run}-fp32")(self.inputs[None, :4])))


class MaskedTexts(Exported):
    """weights_torch_test compares the logits with those of transformers; eval masks tokens that a graph cannot know."""

    def test_bert(self):
        made = files.bert(layers=3, width=32, heads=4, hidden=48)
        run = self.imported("bert", made)
        compute = self.export(run, "out")
        self.check_weights("out", made[1])
        self.assertEqual(self.inputs_of_graph, ["tokens", "attention_mask", "segments"])
        self.assertEqual(self.metadata["model.family"], "bert")
        self.assertEqual(self.metadata["model.context"], str(CONTEXT))
        draws = np.random.default_rng(7)
        lengths = np.array([[CONTEXT], [9], [1]])
        tokens, segments = draws.integers(0, 262, (3, CONTEXT)), draws.integers(0, 2, (3, CONTEXT))
        mask = (np.arange(CONTEXT) < lengths).astype(np.int64)
        whole = compute(tokens, mask, segments)
        self.assertEqual(whole.shape, (3, CONTEXT, 262))

        def check_near(logits, expected):
            np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-5 * np.abs(whole).max())

        for text, length in enumerate(lengths.flatten()):  # of any length, with padding or without
            given = (one[text:text + 1, :length] for one in (tokens, mask, segments))
            check_near(compute(*given)[0], whole[text, :length])
        padded_otherwise = np.where(mask > 0, tokens, 7)
        check_near(compute(padded_otherwise, mask, segments)[mask > 0], whole[mask > 0])
        # All that is no padding counts, for the tokens before it too.
        last = np.arange(CONTEXT) == 8  # of the second text
        for given in ((np.where(last, (tokens + 1) % 262, tokens), mask, segments),
                      (tokens, np.where(last, 0, mask), segments),
                      (tokens, mask, np.where(last, 1 - segments, segments))):
            changed = np.abs(compute(*given)[1, :8] - whole[1, :8])
            self.assertGreater(changed.max(-1).min(), 1e-4)

    def test_half_the_bits(self):
        run = self.imported("bert", files.bert())
        self.export(run, "out", "--dtype", "bf16")
        self.assertEqual({tensor.data_type for tensor in self.weights}, {onnx.TensorProto.BFLOAT16})


class Pictures(Exported):
    def setUp(self):
        super().setUp()
        draws = np.random.default_rng(7)
        colours = draws.integers(1, 256, (CLASSES * 4, 1, 1, 3))
        self.pixels = draws.integers(0, colours, (CLASSES * 4, SIDE, SIDE, 3), dtype=np.uint8)
        for split in ("train", "test"):
            for number, picture in enumerate(self.pixels):
                path = self.folder / "pictures" / split / f"c{number % CLASSES}" / f"{number:02}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(picture).save(path)
        self.expect_done("prepare", "--images", "pictures", "--output", "data", "--size", SIDE)

    def test_families(self):
        for name, keys, weights in (
                ("mobilenet", ("--model.family", "mobilenet_v2", "--model.width_multiple", 0.25, "--optim.lr", 0.03),
                 "features.18.1.running_var"),
                ("resnet", ("--model.family", "resnet", "--model.stem", "imagenet", "--optim.lr", 0.001),
                 "layer2.0.downsample.1.running_mean"),
                ("resnet50", ("--model.family", "resnet", "--model.depth", 50, "--model.stem", "imagenet",
                              "--optim.lr", 0.001),
                 "layer4.2.conv3.weight"),
                ("vit", ("--model.family", "vit", "--model.preset", "vit-tiny-cifar", "--model.layers", 2,
                         "--model.norm_epsilon", 0.01, "--model.patch", 8, "--optim.lr", 0.001),
                 "vit.embeddings.cls_token")):
            with self.subTest(name):
                # After some steps the running means of norms are near those of the pictures, which
                # are told apart then.
                self.expect_done("train", *keys, "--data.train", "data/train.h5", "--run.folder", name, "--run.steps",
                                 12, "--batch.global", 12, "--batch.micro", 6, "--model.classes", CLASSES,
                                 "--schedule.warmup", 0, "--model.image", SIDE, "--run.threads", 2)
                self.check(name, f"{name}-out", weights)

    def check(self, run, output, weights):
        compute = self.export(run, output)
        self.assertIn(weights, {tensor.name for tensor in self.weights})
        self.assertEqual(self.metadata["classes"].split(), [f"c{i}" for i in range(CLASSES)])
        self.assertEqual(self.metadata["picture_size"], f"{SIDE}x{SIDE}")
        mean, deviation = (np.array([float(number) for number in part.split()[1:]])
                           for part in self.metadata["normalisation"].split(","))
        given = ((self.pixels / 255 - mean) / deviation).astype(np.float32).transpose(0, 3, 1, 2)
        logits = compute(given)
        self.assertEqual(logits.shape, (len(given), CLASSES))
        alone = np.concatenate([compute(one[None]) for one in given])
        np.testing.assert_allclose(alone, logits, rtol=0, atol=1e-5 * np.abs(logits).max())
        done = self.run_program("predict", "--checkpoint", run, "--input", "pictures/test", "--json", "said.jsonl",
                                "--top", CLASSES)
        self.assertEqual(done.returncode, 0, done.stderr)
        said = [json.loads(line) for line in (self.folder / "said.jsonl").read_text(encoding="utf-8").splitlines()]
        theirs = np.exp(log_shares(logits))
        self.assertEqual(len(said), len(given))
        for one in said:
            number = int(Path(one["file"]).stem)
            for likely in one["likely"]:
                self.assertAlmostEqual(likely["probability"], theirs[number, likely["number"]], delta=1e-5)
        self.assertGreater(theirs.std(0).max(), 1e-3)  # pictures are told apart


if __name__ == "__main__":
    ProgramTest.program = Path(sys.argv[1]).resolve()
    del sys.argv[1:]
    unittest.main()
