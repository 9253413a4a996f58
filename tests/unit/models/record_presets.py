#!/usr/bin/env python3
"""Writes gpt_presets.tsv: what PyPI's litgpt 0.5.13 says of the models that are our presets.

    python3 record_presets.py LITGPT/config.py >gpt_presets.tsv

`pip install --no-deps --target FOLDER litgpt` brings the file. Two of its numbers are not those of the published
config.json: the epsilon of Gemma's norms (1e-6, it has 1e-5) and the window of Phi-3-mini-4k (2047, it has 2048).
"""
import importlib.util
import math
import sys

NAMES = """llama3-8b Llama-3-8B|llama3-70b Llama-3-70B|llama3.1-8b Llama-3.1-8B|llama3.1-70b Llama-3.1-70B
llama3.1-405b Llama-3.1-405B|llama3.2-3b Llama-3.2-3B|llama3.3-70b Llama-3.3-70B-Instruct|qwen2.5-0.5b Qwen2.5-0.5B
qwen2.5-1.5b Qwen2.5-1.5B|qwen2.5-3b Qwen2.5-3B|qwen2.5-7b Qwen2.5-7B|qwen2.5-14b Qwen2.5-14B|qwen2.5-32b Qwen2.5-32B
qwen2.5-72b Qwen2.5-72B|qwen3-0.6b Qwen3-0.6B|qwen3-1.7b Qwen3-1.7B|qwen3-4b Qwen3-4B|qwen3-8b Qwen3-8B
qwen3-14b Qwen3-14B|qwen3-32b Qwen3-32B|gemma2-2b Gemma-2-2b|gemma2-9b Gemma-2-9b|gemma2-27b Gemma-2-27b
gemma3-1b Gemma-3-1b-it|gemma3-4b Gemma-3-4b-it|gemma3-12b Gemma-3-12b-it|gemma3-27b Gemma-3-27b-it
mistral-7b-v0.1 Mistral-7B-v0.1|mistral-7b-v0.3 Mistral-7B-v0.3|mistral-large Mistral-Large-Instruct-2411
phi3-mini-4k Phi-3-mini-4k-instruct|phi4 phi-4|smollm2-135m SmolLM2-135M|smollm2-360m SmolLM2-360M
smollm2-1.7b SmolLM2-1.7B|olmo2-7b OLMo-2-1124-7B|olmo2-13b OLMo-2-1124-13B|pythia-14m pythia-14m|pythia-31m pythia-31m
pythia-70m pythia-70m|pythia-160m pythia-160m|pythia-410m pythia-410m|pythia-1b pythia-1b|pythia-1.4b pythia-1.4b
pythia-2.8b pythia-2.8b|pythia-6.9b pythia-6.9b|pythia-12b pythia-12b"""


def main():
    spec = importlib.util.spec_from_file_location("litgpt_config", sys.argv[1])
    module = sys.modules["litgpt_config"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for pair in NAMES.replace("\n", "|").split("|"):
        ours, theirs = pair.split()
        c = module.Config.from_name(theirs)
        scaling = c.rope_adjustments or {}
        layers = "".join(map(str, (c.sliding_window_indices or [])[:c.n_layer])) if c.sliding_window_size else ""
        values = dict(
            layers=c.n_layer, width=c.n_embd, heads=c.n_head, kv_heads=c.n_query_groups, head_size=c.head_size,
            hidden=c.intermediate_size, vocabulary=c.padded_vocab_size, context=c.block_size, theta=c.rope_base,
            share=c.rotary_percentage, epsilon=1e-6 if ours.startswith("gemma") else c.norm_eps,
            window=2047 if ours == "phi3-mini-4k" else c.sliding_window_size or 0, window_layers=layers or "-",
            attention_cap=c.attention_logit_softcapping or 0, logit_cap=c.final_logit_softcapping or 0,
            attention_scale=f"{1 / math.sqrt(c.attention_scores_scalar or c.head_size):.9g}",
            window_theta=c.rope_local_base_freq or 0, qkv_bias=int(c.bias or c.attn_bias), bias=int(c.bias),
            parallel=int(c.parallel_residual), query_key_norm=int(c.norm_qk), factor=scaling.get("factor", 1),
            original=scaling.get("original_max_seq_len", 0), embedding_scale=int(c.scale_embeddings),
            rms=int(c.norm_class_name == "RMSNorm"))
        print(ours, *(f"{key}={value}" for key, value in values.items()), sep="\t")


if __name__ == "__main__":
    main()
