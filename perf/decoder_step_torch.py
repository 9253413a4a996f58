#!/usr/bin/env python3
"""The peer of `trireme bench step` for published decoders: the training step of transformers' model of the same sizes on
made-up tokens, eager and compiled, beside what `trireme bench step --json FILE` measured on the same machine just before.

    perf/decoder_step_torch.py --beside FILE --preset qwen3-0.6b --batch 2 --context 256 --dtype fp32 [--help]

Attention is PyTorch's own (sdpa), AdamW fused, products bf16 by autocast. perf/train_step.sh --decoders runs both programs.
"""

import torch
import torch.nn.functional as F
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from train_step_torch import Step, compare_texts

CONFIGS = {
    "qwen3-0.6b": ("qwen3", {
        "hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
        "intermediate_size": 3072, "vocab_size": 151936, "max_position_embeddings": 40960, "rope_theta": 1e6,
        "rms_norm_eps": 1e-6, "tie_word_embeddings": True}),
    "gemma3-270m": ("gemma3_text", {
        "hidden_size": 640, "num_hidden_layers": 18, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256,
        "intermediate_size": 2048, "vocab_size": 262144, "max_position_embeddings": 32768, "query_pre_attn_scalar": 256,
        "sliding_window": 512, "tie_word_embeddings": True}),
    "llama3.2-1b": ("llama", {
        "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64,
        "intermediate_size": 8192, "vocab_size": 128256, "max_position_embeddings": 8192, "rope_theta": 5e5,
        "rms_norm_eps": 1e-5, "tie_word_embeddings": True}),
}


class Losses(nn.Module):
    """The mean loss of a model, whose keys and values nobody keeps."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens, targets):
        logits = self.model(tokens, use_cache=False).logits
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), targets.view(-1))


def step_of_decoder(options, compiled):
    torch.manual_seed(1)
    model_type, sizes = CONFIGS[options.preset]
    config = AutoConfig.for_model(model_type, bos_token_id=None, eos_token_id=None, pad_token_id=None, **sizes)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa", torch_dtype=torch.float32)
    tokens = torch.randint(0, config.vocab_size, (options.batch, options.context + 1)).to(options.device)
    return Step(options, Losses(model).to(options.device).train(), tokens[:, :-1].contiguous(),
                tokens[:, 1:].contiguous(), compiled)


if __name__ == "__main__":
    compare_texts(__doc__, step_of_decoder, CONFIGS, "qwen3-0.6b", batch=2, context=256)
