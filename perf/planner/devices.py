"""Devices and networks of the published runs, from their data sheets, and the constants that are fitted to them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Device:
    peak: dict  # FLOP/s of products without sparsity, by type
    memory_rate: float  # bytes/s
    memory: float  # GiB
    multiprocessors: int
    guesses: tuple = (0.78, 0.50)  # first ones of `product` and `attention`


@dataclass(frozen=True)
class Network:
    node: int  # GPUs of a node
    link: float  # bytes/s out of a GPU to others of its node
    nic: float  # bytes/s out of a node, for each of its GPUs


# Hopper's clocks fall under load: on the H200 of perf/RESULTS.md large products reach 0.81 of the peak, attention 0.32.
HOPPER = (0.72, 0.32)
SLOWER_HOPPER = (0.64, 0.285)  # at 500 W of 700: clocks by the cube root
BLACKWELL = (0.65, 0.50)

DEVICES = {
    "v100-32g": Device({"fp16": 125e12}, 0.9e12, 32, 80),
    "a100-40g": Device({"fp16": 312e12, "bf16": 312e12}, 1.555e12, 40, 108),
    "a100-80g": Device({"fp16": 312e12, "bf16": 312e12}, 2.039e12, 80, 108),
    "h100-80g": Device({"bf16": 989.4e12, "fp8": 1978.9e12}, 3.35e12, 80, 132, HOPPER),
    "h100-96g": Device({"bf16": 989.4e12, "fp8": 1978.9e12}, 2.4e12, 96, 132, SLOWER_HOPPER),
    "h200": Device({"bf16": 989.4e12, "fp8": 1978.9e12}, 4.8e12, 141, 132, HOPPER),
    "b200": Device({"bf16": 2250e12, "fp8": 4500e12}, 8.0e12, 180, 148, BLACKWELL),
}

NETWORKS = {
    "dgx-2h": Network(16, 150e9, 12.5e9),
    "a100-hdr": Network(8, 300e9, 25e9),
    "a100-roce": Network(8, 300e9, 25e9),
    "h100-ndr": Network(8, 450e9, 50e9),
    "h100-400g": Network(8, 450e9, 50e9),
    "h200-400g": Network(8, 450e9, 50e9),
    "nvlink5": Network(8, 900e9, 50e9),
}

# What is fitted: (name, first guess, how far it is believed to lie from it: the deviation of its logarithm).
DEVICE_CONSTANTS = (
    ("product", 0.78, 0.15),  # the share of the peak that large products reach
    ("memory", 0.85, 0.12),  # the share of memory_rate that operations reach which it bounds
    ("attention", 0.50, 0.25),  # the share of the peak that fused attention reaches forward
    ("start", 3e-6, 0.5),  # seconds an operation takes beside its work
)
NETWORK_CONSTANTS = (
    ("link", 0.75, 0.15),  # the share of the rate within a node that long messages reach
    ("nic", 0.75, 0.25),  # the same out of a node
    ("hop", 15e-6, 0.7),  # seconds of a ring's step from node to node beside its bytes
)
PROGRAM_CONSTANTS = (
    ("pace", 1.05, 0.07),  # times as long as its operations take one after another: waits, stragglers, clocks
    ("bytes", 1.0, 0.25),  # times the bytes that the profile counts for operations which memory bounds
)
# The seconds of an operation besides: hops of a ring within a node and between nodes.
HOP = 1e-6
START = 15e-6


def beliefs(programs):
    """The first guess and the deviation of its logarithm, by the constant's name ("device.a100-80g.product")."""
    found = {}
    for kind, names, constants in (("device", DEVICES, DEVICE_CONSTANTS), ("network", NETWORKS, NETWORK_CONSTANTS),
                                   ("program", programs, PROGRAM_CONSTANTS)):
        for name in names:
            for constant, value, deviation in constants:
                found[f"{kind}.{name}.{constant}"] = (value, deviation)
    for name, device in DEVICES.items():
        for constant, value in zip(("product", "attention"), device.guesses):
            found[f"device.{name}.{constant}"] = (value, found[f"device.{name}.{constant}"][1])
    return found
