#!/usr/bin/env python3
"""Decoders of transformers compared with ours, after `trireme import` and `trireme export`.

    python3 decoders_torch_test.py MODEL_PROGRAM TRIREME [--full]

Each model is small and random, and its sizes are such that every choice is seen to act: where transformers leaves the
choice out, its own logits move. Without --full a type's choices are tested together. With it each one also by itself,
and every field of a type's configuration class with another value: our logits are the same, or the import names the
field and refuses it.
"""
import collections
import copy
import os
import re
import sys
import unittest
import warnings
from pathlib import Path

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", TRANSFORMERS_VERBOSITY="error",
                  HF_HUB_DISABLE_PROGRESS_BARS="1", CUDA_VISIBLE_DEVICES="")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
import model_comparison  # noqa: E402
import torch  # noqa: E402
from cli_testing import ProgramTest  # noqa: E402
from huggingface_hub.errors import StrictDataclassError  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from torch import nn  # noqa: E402
from transformers import AutoConfig, AutoModelForCausalLM  # noqa: E402

FULL = False
CONTEXT = 14
MOVES = 1e-3  # the least that a choice changes logits by
IGNORED = -1
FARTHER = 1.5  # times as far from exact as transformers' may our bf16 be
Numbers = collections.namedtuple("Numbers", "name micro_batches samples")

SIZES = dict(vocab_size=257, hidden_size=48, num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=2,
             intermediate_size=80, max_position_embeddings=CONTEXT)
LLAMA = dict(SIZES, rms_norm_eps=1e-5)
PLAIN = {"rope_type": "default", "rope_theta": 100.0}


def llama(**changes):
    return {**LLAMA, **changes}


def rope(kind, **fields):
    return {"rope_type": kind, "rope_theta": 100.0, **fields}


LINEAR = rope("linear", factor=4.0)
LLAMA3 = rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=10)
YARN = rope("yarn", factor=4.0, beta_fast=4.0, beta_slow=0.5, mscale=0.7, mscale_all_dim=1.9, truncate=False,
            original_max_position_embeddings=9)
LONG = rope("longrope", factor=4.0, short_factor=[1.0, 1.7, 2.0, 2.5], long_factor=[1.5, 3.0, 6.0, 9.0])
WINDOWS = ["sliding_attention", "full_attention", "sliding_attention"]
BY_TYPE = {"full_attention": rope("linear", factor=3.0), "sliding_attention": {"rope_type": "default", "rope_theta": 9.0}}
PLAIN_BY_TYPE = {"full_attention": {"rope_type": "default", "rope_theta": 100.0},
                 "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}}
GEMMA = dict(head_dim=16, rms_norm_eps=1e-6, rope_parameters=PLAIN)

# model_type: what all of its models here have, and choices: name -> (with it, without it). Without a second one
# nothing can be left out with the same weights.
CASES = {
    "llama": (llama(rope_parameters=PLAIN, tie_word_embeddings=True), {
        "head_dim": (dict(head_dim=12), None),
        "attention_bias": (dict(attention_bias=True), "self_attn.*bias"),
        "mlp_bias": (dict(mlp_bias=True), "mlp.*bias"),
        "linear": (dict(rope_parameters=LINEAR), dict(rope_parameters=PLAIN)),
        "llama3": (dict(rope_parameters=LLAMA3), dict(rope_parameters=PLAIN)),
        "yarn": (dict(rope_parameters=YARN), dict(rope_parameters=PLAIN)),
        "dynamic": (dict(rope_parameters=rope("dynamic", factor=2.0)), None),
        "untied": (dict(tie_word_embeddings=False), None)}),
    "mistral": (llama(rope_parameters=PLAIN, sliding_window=None), {
        "sliding_window": (dict(sliding_window=4), dict(sliding_window=None)),
        "head_dim": (dict(head_dim=12), None)}),
    "ministral3": (llama(head_dim=8, rope_parameters=dict(YARN, llama_4_scaling_beta=0.0)), {
        "query scale": (dict(rope_parameters=dict(YARN, llama_4_scaling_beta=0.5, original_max_position_embeddings=5)),
                        dict(rope_parameters=dict(YARN, llama_4_scaling_beta=0.0, original_max_position_embeddings=5)))}),
    "qwen2": (llama(rope_parameters=PLAIN, use_sliding_window=False), {
        "bias": ({}, "proj.bias"),
        "window": (dict(use_sliding_window=True, sliding_window=4, max_window_layers=1), dict(use_sliding_window=False))}),
    "qwen3": (llama(rope_parameters=PLAIN, head_dim=16), {
        "attention_bias": (dict(attention_bias=True), "proj.bias"),
        "window": (dict(use_sliding_window=True, sliding_window=4, layer_types=WINDOWS),
                   dict(use_sliding_window=False, layer_types=["full_attention"] * 3))}),
    "gemma": (llama(**GEMMA), {"hidden_act": (dict(hidden_act="silu"), dict(hidden_act="gelu_pytorch_tanh"))}),
    "gemma2": (llama(**GEMMA, sliding_window=100, query_pre_attn_scalar=16, attn_logit_softcapping=None,
                     final_logit_softcapping=None), {
        "scale": (dict(query_pre_attn_scalar=41), dict(query_pre_attn_scalar=16)),
        "cap of scores": (dict(attn_logit_softcapping=2.0), dict(attn_logit_softcapping=None)),
        "cap of logits": (dict(final_logit_softcapping=3.0), dict(final_logit_softcapping=None)),
        "window": (dict(sliding_window=4), dict(sliding_window=100))}),
    "gemma3_text": (llama(**{**GEMMA, "rope_parameters": PLAIN_BY_TYPE}, sliding_window=100, query_pre_attn_scalar=16,
                          layer_types=WINDOWS), {
        "rope": (dict(rope_parameters=BY_TYPE), dict(rope_parameters=PLAIN_BY_TYPE)),
        "window": (dict(sliding_window=4), dict(sliding_window=100)),
        "layers": (dict(layer_types=None, num_hidden_layers=6, sliding_window=4), dict(layer_types=["full_attention"] * 6))}),
    "granite": (llama(rope_parameters=PLAIN, attention_multiplier=0.4), {
        "embedding": (dict(embedding_multiplier=3.0), dict(embedding_multiplier=1.0)),
        "residual": (dict(residual_multiplier=0.4), dict(residual_multiplier=1.0)),
        "attention": (dict(attention_multiplier=0.2), dict(attention_multiplier=0.35)),
        "logits": (dict(logits_scaling=6.0), dict(logits_scaling=1.0)),
        "bias": (dict(attention_bias=True, mlp_bias=True), "proj.bias")}),
    "phi3": (llama(rope_parameters=dict(PLAIN, partial_rotary_factor=1.0), original_max_position_embeddings=CONTEXT), {
        "window": (dict(sliding_window=4), dict(sliding_window=None)),
        "share": (dict(hidden_size=96, rope_parameters=dict(PLAIN, partial_rotary_factor=0.75)),
                  dict(hidden_size=96, rope_parameters=dict(PLAIN, partial_rotary_factor=1.0))),
        "short": (dict(rope_parameters=LONG), dict(rope_parameters=PLAIN)),
        "long": (dict(rope_parameters=LONG, original_max_position_embeddings=3), dict(rope_parameters=PLAIN)),
        "crossing": (dict(rope_parameters=LONG, original_max_position_embeddings=8), dict(rope_parameters=PLAIN))}),
    "olmo2": (llama(rope_parameters=PLAIN), {
        "all heads": (dict(num_key_value_heads=6, attention_bias=True), "proj.bias")}),
    "olmo3": (llama(rope_parameters=PLAIN_BY_TYPE, sliding_window=100, layer_types=WINDOWS), {
        "window": (dict(sliding_window=4), dict(sliding_window=100)),
        "rope": (dict(rope_parameters=BY_TYPE), dict(rope_parameters=PLAIN_BY_TYPE))}),
    "smollm3": (llama(rope_parameters=PLAIN, no_rope_layers=[1, 1, 1]), {
        "layers": (dict(no_rope_layers=[1, 0, 1]), dict(no_rope_layers=[1, 1, 1])),
        "window": (dict(use_sliding_window=True, sliding_window=4, no_rope_layers=[0, 1, 0]),
                   dict(use_sliding_window=False, no_rope_layers=[0, 1, 0], layer_types=["full_attention"] * 3)),
        "biases": (dict(attention_bias=True, mlp_bias=True), "proj.bias")}),
    "starcoder2": (dict(SIZES, rope_parameters=PLAIN, norm_epsilon=1e-4), {
        "window": (dict(sliding_window=4), dict(sliding_window=None)),
        "no bias": (dict(use_bias=False), None),
        "activation": (dict(hidden_act="gelu"), dict(hidden_act="gelu_pytorch_tanh"))}),
    "gpt_neox": (dict(vocab_size=257, hidden_size=48, num_hidden_layers=3, num_attention_heads=3, intermediate_size=80,
                      max_position_embeddings=CONTEXT, layer_norm_eps=1e-4,
                      rope_parameters=dict(PLAIN, partial_rotary_factor=0.25)), {
        "one after the other": (dict(use_parallel_residual=False), dict(use_parallel_residual=True)),
        "share": (dict(rope_parameters=dict(PLAIN, partial_rotary_factor=0.5)),
                  dict(rope_parameters=dict(PLAIN, partial_rotary_factor=0.25))),
        "no bias": (dict(attention_bias=False), None),
        "tied": (dict(tie_word_embeddings=True), None)}),
    "cohere": (dict(SIZES, rope_parameters=PLAIN, logit_scale=1.0, layer_norm_eps=1e-4), {
        "logits": (dict(logit_scale=0.3), dict(logit_scale=1.0)),
        "bias": (dict(attention_bias=True), "proj.bias")}),
    "cohere2": (dict(SIZES, rope_parameters=PLAIN, logit_scale=1.0, layer_norm_eps=1e-4, sliding_window=100,
                      layer_types=WINDOWS), {
        "window": (dict(sliding_window=4), dict(sliding_window=100)),
        "layers": (dict(layer_types=["full_attention"] + WINDOWS[:2]), dict(layer_types=WINDOWS))}),
    "gpt2": (dict(vocab_size=257, n_positions=CONTEXT, n_embd=48, n_layer=3, n_head=4), {
        "activation": (dict(activation_function="gelu"), dict(activation_function="gelu_new")),
        "untied": (dict(tie_word_embeddings=False, n_inner=64), None)}),
}
# Choices that exclude others of the same type.
ALONE = {("llama", "linear"), ("llama", "llama3"), ("llama", "dynamic"), ("llama", "untied"), ("qwen2", "bias"),
         ("phi3", "share"), ("phi3", "short"), ("phi3", "crossing"), ("smollm3", "window"), ("starcoder2", "no bias"),
         ("gpt_neox", "no bias"), ("gemma3_text", "layers")}
# Those of them that have a model by itself without --full.
SHOWN_ALONE = {("llama", "llama3"), ("phi3", "share"), ("phi3", "crossing"), ("gemma3_text", "layers"), ("gpt_neox", "no bias")}

AS_LLAMA = ("mistral", "phi3")  # types whose models may be those of a type before them

NORMS = {  # theirs: ours, where norms stand before, behind and on both sides
    "before": {"input_layernorm": "norm1", "post_attention_layernorm": "norm2"},
    "after": {"post_attention_layernorm": "norm1_after", "post_feedforward_layernorm": "norm2_after"},
    "both": {"input_layernorm": "norm1", "post_attention_layernorm": "norm1_after", "pre_feedforward_layernorm": "norm2",
             "post_feedforward_layernorm": "norm2_after"}}
LAYOUTS = {"olmo2": "after", "olmo3": "after", "gemma2": "both", "gemma3_text": "both"}
PARTS = [
    (r"^(model\.embed_tokens|gpt_neox\.embed_in|transformer\.wte)", "embedding"),
    (r"^transformer\.wpe", "positions"),
    (r"^(model\.layers|gpt_neox\.layers|transformer\.h)\.", "blocks."),
    (r"\.ln_1", ".norm1"), (r"\.ln_2", ".norm2"),
    (r"self_attn\.q_proj", "attention.query"), (r"self_attn\.k_proj", "attention.key"),
    (r"self_attn\.v_proj", "attention.value"), (r"self_attn\.q_norm", "attention.query_norm"),
    (r"self_attn\.k_norm", "attention.key_norm"),
    (r"self_attn\.o_proj|attention\.dense|attn\.c_proj", "attention.output"),
    (r"mlp\.gate_proj", "mlp.gate"), (r"mlp\.(up_proj|c_fc|dense_h_to_4h)", "mlp.up"),
    (r"mlp\.(down_proj|c_proj|dense_4h_to_h)", "mlp.down"),
    (r"^(model\.norm|gpt_neox\.final_layer_norm|transformer\.ln_f)", "norm"), (r"^(lm_head|embed_out)", "head")]


def ours_of(model_type, config):
    """The function that lists our names and our layout of one of their parameters, or of its gradient."""
    norms = list(NORMS[LAYOUTS.get(model_type, "before")].items())

    def parts_of(name, tensor):
        heads = config.num_attention_heads
        if name.endswith("qkv_proj.weight"):
            size = tensor.shape[0] // (heads + 2 * config.num_key_value_heads)
            rows = [heads * size] + [config.num_key_value_heads * size] * 2
            return ("qkv_proj", "attention."), ("query", "key", "value"), tensor.split(rows)
        if "gate_up_proj" in name:
            return ("gate_up_proj", ""), ("gate", "up"), tensor.chunk(2)
        if "query_key_value" in name:
            by_head = tensor.view(heads, 3, -1, *tensor.shape[1:])
            return ("attention.query_key_value", "attention."), ("query", "key", "value"), [
                by_head[:, part].reshape(-1, *tensor.shape[1:]) for part in range(3)]
        if re.search(r"\.c_attn\.", name):
            return ("attn.c_attn", "attention."), ("query", "key", "value"), (
                tensor.T if tensor.dim() == 2 else tensor).chunk(3)
        return None

    def named(name, tensor):
        found = parts_of(name, tensor)
        if found is not None:
            (theirs, beginning), ours, tensors = found
            name = name.replace("self_attn." + theirs, theirs).replace(theirs, beginning + "PART")
            return [(model_comparison.renamed(name.replace("PART", one), PARTS), values)
                    for one, values in zip(ours, tensors, strict=True)]
        if model_type == "gpt2" and re.search(r"\.c_\w+\.weight$", name):
            tensor = tensor.T
        for theirs, ours in norms:
            if f".{theirs}." in name:
                name = name.replace(f".{theirs}.", f".{ours}.")
                break
        return [(model_comparison.renamed(name, PARTS), tensor)]

    return named


def made(model_type, fields):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = AutoConfig.for_model(model_type, **{"bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
                                                     **copy.deepcopy(fields)})
        return AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()


def shaken(model):
    """Every parameter away from its initial value, which for norms and biases is a constant."""
    torch.manual_seed(3)
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1 and ("norm" in name or "ln_" in name) and name.endswith("weight"):
            middle = parameter.mean().item()
            nn.init.uniform_(parameter, middle - 0.5, middle + 0.5)
        else:
            nn.init.normal_(parameter, 0.0, 0.2)
    return model


def of_loss(model, tokens, targets):
    logits = model(tokens).logits
    logits = logits.float() if logits.dtype == torch.bfloat16 else logits  # as transformers' losses
    return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)


def relative(a, b):
    return ((a - b).norm() / b.norm()).item()


class Decoders(model_comparison.ModelComparison, ProgramTest):
    def logits(self, model, tokens):
        with torch.no_grad():
            return model(tokens).logits

    def stepwise_logits(self, model, tokens):
        """Those of cached generation, a token at a time."""
        cache, all_logits = None, []
        with torch.no_grad():
            for column in tokens.T:
                out = model(column[:, None], past_key_values=cache, use_cache=True)
                cache = out.past_key_values
                all_logits.append(out.logits)
        return torch.cat(all_logits, 1)

    def check_acts(self, model_type, fields, without):
        """Leaving the choice out moves transformers' own logits."""
        if without is None:
            return
        model = shaken(made(model_type, fields)).double()
        if isinstance(without, str):
            other = copy.deepcopy(model)
            changed = [parameter for name, parameter in other.named_parameters() if re.search(without, name)]
            self.assertTrue(changed, without)
            for parameter in changed:
                nn.init.zeros_(parameter)
        else:
            other = made(model_type, {**fields, **without}).double()
            other.load_state_dict(model.state_dict())
        tokens = torch.randint(0, model.config.vocab_size, (3, CONTEXT))
        moved = (self.logits(other, tokens) - self.logits(model, tokens)).abs().max().item()
        self.assertGreater(moved, MOVES, without)

    def check_model(self, model_type, name, fields):
        folder = self.folder / f"{model_type}-{name}".replace(" ", "-")
        model = shaken(made(model_type, fields))
        model.save_pretrained(folder)
        run = folder.with_name(folder.name + "-run")
        self.expect_done("import", "--from", folder, "--output", run)
        self.check_export(model, folder, run)
        self.check_greedy(model, run)
        if name == "together" and (FULL or model_type in AS_LLAMA):
            self.check_trained(model, folder, run)
        model.double()
        torch.manual_seed(4)
        numbers = Numbers(f"{model_type}, {name}", 2, 3)
        shape = (numbers.micro_batches * numbers.samples, CONTEXT)
        tokens, targets = (torch.randint(0, model.config.vocab_size, shape) for _ in range(2))
        targets[torch.rand(shape) < 0.2] = IGNORED

        named = ours_of(model_type, model.config)
        self.check_bf16(numbers, run, model, named, tokens, targets)

        def loss():
            return of_loss(model, tokens, targets)

        # What a key's bias adds to all scores changes nothing where keys do not turn.
        without_effect = tuple(
            f"blocks.{layer}.attention.key.bias" for layer in range(3)
            if model_type == "gpt2" or not (getattr(model.config, "no_rope_layers", None) or [1, 1, 1])[layer])
        self.compare(numbers, model_comparison.of_run(run), {"field/tokens": tokens, "field/targets": targets}, model,
                     named, self.stepwise_logits(model, tokens[:numbers.samples]), loss, 2e-5,
                     without_effect)

    def check_bf16(self, case, run, model, named, tokens, targets):
        """Logits of generation and the gradient are about as far from the exact ones as theirs of the same weights."""
        rounded = copy.deepcopy(model).bfloat16()
        ours = self.run_ours(model_comparison.of_run(run), {
            "batch": torch.tensor([case.micro_batches, case.samples, 0.05, 1]), "field/tokens": tokens,
            "field/targets": targets})

        def gradient(of):
            of.zero_grad()
            of_loss(of, tokens, targets).backward()
            return {name: part for theirs, parameter in of.named_parameters()
                    for name, part in named(theirs, parameter.grad.double())}

        def check(what, ours, theirs, exact):
            far, near = relative(ours.double(), exact), relative(theirs.double(), exact)
            self.assertLess(far, FARTHER * near, f"{case.name}: {what} in bf16")
            return f"{what} {far / near:.2f}"

        first = tokens[:case.samples]
        exact, theirs = gradient(model), gradient(rounded)
        print(f"{case.name}: of their distance in bf16", check(
            "logits", ours["logits"], self.stepwise_logits(rounded, first).flatten(),
            self.stepwise_logits(model, first).flatten()), check("gradient", *(
                torch.cat([part.flatten() for part in all_parts])
                for all_parts in ([ours["gradient/" + name] for name in exact], theirs.values(), exact.values()))))

    def check_export(self, model, folder, run):
        """What leaves is what came, under the same names."""
        out = run.with_name(run.name + "-out")
        self.expect_done("export", "--checkpoint", run, "--output", out)
        again, info = AutoModelForCausalLM.from_pretrained(out, output_loading_info=True, attn_implementation="eager")
        self.assertFalse(info["missing_keys"] or info["unexpected_keys"] or info["mismatched_keys"], info)
        tokens = torch.randint(0, model.config.vocab_size, (2, CONTEXT))
        self.assertEqual(again.config.model_type, model.config.model_type)
        before, after = load_file(folder / "model.safetensors"), load_file(out / "model.safetensors")
        self.assertEqual(set(before), set(after))
        for name, tensor in before.items():
            self.assertTrue(torch.equal(tensor, after[name]), name)
        self.assertTrue(torch.equal(self.logits(again, tokens), self.logits(model, tokens)))

    def check_trained(self, model, folder, run):
        """A run leaves with the names that its weights came with; steps of this length change no bit."""
        tuned = run.with_name(run.name + "-tuned")
        self.expect_done("train", "--config", run / "config.ini", "--run.start_from", run, "--run.folder", tuned,
                         "--data.train", self.shard, "--batch.global", 2, "--run.steps", 1, "--optim.lr", 1e-30,
                         "--checkpoint.every", 1, "--threads", 1)
        self.check_export(model, folder, tuned)

    def check_greedy(self, model, run):
        prompt = b"Line"
        theirs = model.generate(torch.tensor([list(prompt)]), max_new_tokens=CONTEXT - len(prompt), do_sample=False,
                                pad_token_id=0)[0].tolist()
        done = self.run_program("generate", "--checkpoint", run, "--prompt", prompt.decode(), "--tokens",
                                CONTEXT - len(prompt), "--temperature", 0, "--tokenizer", self.shard)
        self.assertEqual(done.returncode, 0, done.stderr)
        ours = done.stdout.encode(errors="surrogateescape").removesuffix(b"\n")
        self.assertEqual(ours.decode(errors="replace"), bytes(token for token in theirs if token < 256).decode(errors="replace"))

    def test_types(self):
        self.shard = self.prepare("data", "--validation", "none") / "train.h5"
        for model_type, (base, choices) in CASES.items():
            together = dict(base)
            for name, (fields, without) in choices.items():
                with self.subTest(f"{model_type}, {name}"):
                    self.check_acts(model_type, {**base, **fields}, without)
                if (model_type, name) not in ALONE:
                    together.update(fields)
                if FULL or (model_type, name) in SHOWN_ALONE:
                    with self.subTest(f"{model_type}, {name}"):
                        self.check_model(model_type, name, {**base, **fields})
            with self.subTest(model_type):
                self.check_model(model_type, "together", together)

    def check_field(self, model_type, number, field, fields):
        """Our logits are theirs, or the import names the field."""
        folder = self.folder / f"field-{model_type}-{number}"
        try:
            model = shaken(made(model_type, fields))
            tokens = torch.randint(0, model.config.vocab_size, (2, model.config.max_position_embeddings))
            theirs = self.stepwise_logits(copy.deepcopy(model).double(), tokens)
            model.save_pretrained(folder)
        except (TypeError, ValueError, KeyError, AssertionError, RuntimeError, AttributeError, IndexError,
                ZeroDivisionError, StrictDataclassError):
            return "not theirs"
        done = self.run_program("import", "--from", folder, "--output", f"{folder}-run")
        if done.returncode != 0:
            # Which of the fields that an object has.
            names = [field, "rope_type", "partial_rotary_factor", "truncate"] if field == "rope_parameters" else [field]
            self.assertTrue(any(f"config.json: {name} is" in done.stderr for name in names), done.stderr)
            return "refused"
        self.assertNotIn("not read", done.stderr)
        ours = self.run_ours(model_comparison.of_run(f"{folder}-run"), {
            "batch": torch.tensor([1, 2, 0.05]), "field/tokens": tokens, "field/targets": tokens})
        self.near(ours["logits"], theirs, 2e-5, field)
        return "the same"

    @unittest.skipUnless("--full" in sys.argv, "--full runs it")
    def test_fields(self):
        self.largest = (0.0, "")
        for model_type, (base, choices) in CASES.items():
            together = dict(base)
            for name, (fields, _) in choices.items():
                if (model_type, name) not in ALONE:
                    together.update(fields)
            config = made(model_type, together).config
            known = {**config.to_dict(), **type(config)().to_dict()}
            results = collections.defaultdict(list)
            number = 0
            for field in sorted(known):
                if field in OF_NO_MODEL or field.startswith("_"):
                    continue
                for value in other_values(field, getattr(config, field, None)):
                    number += 1
                    changed = {**together, field: value}
                    if field in ("num_hidden_layers",):
                        changed = {name: one for name, one in changed.items()
                                   if name not in ("layer_types", "no_rope_layers")}
                    with self.subTest(f"{model_type}, {field} = {value}"):
                        results[self.check_field(model_type, number, field, changed)].append(f"{field} {value}")
            print(f"{model_type}: " + "; ".join(f"{len(fields)} {what}" for what, fields in results.items()))
            print("   refused: " + ", ".join(results["refused"]))
            print("   not theirs: " + ", ".join(results["not theirs"]))


# Fields that change how a model is stored, trained or called.
OF_NO_MODEL = {"architectures", "model_type", "transformers_version", "dtype", "torch_dtype", "return_dict",
               "output_hidden_states", "output_attentions", "chunk_size_feed_forward", "is_encoder_decoder", "id2label",
               "label2id", "problem_type", "name_or_path", "task_specific_params"}
OTHER = {"hidden_size": [96], "n_embd": [96], "num_attention_heads": [12], "n_head": [8], "num_key_value_heads": [1, 6],
         "intermediate_size": [72], "n_inner": [72], "vocab_size": [300], "num_hidden_layers": [2], "n_layer": [2],
         "max_position_embeddings": [17], "n_positions": [17], "head_dim": [10, 24], "sliding_window": [6, None],
         "use_bidirectional_attention": [True], "hidden_act": ["silu", "gelu", "gelu_pytorch_tanh", "relu", "gelu_new"],
         "hidden_activation": ["silu", "gelu", "gelu_pytorch_tanh", "relu"],
         "activation_function": ["gelu", "gelu_pytorch_tanh", "relu", "silu"], "attn_logit_softcapping": [1.5, None],
         "final_logit_softcapping": [2.5, None], "no_rope_layers": [[0, 1, 1]], "layer_types": [WINDOWS[1:] + WINDOWS[:1]],
         "query_pre_attn_scalar": [23], "max_window_layers": [2], "no_rope_layer_interval": [2],
         "original_max_position_embeddings": [8], "partial_rotary_factor": [0.5], "rms_norm_eps": [0.3],
         "layer_norm_eps": [0.3], "layer_norm_epsilon": [0.3], "norm_epsilon": [0.3]}


def other_rope(value):
    """The same with each field of it, and of what it nests, at another value."""
    for name, one in value.items():
        if isinstance(one, dict):
            yield from ({**value, name: other} for other in other_rope(one))
        elif isinstance(one, bool):
            yield {**value, name: not one}
        elif isinstance(one, list):
            yield {**value, name: [2.5 * number for number in one]}
        elif isinstance(one, (int, float)):
            yield {**value, name: max(1, one // 2) if isinstance(one, int) else 0.5 * one}
    if "rope_type" in value:
        yield from (dict(kind, rope_theta=value["rope_theta"]) for kind in (LINEAR, LLAMA3, YARN, LONG, PLAIN))
        yield dict(YARN, attention_factor=1.7)
        yield {**value, "partial_rotary_factor": 0.5}


def other_values(field, value):
    if field in OTHER:
        return OTHER[field]
    if field == "rope_parameters":
        return list(other_rope(value or PLAIN))
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1]
    if isinstance(value, float):
        return [0.7 * value if value else 0.1]
    if field.endswith("token_id"):
        return [7]
    return []


if __name__ == "__main__":
    FULL = "--full" in sys.argv
    ProgramTest.program = Path(sys.argv[2]).resolve()
    model_comparison.main(sys.argv[1])
