#!/usr/bin/env python3
"""GPT-2 and Llama compared with Hugging Face's GPT2LMHeadModel and LlamaForCausalLM, after `trireme import`.

    python3 gpt_torch_test.py MODEL_PROGRAM TRIREME

The weights are made here. PyTorch computes in fp64, but transformers rounds Llama's norms and rotary angles to fp32.
"""
import collections
import copy
import os
import re
import sys
from pathlib import Path

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", TRANSFORMERS_VERBOSITY="error",
                  HF_HUB_DISABLE_PROGRESS_BARS="1", CUDA_VISIBLE_DEVICES="")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
import model_comparison  # noqa: E402
import torch  # noqa: E402
from cli_testing import ProgramTest  # noqa: E402
from torch import nn  # noqa: E402
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM  # noqa: E402

Case = collections.namedtuple("Case", "sizes micro_batches samples stored", defaults=(torch.float32,))
IGNORED = -1  # the target of a token that nothing is to predict
PARTS = [  # theirs to ours
    (r"^(transformer\.wte|model\.embed_tokens)", "embedding"),
    (r"^transformer\.wpe", "positions"),
    (r"^(transformer\.h|model\.layers)\.", "blocks."),
    (r"ln_1|input_layernorm", "norm1"),
    (r"ln_2|post_attention_layernorm", "norm2"),
    (r"self_attn\.q_proj", "attention.query"),
    (r"self_attn\.k_proj", "attention.key"),
    (r"self_attn\.v_proj", "attention.value"),
    (r"attn\.c_proj|self_attn\.o_proj", "attention.output"),
    (r"mlp\.gate_proj", "mlp.gate"),
    (r"mlp\.(c_fc|up_proj)", "mlp.up"),
    (r"mlp\.(c_proj|down_proj)", "mlp.down"),
    (r"^(transformer\.ln_f|model\.norm)", "norm"),
    (r"^lm_head", "head"),
]


def ours_of(name, tensor):
    return [(model_comparison.renamed(name, PARTS), tensor)]


def ours_of_gpt2(name, tensor):
    """The weights of its linear layers are (in, out), and one layer gives queries, keys and values."""
    if re.search(r"\.c_\w+\.weight$", name):
        tensor = tensor.T
    if ".attn.c_attn." not in name:
        return ours_of(name, tensor)
    (name, _), = ours_of(name, tensor)
    return [(name.replace("attn.c_attn", f"attention.{part}"), values)
            for part, values in zip(("query", "key", "value"), tensor.chunk(3), strict=True)]


class GptTest(model_comparison.ModelComparison, ProgramTest):
    def compare_case(self, case, make, our_parts, without_effect=()):
        torch.manual_seed(3)
        model = make().eval()
        for parameter in model.parameters():
            if parameter.dim() == 1 and parameter.mean() == 1:  # of a norm
                nn.init.uniform_(parameter, 0.5, 1.5)
            else:
                nn.init.normal_(parameter, 0.0, 0.15)
            parameter.data.copy_(parameter.to(case.stored))
        # A copy is saved, because the rotary angles would be rounded, too.
        copy.deepcopy(model).to(case.stored).save_pretrained(self.folder / "theirs")
        self.expect_done("import", "--from", "theirs", "--output", "ours")
        model.double()
        shape = (case.micro_batches * case.samples, model.config.max_position_embeddings)
        tokens, targets = (torch.randint(0, model.config.vocab_size, shape) for _ in range(2))
        targets[torch.rand(shape) < 0.2] = IGNORED

        def loss():
            return nn.functional.cross_entropy(model(tokens).logits.flatten(0, 1), targets.flatten(),
                                               ignore_index=IGNORED)

        self.compare(case, model_comparison.of_run(self.folder / "ours"),
                     {"field/tokens": tokens, "field/targets": targets}, model, our_parts,
                     model(tokens[:case.samples]).logits, loss, 2e-5, without_effect)

    def compare_gpt2(self, case):
        # What a key's bias adds to all scores changes nothing.
        self.compare_case(case, lambda: GPT2LMHeadModel(GPT2Config(bos_token_id=None, eos_token_id=None, **case.sizes)),
                          ours_of_gpt2, ("attention.key.bias",))

    def compare_llama(self, case):
        self.compare_case(case, lambda: LlamaForCausalLM(LlamaConfig(bos_token_id=None, eos_token_id=None,
                                                                     **case.sizes)), ours_of)

    def test_gpt2(self):
        self.compare_gpt2(Case(dict(n_layer=3, n_embd=32, n_head=4, vocab_size=61, n_positions=12), 2, 5))

    def test_untied_gpt2(self):
        self.compare_gpt2(Case(dict(n_layer=2, n_embd=24, n_head=3, n_inner=40, vocab_size=50, n_positions=9,
                                    layer_norm_epsilon=1e-3, tie_word_embeddings=False), 1, 4, torch.float16))

    def test_gpt2_of_more_positions_than_a_tile(self):
        self.compare_gpt2(Case(dict(n_layer=2, n_embd=24, n_head=2, vocab_size=300, n_positions=150), 1, 3))

    def test_gpt2_of_large_epsilon(self):
        self.compare_gpt2(Case(dict(n_layer=1, n_embd=16, n_head=1, vocab_size=20, n_positions=7,
                                    layer_norm_epsilon=0.3), 1, 4))

    def test_llama(self):
        self.compare_llama(Case(dict(num_hidden_layers=3, hidden_size=48, num_attention_heads=6, num_key_value_heads=2,
                                     intermediate_size=80, vocab_size=61, max_position_embeddings=12,
                                     rms_norm_eps=1e-5), 2, 5, torch.bfloat16))

    def test_tied_llama_of_one_key_head(self):
        self.compare_llama(Case(dict(num_hidden_layers=2, hidden_size=32, num_attention_heads=4, num_key_value_heads=1,
                                     intermediate_size=56, vocab_size=50, max_position_embeddings=9,
                                     tie_word_embeddings=True), 1, 4))

    def test_llama_of_more_positions_than_a_tile(self):
        self.compare_llama(Case(dict(num_hidden_layers=2, hidden_size=32, num_attention_heads=4, num_key_value_heads=2,
                                     intermediate_size=48, vocab_size=300, max_position_embeddings=150,
                                     rope_parameters={"rope_theta": 500.0, "rope_type": "default"}), 1, 3))

    def test_llama_of_biases_and_large_epsilon(self):
        self.compare_llama(Case(dict(num_hidden_layers=2, hidden_size=32, num_attention_heads=4, num_key_value_heads=4,
                                     intermediate_size=48, vocab_size=20, max_position_embeddings=14, rms_norm_eps=0.3,
                                     attention_bias=True, mlp_bias=True), 2, 2))


if __name__ == "__main__":
    ProgramTest.program = Path(sys.argv[2]).resolve()
    model_comparison.main(sys.argv[1])
