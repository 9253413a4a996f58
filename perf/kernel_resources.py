#!/usr/bin/env python3
"""Writes three tables: what the compiler says of each kernel, and what each operation must move.

    perf/kernel_resources.py [--arch 90a] [--output FOLDER]

kernel_registers.tsv  registers, bytes of static shared memory, of stack per thread, and of spills of each kernel
kernel_traffic.tsv    bytes of device memory and arithmetic of each operation; e is the bytes of the type, 2 or 4
kernel_floors.tsv     least microseconds of operations on GPUs, bytes over the bandwidth of a copy: shapes of GPT-2
                      124M with 64 sequences of 1024 and of MobileNetV2 with 256 pictures of 224 x 224; the loss works
                      in slices of 13120 rows, or of 16384 with logits in bf16

Needs nvcc (in the PATH, below CUDA_HOME, or in /usr/local/cuda) and no GPU. Kernels for a type that
is known at run time only (Any) are left out, but for attention's: they serve calls that mix types.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FLAGS = ["-std=c++20", "-O3", "-DNDEBUG", "--expt-relaxed-constexpr", "-cubin", "-Xptxas=-v",
         f"-I{ROOT}/include", f"-I{ROOT}/src"]

# Bytes of device memory per element and arithmetic per element; e is the bytes of the type (2 or 4).
# The second column says what an element is.
OPERATIONS = [
    ("fill", "element", "e", "0"),
    ("cast", "element", "e + e'", "0"),
    ("add", "element", "3e", "1"),
    ("scale", "element", "2e", "1"),
    ("add_bias", "element", "2e", "1"),
    ("add_column_sums", "element", "e; nothing in the backward of a layer norm of 16 bits", "1"),
    ("gelu / backward", "element", "2e / 3e", "about 20 / 30"),
    ("gelu_erf / backward", "element", "2e / 3e", "about 25 / 35"),
    ("clamp / backward", "element", "2e / 3e", "2"),
    ("swiglu / backward", "element of y", "3e / 5e", "about 15 / 20"),
    ("geglu / backward", "element of y", "3e / 5e", "about 22 / 40"),
    ("dropout", "element", "2e", "about 25, integer"),
    ("layer_norm, rms_norm", "element of x", "2e", "8"),
    ("their backward, input", "element of x", "3e, or 4e when added to another gradient of x", "10"),
    ("their backward, weight", "element of x", "2e", "4"),
    ("their backward, both", "element of x", "3e, or 4e when added to another gradient of x", "14"),
    ("add_layer_norm, add_rms_norm", "element of x", "4e", "9"),
    ("batch_moments", "element of x", "e", "3"),
    ("batch_norm", "element of x", "2e, 3e with a residual", "4"),
    ("batch_norm_backward_sums", "element of x", "2e, 3e with a residual", "6"),
    ("batch_norm_backward", "element of x", "3e, 5e with a residual", "8"),
    ("depthwise / backward, input", "element of y", "e + e x stride squared", "2 x taps of the kernel"),
    ("depthwise_backward_weight", "element of y", "e + e x stride squared", "2 x taps of the kernel"),
    ("depthwise_backward, both", "element of y", "e + 2e x stride squared", "4 x taps of the kernel"),
    ("normed_depthwise", "element of y", "e + e x stride squared", "2 x taps of the kernel, 4 for x and 3 for y"),
    ("normed_depthwise_backward, both", "element of y", "e + 2e x stride squared",
     "4 x taps of the kernel, 8 for x"),
    ("unfold", "element of a patch", "e, and x once", "0"),
    ("fold", "element of a patch", "4, and x once", "1"),
    ("max_pooling / backward", "element of y", "e + 4 + e x stride squared", "taps of the kernel"),
    ("average_pooling / backward", "element of y", "e + e x stride squared", "taps of the kernel"),
    ("embedding", "element of y", "2e", "0"),
    ("embedding_backward", "element of dy", "e + 8 for each row of the table that occurs", "1"),
    ("copy_rows", "element of y", "2e", "0"),
    ("add_positions", "element of x", "2e, the table once", "1"),
    ("add_positions_backward", "element of dy", "e + 8 / samples", "1"),
    ("bend_logits", "logit", "8, 4 in bf16", "about 20"),
    ("softmax_statistics", "logit", "4, 2 in bf16", "about 12"),
    ("softmax_gradient", "logit", "4 + e, 4 in bf16", "about 12"),
    ("softmax_and_gradient", "logit", "4 + e, 4 in bf16; what does not fit is read twice", "about 15, 20 in bf16"),
    ("softmax_loss_sum", "row", "16", "a logarithm in double"),
    ("rotary", "element of queries and keys", "2e", "3"),
    ("head_squares, head_norm_dots", "element of queries and keys", "e, 2e", "2, 3"),
    ("head_norm / backward, input", "element of qkv", "2e / 3e", "3 / 6"),
    ("head_norm_backward_weight", "element of queries and keys", "2e", "3"),
    ("adamw_step", "parameter", "28 + e", "about 32"),
    ("sgd_step", "parameter", "20 + e (12 + e without momentum)", "about 10"),
    ("add_sum_of_squares", "element", "4", "2, in double"),
    ("quantize", "element", "12 + bits / 8", "about 8"),
    ("dequantize", "element", "4 + bits / 8", "4"),
    ("scale_blocks", "element", "3, 4 with both copies; and 4 for each scale", "about 10"),
    ("attention", "(query, visible key, head)", "4e x head size per query row",
     "4 x head size"),
    ("attention_backward", "(query, visible key, head)", "8e x head size per query row",
     "14 x head size: 7 products, where 5 would do if a kernel could own keys and queries"),
]

# Operation, what it works on, elements, bytes per element: a step of GPT-2 124M, bf16, B=64, T=1024,
# and of MobileNetV2's second stage, B=256.
ROWS = 64 * 1024
PIXELS = 256 * 56 * 56
FLOORS = [
    ("layer_norm", "65536 x 768, bf16", ROWS * 768, 4),
    ("add_layer_norm", "65536 x 768, bf16", ROWS * 768, 8),
    ("layer_norm_backward_input", "65536 x 768, bf16", ROWS * 768, 6),
    ("the same, onto a gradient", "65536 x 768, bf16", ROWS * 768, 8),
    ("layer_norm_backward_weight", "65536 x 768, bf16", ROWS * 768, 4),
    ("layer_norm_backward, onto a gradient", "65536 x 768, bf16", ROWS * 768, 8),
    ("gelu", "65536 x 3072, bf16", ROWS * 3072, 4),
    ("gelu_backward", "65536 x 3072, bf16", ROWS * 3072, 6),
    ("add", "65536 x 768, bf16", ROWS * 768, 6),
    ("add_column_sums", "65536 x 3072, bf16", ROWS * 3072, 2),
    ("batch_moments", "802816 x 144, bf16", PIXELS * 144, 2),
    ("batch_norm", "802816 x 144, bf16", PIXELS * 144, 4),
    ("batch_norm_backward_sums", "802816 x 144, bf16", PIXELS * 144, 4),
    ("batch_norm_backward", "802816 x 144, bf16", PIXELS * 144, 6),
    ("depthwise", "256 x 56 x 56 x 144, bf16", PIXELS * 144, 4),
    ("depthwise_backward, both", "256 x 56 x 56 x 144, bf16", PIXELS * 144, 6),
    ("normed_depthwise", "256 x 56 x 56 x 144, bf16", PIXELS * 144, 4),
    ("normed_depthwise_backward, both", "256 x 56 x 56 x 144, bf16", PIXELS * 144, 6),
    ("softmax_statistics", "13120 x 50304, fp32", 13120 * 50304, 4),
    ("softmax_gradient", "13120 x 50304, fp32 to bf16", 13120 * 50304, 6),
    ("softmax_and_gradient", "13120 x 50304, fp32 to bf16", 13120 * 50304, 6),
    ("softmax_and_gradient", "16384 x 50304, bf16", 16384 * 50304, 4),
    ("embedding_backward", "65536 x 768, bf16, every row of 50304", ROWS * 768 + 50304 * 768 * 4, 2),
    ("adamw_step", "124 million, bf16 weights", 124_439_808, 30),
    ("add_sum_of_squares", "124 million", 124_439_808, 4),
]
# Bytes per second of a copy, read plus written: what `trireme bench` measured on an H200, and for the others
# the share of the data sheet's bandwidth that it reaches.
H200_COPY, H200_SHEET = 3.95e12, 4.8e12
COPIES = {"A100 80GB": H200_COPY / H200_SHEET * 2.039e12, "H100 SXM": H200_COPY / H200_SHEET * 3.35e12,
          "H200": H200_COPY, "B200": H200_COPY / H200_SHEET * 8.0e12}


def find_nvcc():
    found = shutil.which("nvcc")
    for home in (os.environ.get("CUDA_HOME"), "/usr/local/cuda"):
        if not found and home and Path(home, "bin/nvcc").exists():
            found = str(Path(home, "bin/nvcc"))
    return found


def compiler_report(nvcc, arch, source, folder):
    command = [nvcc, *FLAGS, f"-gencode=arch=compute_{arch},code=sm_{arch}", str(source), "-o",
               str(Path(folder, source.stem + ".cubin"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{source.name} does not compile:\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def short_name(symbol):
    """attention_kernel<AttentionTile<4, 4> > of the demangled symbol."""
    name = re.sub(r"\(anonymous namespace\)::|\w+::", "", symbol)
    depth, end = 0, len(name)
    for at, letter in enumerate(name):
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and depth == 0:
            end = at
            break
    name = re.sub(r"^void ", "", name[:end])
    for cpp, short in (("BFloat16", "bf16"), ("Half", "fp16"), ("float", "fp32"),
                       ("(RowParts)", "parts ")):
        name = name.replace(cpp, short)
    return name


def kernels_of(report):
    """(name, registers, shared bytes, stack, spilled bytes) of each kernel of a report."""
    symbols, facts = [], []
    for part in report.split("Compiling entry function '")[1:]:
        symbols.append(part.split("'")[0])
        stack = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill",
                          part)
        used = re.search(r"Used (\d+) registers", part)
        shared = re.search(r"(\d+) bytes smem", part)
        facts.append((int(used[1]), int(shared[1]) if shared else 0, int(stack[1]),
                      int(stack[2]) + int(stack[3])))
    plain = subprocess.run(["c++filt"], input="\n".join(symbols), capture_output=True, text=True,
                           check=True).stdout.splitlines()
    return sorted((short_name(name), *fact) for name, fact in zip(plain, facts))


def resources(reports):
    seen = set()  # one of a header is in several files
    for source, report in reports:
        for name, registers, shared, stack, spilled in kernels_of(report):
            if "Any" in name or name in seen:
                continue
            seen.add(name)
            yield source, name, registers, shared, stack, spilled


def floors():
    for name, shape, elements, size in FLOORS:
        moved = elements * size
        yield name, shape, f"{moved / 1e6:.0f}", *(f"{moved / copy * 1e6:.0f}" for copy in COPIES.values())


def write_table(path, columns, rows):
    lines = ("\t".join(map(str, row)) for row in (columns, *rows))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--arch", default="90a")
    parser.add_argument("--output", default=str(ROOT / "perf/raw"), metavar="FOLDER")
    options = parser.parse_args()
    nvcc = find_nvcc()
    if nvcc is None:
        print("there is no nvcc in the PATH, below CUDA_HOME or in /usr/local/cuda")
        sys.exit(77)
    version = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True)
    version = "nvcc " + re.search(r"V([\d.]+)", version.stdout)[1]
    sources = sorted((ROOT / "src/ops").glob("*_gpu.cu"))
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        texts = list(pool.map(lambda s: compiler_report(nvcc, options.arch, s, folder), sources))
    reports = [(source.name, text) for source, text in zip(sources, texts)]
    folder = Path(options.output)
    write_table(folder / "kernel_registers.tsv",
                (f"file ({version}, sm_{options.arch})", "kernel", "registers", "shared", "stack", "spills"),
                resources(reports))
    write_table(folder / "kernel_traffic.tsv", ("operation", "per", "bytes", "arithmetic"), OPERATIONS)
    write_table(folder / "kernel_floors.tsv", ("operation", "on", "MB", *(f"{gpu}, us" for gpu in COPIES)), floors())


if __name__ == "__main__":
    main()
