"""Files of named arrays, as named_arrays.h reads and writes them."""
import struct
from pathlib import Path

import torch


def write(path, arrays):
    with open(path, "wb") as file:
        for name, values in arrays.items():
            values = values.detach().to(torch.float32).contiguous().flatten()
            file.write(struct.pack("<I", len(name)) + name.encode() + struct.pack("<Q", values.numel()))
            file.write(values.numpy().tobytes())


def read(path):
    arrays, data, at = {}, Path(path).read_bytes(), 0
    while at < len(data):
        length, = struct.unpack_from("<I", data, at)
        name = data[at + 4:at + 4 + length].decode()
        count, = struct.unpack_from("<Q", data, at + 4 + length)
        at += 12 + length
        arrays[name] = torch.frombuffer(bytearray(data[at:at + 4 * count]), dtype=torch.float32).double()
        at += 4 * count
    return arrays
