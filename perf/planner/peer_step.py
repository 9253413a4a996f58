"""The step time of a Megatron or FSDP program, by a closed form of its layers' operations.

A `Workload` is what a row computes and sends: the same for all constants. `seconds` costs it. Where products, bytes and
messages come from is told beside them; what differs between programs is in profiles.json.
"""

import math
from dataclasses import dataclass, field

from devices import DEVICES, HOP, NETWORKS, START

# Tiles of products, and the share of the rate that one of such a size reaches.
TILES = ((256, 128, 1.0), (128, 256, 1.0), (128, 128, 0.95), (128, 64, 0.80), (64, 64, 0.60))
DEPTH = 96  # a product's depth at which its beginning and end take as long as its middle
BACKWARD_ATTENTION = 2.5 * 1.15  # times the forward one: five products for two, at a lower rate
OLD_ATTENTION = 0.70  # FlashAttention's first version, of the rate of its second one
HIDDEN_WHERE_ASYNC = 0.6  # the share of tensor parallel communication that asynchronous products hide
CAST_BYTES = 6  # a value that is made float8: its largest is found, then it is read and written
CROWD = 0.30  # communication that is hidden slows the operations beside it by this share


@dataclass
class Part:
    """Operations one after another."""
    products: list = field(default_factory=list)  # (seconds at the peak, seconds of its bytes), at full rate
    bytes: float = 0.0
    attention: float = 0.0  # seconds at the peak
    operations: float = 0.0

    def seconds(self, device, more):
        product, memory, attention, start = device
        work = sum(max(at_peak / product, of_bytes / memory) for at_peak, of_bytes in self.products)
        return work + self.bytes * more / memory + self.attention / attention + self.operations * start

    def add(self, other, times=1.0, products=1.0):
        self.products += [(a * times * products, b * times * products) for a, b in other.products]
        self.bytes += other.bytes * times
        self.attention += other.attention * times
        self.operations += other.operations * times
        return self


def product(part, device, kind, m, n, k, batch=1):
    """Adds a product of an m x k and a k x n matrix, `batch` of them."""
    best = 0.0
    for height, width, rate in TILES:
        tiles = math.ceil(m / height) * math.ceil(n / width) * batch
        waves = math.ceil(tiles / device.multiprocessors)
        used = m * n * batch / (waves * device.multiprocessors * height * width)
        best = max(best, used * rate)
    at_peak = 2.0 * m * n * k * batch / device.peak[kind] / best * (1 + DEPTH / k)
    part.products.append((at_peak, 2.0 * (m * k + k * n + m * n) * batch / device.memory_rate))
    part.operations += 1


def linear(parts, device, kind, tokens, width, depth):
    """A linear layer: forward, the gradients of its input and of its weights."""
    product(parts[0], device, kind, tokens, width, depth)
    product(parts[1], device, kind, tokens, depth, width)
    product(parts[1], device, kind, depth, width, tokens)


def layer(row, profile, device):
    """(forward, backward, attention's core forward) of a layer and a micro-batch."""
    t, c, h, f = row.tensor, row.context, row.hidden, row.ffn
    tokens = row.micro * row.sequence // c
    head = h // row.heads
    parts, core = (Part(), Part()), Part()
    qkv = h + 2 * row.kv_heads * head
    for width, depth in ((qkv / t, h), (h, h / t), (f * (1 + row.gated) / t, h), (h, f / t)):
        linear(parts, device, row.type, tokens, int(width), int(depth))
    if row.type == "fp8":
        values = tokens * (2 * h + h / t + f / t)
        parts[0].bytes += CAST_BYTES * values / device.memory_rate
        parts[1].bytes += CAST_BYTES * (values + tokens * (h + qkv / t + f * (1 + row.gated) / t)) / device.memory_rate
    attend(row, profile, device, parts, core)
    spread = t if row.sequence_parallel else 1
    for part, side in zip(parts, (0, 1)):
        values = profile["hidden_bytes"][side] * h / spread + profile["ffn_bytes"][side] * f / t \
            + profile["attention_bytes"][side] * h / t
        part.bytes += tokens * values / device.memory_rate
        part.operations += profile["kernels"][side]
    return parts[0].add(core), parts[1], core


def attend(row, profile, device, parts, core):
    heads, head, s = row.heads / row.tensor / row.context, row.hidden // row.heads, row.sequence
    if row.attention == "unfused":
        batch = max(1, round(row.micro * heads))
        product(core, device, row.type, s, s, head, batch)
        product(core, device, row.type, s, head, s, batch)
        for m, n, k in ((s, head, s), (s, s, head), (s, head, s), (s, head, s)):
            product(parts[1], device, row.type, m, n, k, batch)
        scores = batch * s * s / device.memory_rate
        core.bytes += profile["score_bytes"][0] * scores
        parts[1].bytes += profile["score_bytes"][1] * scores
        return
    kind = "bf16" if row.type == "fp8" else row.type
    work = 4.0 * row.micro * heads * head * s * s / 2 / device.peak[kind]
    if row.attention == "flash1":
        work /= OLD_ATTENTION
    core.attention += work
    core.operations += 1
    parts[1].attention += work * BACKWARD_ATTENTION
    parts[1].operations += 2


@dataclass
class Workload:
    row: object
    profile: dict
    forward: Part = None  # of a layer and a micro-batch
    backward: Part = None  # with what is recomputed
    head: Part = None  # the last layer and the loss, forward and backward
    update: Part = None
    layers: int = 0  # of the fullest stage
    micro_batches: int = 0
    parameters: float = 0.0  # of a layer on a rank that holds it whole
    ends: float = 0.0  # of embedding and head


def workload(row, profile):
    device = DEVICES[row.device]
    if "c" in row.options and "compiled" in profile:
        profile = {**profile, **profile["compiled"]}
    made = Workload(row, profile)
    made.forward, made.backward, core = layer(row, profile, device)
    if row.recompute == "full":
        made.backward.add(made.forward)
        if profile["stops_early"]:  # before the layer's last product, whose output nothing needs again
            made.backward.products.remove(made.forward.products[3])
    elif row.recompute == "selective" and row.attention == "unfused":
        made.backward.add(core)
    elif row.recompute == "selective":  # every second product is kept, and attention
        again = Part(list(made.forward.products), made.forward.bytes, 0.0, made.forward.operations)
        made.backward.add(again, products=0.5)
    made.layers = math.ceil(row.layers / row.pipeline)
    made.micro_batches = max(1, round(row.batch / (row.data * row.micro)))
    made.head = Part()
    tokens = row.micro * row.sequence // row.context
    halves = (made.head, made.head)
    kind = "bf16" if row.type == "fp8" else row.type
    linear(halves, device, kind, tokens, math.ceil(row.vocabulary / row.tensor), row.hidden)
    made.head.bytes += tokens * row.vocabulary / row.tensor * profile["loss_bytes"] / device.memory_rate
    made.head.operations += 12
    made.parameters = row.layer_parameters / row.tensor
    made.ends = row.vocabulary * row.hidden / row.tensor
    held = made.parameters * made.layers + made.ends * (2 if row.pipeline == 1 else 1)
    made.update = Part(bytes=held / (row.data if row.shard else 1) * profile["update_bytes"] / device.memory_rate)
    made.update.operations = 50
    return made


class Links:
    """What messages take on a network with its constants."""

    def __init__(self, network, constants, row):
        self.link, self.nic = network.link * constants[0], network.nic * constants[1]
        self.hop, self.start = constants[2], START
        self.node, self.row = network.node, row

    def within(self, ranks, size, passes):
        """A ring of ranks of a node: 1 pass gathers or scatters `size` bytes, 2 reduce them for all."""
        if ranks == 1:
            return 0.0
        return self.start + passes * (ranks - 1) * (size / ranks / self.link + HOP)

    def across(self, ranks, stride, size, passes):
        """A ring of ranks that lie `stride` apart; all groups of a node share its links."""
        if ranks == 1:
            return 0.0
        of_node = max(1, min(ranks, self.node // stride))
        if ranks <= of_node:
            return self.within(ranks, size, passes)
        rate = min(self.nic * of_node, self.link)
        hops = HOP * (ranks - ranks / of_node) + self.hop * ranks / of_node
        return self.start + passes * ((ranks - 1) / ranks * size / rate + hops)

    def message(self, size, stride):
        return self.start + size / (self.link if stride < self.node else self.nic)


def tensor_seconds(made, links):
    """(forward, backward with what is recomputed) of a layer's communication among tensor and context ranks."""
    row = made.row
    tokens = row.micro * row.sequence // row.context
    one = 2 * links.within(row.tensor, 2.0 * tokens * row.hidden, 2)
    if row.sequence_parallel and row.tensor > 1:
        one += 2 * links.start
    forward, backward = one, one * (0.5 if made.profile["hides_tensor_gradient"] else 1.0)
    if row.recompute == "full" or (row.recompute == "selective" and row.attention != "unfused"):
        backward += forward
    if "overlap" in row.options or "a" in row.options:
        forward, backward = forward * (1 - HIDDEN_WHERE_ASYNC), backward * (1 - HIDDEN_WHERE_ASYNC)
    if row.context > 1 and not made.profile["overlap"]:  # all-to-all of queries, keys and values, and of the output
        shared = 2.0 * tokens * (row.hidden * 2 + 2 * row.kv_heads * row.hidden // row.heads) / row.tensor
        exchange = 4 * links.start + shared * (row.context - 1) / row.context / links.link
        forward, backward = forward + exchange, backward + exchange
    return forward, backward


def seconds(made, constants, detail=None):
    """The step's seconds. constants(kind, name) gives a kind's fitted values in their order."""
    row, profile = made.row, made.profile
    device = constants("device", row.device)
    pace, more = constants("program", profile["constants"])
    links = Links(NETWORKS[row.network], constants("network", row.network), row)
    forward = made.forward.seconds(device, more) * pace
    backward = made.backward.seconds(device, more) * pace
    head = made.head.seconds(device, more) * pace
    sent = tensor_seconds(made, links)
    update = made.update.seconds(device, 1.0)
    if row.shard >= 2 and row.pipeline == 1:
        step = sharded(made, links, forward + sent[0], backward + sent[1], head) + update
    else:
        step = pipelined(made, links, forward + backward + sum(sent), head, detail) + update
        step += reduction(made, links, backward + sent[1])
    if detail is not None:
        detail.update(forward=forward, backward=backward, head=head, tensor=sum(sent), update=update, step=step)
    return step


def pipelined(made, links, of_layer, head, detail):
    row = made.row
    stage = of_layer * made.layers
    if row.pipeline == 1:
        return made.micro_batches * (stage + head)
    tokens = row.micro * row.sequence // row.context
    message = links.message(2.0 * tokens * row.hidden / row.tensor, row.tensor * row.data * row.context)
    if not row.sequence_parallel:
        message += links.within(row.tensor, 2.0 * tokens * row.hidden, 1)
    exchange = 0.0 if "overlap" in row.options else 2 * row.chunks * message
    whole = stage + exchange
    bubble = (row.pipeline - 1) * (stage / row.chunks + 2 * message)
    if detail is not None:
        detail.update(bubble=bubble, messages=exchange * made.micro_batches)
    return made.micro_batches * (whole + head) + bubble


def reduction(made, links, backward):
    """What stays exposed of the reduction of gradients, and of gathering the weights that ranks update for others."""
    row, profile = made.row, made.profile
    held = made.parameters * made.layers + made.ends * (2 if row.pipeline == 1 else 1)
    ranks = row.data * row.context
    once = links.across(ranks, row.tensor, profile["gradient_sent"] * held, 1)
    again = links.across(ranks, row.tensor, (2 if row.shard else profile["gradient_sent"]) * held, 1)
    if profile["overlap"]:
        window = backward * made.layers
        return max(once - window, once * 0.05) + max(again - window, again * 0.05)
    return once + again


def sharded(made, links, forward, backward, head):
    """Each layer's weights are gathered while the one before computes, and its gradients scattered."""
    row = made.row
    ranks = row.data * row.context
    amp = "amp" in row.options or row.program == "torchtitan"
    gather = links.across(ranks, row.tensor, 2.0 * made.parameters, 1)
    scatter = links.across(ranks, row.tensor, (4.0 if amp else 2.0) * made.parameters, 1)
    ahead = links.across(ranks, row.tensor, 2.0 * made.ends, 1)
    again = gather if row.shard == 3 else 0.0

    def beside(compute, communication):
        hidden = min(compute, communication)
        return max(compute, communication) + CROWD * hidden

    step = made.layers * (beside(forward, gather) + beside(backward, again + scatter))
    step += beside(head, ahead) + gather
    return made.micro_batches * step + scatter + ahead
