"""Asks our own program what a row's step would take: `trireme plan` with its layout given.

Our program is not those that ran the rows: where it computes in another way, the difference is its own.
"""

import json
import pathlib
import subprocess
import tempfile

GPUS = {"v100-32g": "v100-dgx2h", "a100-40g": "a100-40", "a100-80g": "a100-80", "h100-80g": "h100", "h200": "h200",
        "b200": "b200"}
NETWORKS = {"dgx-2h": "edr100-fat-tree", "a100-hdr": "hdr200-fat-tree", "a100-roce": "roce200-leaf-spine",
            "h100-ndr": "ndr400-fat-tree", "h200-400g": "ndr400-fat-tree", "nvlink5": "ndr400-fat-tree"}


def why_not(row):
    if row.device not in GPUS or row.network not in NETWORKS:
        return "no description of its device"
    if row.context > 1 or row.type == "fp8":
        return "context parallelism and float8 are not ours"
    if "matrices" in row.options or not (row.seconds or row.memory_gib or row.out_of_memory):
        return "no step was published"
    return None


def flags(row):
    schedule = "1f1b" if row.chunks == 1 else "interleaved"
    given = {
        "model.layers": row.layers, "model.width": row.hidden, "model.heads": row.heads, "model.kv_heads": row.kv_heads,
        "model.hidden": row.ffn, "model.context": row.sequence, "model.vocabulary": row.vocabulary,
        "model.tied": "true" if row.tied else "false", "batch.global": row.batch, "batch.micro": row.micro,
        "grid.data": row.data, "grid.tensor": row.tensor, "grid.pipeline": row.pipeline, "shard.stage": row.shard,
        "recompute.mode": row.recompute, "run.precision": row.type, "run.device": "cuda",
    }
    if row.gated:
        given.update({"model.norm": "rms", "model.activation": "swiglu", "model.positions": "rotary",
                      "model.bias": "false"})
    if row.pipeline > 1:
        given.update({"grid.schedule": schedule, "grid.chunks": row.chunks})
    if row.tensor > 1:
        given["grid.sequence_parallel"] = "true" if row.sequence_parallel else "false"
    return [word for name, value in given.items() for word in (f"--{name}", str(value))]


def ask(row, program, folder):
    """(seconds, bytes, why there are none)."""
    node = 16 if row.network == "dgx-2h" else 8
    path = folder / "plan.json"
    command = [program, "plan", "--gpu", GPUS[row.device], "--network", NETWORKS[row.network], "--nodes",
               max(1, row.gpus // node), "--ranks-per-node", min(node, row.gpus), "--best", 1, "--json", path,
               *flags(row)]
    path.unlink(missing_ok=True)
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines() or [f"status {done.returncode}"]
        return None, None, lines[-1]
    best = json.loads(path.read_text(encoding="utf-8"))["points"][0]["layouts"][0]
    return best["step_s"], best["bytes"], None


def predictions(rows, program):
    """(row, seconds, bytes, why there are none) of each row."""
    if not pathlib.Path(program).exists():
        raise SystemExit(f"{program}: no such program; build it, or name another with --program")
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for row in rows:
            why = why_not(row)
            found.append((row, None, None, why) if why else (row, *ask(row, program, pathlib.Path(folder))))
    return found
