"""The memory of a Megatron or FSDP program. Nothing here is fitted.

Activations follow Korthikanti et al., arXiv:2205.05198, equations 1 to 6, with each program's own kept bytes
(profiles.json): of a token, `hidden` bytes a unit of width that tensor ranks do not split (unless sequence parallelism
does), `heads` bytes a unit of what attention works on (queries, keys, values and its output, where there are as many
keys as queries), `ffn` bytes a unit of the feed-forward width, and `scores` bytes a score.
"""

import copy
import math

GIB = 2.0 ** 30
# What a process cannot use of its GPU: its context, communicators, fragments between tensors. GiB.
APART = 3.0


def held(row, ends):
    """Weights of a stage, and of so many matrices of the vocabulary, on a tensor rank."""
    layers = math.ceil(row.layers / row.pipeline)
    return (row.layer_parameters * layers + ends * row.vocabulary * row.hidden) / row.tensor


def states(row, profile):
    """Bytes of weights, gradients and optimizer on a rank of the first stage."""
    if "matrices" in row.options:  # figures that count the layers' matrices alone
        weights = row.matrix_parameters * math.ceil(row.layers / row.pipeline) / row.tensor
    else:
        weights = held(row, 1 if row.pipeline > 1 or row.tied else 2)
    ranks = row.data * row.context
    of_weights = profile["weight"] / (ranks if row.shard >= 3 or "gathered" in profile else 1)
    of_gradients = profile["gradient"] / (ranks if row.shard >= 2 else 1)
    total = weights * (of_weights + of_gradients + profile["optimizer"] / (ranks if row.shard >= 1 else 1))
    if row.shard == 2 and "gathered" in profile:  # whole for the step, in a pipeline
        total += weights * profile["gathered"]
    return total


def layer_activations(row, profile, recompute=None):
    """Bytes that a layer keeps of a micro-batch for its backward pass."""
    recompute = recompute or row.recompute
    tokens, h = row.micro * row.sequence // row.context, row.hidden
    spread = row.tensor if row.sequence_parallel else 1
    if recompute == "full":
        return 2.0 * tokens * h / spread
    kept = dict(profile["kept"])
    if recompute == "selective":
        kept.update(profile.get("kept_selective", {}), scores=0)
    if row.context > 1 and not profile["overlap"]:  # attention's output before and after its all-to-all
        kept["heads"] += 8 / (2 + 2 * row.kv_heads / row.heads)
    split = kept["heads"] * h * (2 + 2 * row.kv_heads / row.heads) / 4 + kept["ffn"] * row.ffn
    return tokens * (kept["hidden"] * h / spread + (split + kept["scores"] * row.heads * row.sequence) / row.tensor)


def activations(row, profile):
    """Bytes of activations on the first stage when the pipeline is full."""
    layers = math.ceil(row.layers / row.pipeline)
    micro_batches = max(1, row.batch // (row.data * row.micro))
    if row.pipeline == 1:
        alive = 1.0
    elif row.chunks == 1:
        alive = min(row.pipeline, micro_batches)
    else:
        alive = row.pipeline * (1 + (row.pipeline - 1) / (row.pipeline * row.chunks))
    return layer_activations(row, profile) * layers * alive


def backward_of_layer(row, profile):
    """Bytes while a layer's gradients are computed: those of its feed-forward values, and what is recomputed."""
    tokens = row.micro * row.sequence // row.context
    bytes_ = tokens * row.ffn * (4 + 2 * row.gated) / row.tensor
    if row.recompute != "none":
        bytes_ += layer_activations(row, profile, "none") - layer_activations(row, profile)
    if row.shard == 3:  # the weights of two layers and the gradients of one
        bytes_ += row.layer_parameters / row.tensor * (4 + profile["gradient_sent"])
    return bytes_


def of_loss(row, profile):
    """Bytes while the loss and the last layer's gradients are computed: logits, its input whole, its weights."""
    tokens = row.micro * row.sequence // row.context
    bytes_ = tokens * row.vocabulary / row.tensor * profile["compiled_loss_kept" if "l" in row.options else "loss_kept"]
    bytes_ += 6.0 * tokens * row.hidden
    last = row.vocabulary * row.hidden / row.tensor
    if row.shard == 3:
        bytes_ += last * (2 + profile["gradient_sent"])
    return bytes_ + last * profile["spare_gradients"]


def largest(row, profile):
    """Bytes of the rank that needs the most: on the first stage, or where the loss is."""
    spare = profile["spare_gradients"] * row.layer_parameters / row.tensor
    first = states(row, profile) + spare + activations(row, profile)
    if row.pipeline == 1:
        return first + max(of_loss(row, profile), backward_of_layer(row, profile))
    layers = math.ceil(row.layers / row.pipeline)
    last = states(row, profile) + spare + layer_activations(row, profile) * layers + of_loss(row, profile)
    return max(first + backward_of_layer(row, profile), last)


def fits(row, profile, device):
    return largest(row, profile) / GIB <= device.memory - APART


def activation_share(row, profile):
    """Activations beside those without recomputation and sequence parallelism."""
    plain = copy.copy(row)
    plain.recompute, plain.sequence_parallel = "none", 0
    return activations(row, profile) / activations(plain, profile)
