#!/usr/bin/env python3
"""Products of matrices of every preset by each engine that a CPU has, and which the program chooses.

usage: products.py [--dtype fp32|bf16] [--presets NAME,NAME...] [--rounds 5] [--threads N] [--program PROGRAM]
                   [--results FILE]

Each engine (TRIREME_MATMUL) measures all products of a preset (`trireme bench ops --products`), and they take turns for
so many rounds; the median of a product over the rounds counts. Two tables:

chosen and fastest   products for which the chosen engine takes more than 1.1 times the fastest one's time, beside the
                     spread: the chosen engine's slowest round over its fastest
ten worst            by the share of the floor: the longer of the product's arithmetic at the roof, and its bytes at the
                     memory's bandwidth. Both limits are the best that any engine reaches in the same round, since
                     machines drift
"""

import argparse
import collections
import json
import os
import pathlib
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "build/release/bin/trireme"
CHOSEN = "chosen"
# Engines of each type. In bf16 oneDNN has one way to a product.
ENGINES = {"fp32": (CHOSEN, "onednn-primitives", "onednn-sgemm", "own"), "bf16": (CHOSEN, "own")}
SLOW = 1.1
GOOD_SHARE = 0.85
LONG = 0.5  # seconds of all products of a preset

Product = collections.namedtuple("Product", "preset op shape")


def presets(program):
    """All of them, as the program names them to who asks for none of them."""
    refused = subprocess.run([program, "bench", "ops", "--preset", ""], capture_output=True, text=True, check=False)
    return refused.stderr.split("is not one of ")[1].strip().split(", ")


def measure(engine, preset, repeats, options):
    """Returns the roof and the rows of one run."""
    environment = dict(os.environ)
    environment.pop("TRIREME_MATMUL", None)
    if engine != CHOSEN:
        environment["TRIREME_MATMUL"] = engine
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "ops.json")
        subprocess.run([options.program, "bench", "ops", "--products", "--device", "cpu", "--preset", preset, "--dtype",
                        options.dtype, "--threads", str(options.threads), "--repeats", str(repeats), "--json", file],
                       env=environment, stdout=subprocess.DEVNULL, check=True)
        report = json.loads(file.read_text())
    return report["roof"], report["rows"]


def measure_all(options):
    """Returns the seconds of each product by engine, its least seconds, and the rate of the roof: one of each round."""
    engines = ENGINES[options.dtype]
    seconds = collections.defaultdict(lambda: collections.defaultdict(list))
    floors, roofs = collections.defaultdict(list), []
    for preset in options.presets:
        repeats = 1
        for turn in range(options.rounds):
            first = turn % len(engines)
            work, roof = {}, {"flops": 0.0, "bandwidth": 0.0}
            for engine in engines[first:] + engines[:first]:
                limits, rows = measure(engine, preset, repeats, options)
                roof = {key: max(roof[key], limits[key]) for key in roof}
                for row in rows:
                    product = Product(preset, row["op"], row["shape"])
                    seconds[product][engine].append(row["seconds"])
                    work[product] = (row["flop"], row["bytes"])
            roofs.append(roof["flops"])
            for product, (flops, size) in work.items():
                floors[product].append(max(flops / roof["flops"], size / roof["bandwidth"]))
            # Short products are measured more than once in a round.
            repeats = 1 if sum(row["seconds"] for row in rows) > LONG else 9
        print(f"{preset}: done", flush=True)
        if options.results:  # what a longer run has measured when it is cut off
            keep(seconds, floors, roofs, options.results)
    return seconds, floors, roofs


def keep(seconds, floors, roofs, path):
    rows = [{**product._asdict(), "floor": floors[product], "seconds": by} for product, by in seconds.items()]
    pathlib.Path(path).write_text(json.dumps({"roof": roofs, "rows": rows}, indent=1))


def table(title, header, rows):
    print(f"\n{title}\n")
    print("| " + " | ".join(header) + " |")
    print("|" + "---|" * len(header))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    if not rows:
        print("none")


def report(seconds, floors, roofs, options):
    median = {product: {name: statistics.median(list_) for name, list_ in by.items()}
              for product, by in seconds.items()}
    engines = ENGINES[options.dtype]

    def cells(product):
        times = median[product]
        return [product.preset, product.op, product.shape, *(f"{times[name] * 1e3:.3f}" for name in engines)]

    def behind(product):
        times = median[product]
        return times[CHOSEN] / min(times[name] for name in engines)

    def spread(product):
        return max(seconds[product][CHOSEN]) / min(seconds[product][CHOSEN])

    def share(product):
        return statistics.median(floor / time for floor, time in zip(floors[product], seconds[product][CHOSEN]))

    products = sorted(seconds, key=behind, reverse=True)
    slow = [product for product in products if behind(product) > SLOW]
    outside = [product for product in slow if behind(product) > spread(product)]
    print(f"\n{len(products)} products, roof {min(roofs) * 1e-9:.0f} to {max(roofs) * 1e-9:.0f} GFLOP/s; "
          f"{len(slow)} take more than {SLOW} of the fastest engine's time, {len(outside)} more than their spread; "
          f"{sum(share(product) < GOOD_SHARE for product in products)} reach less than {GOOD_SHARE} of the floor")
    names = ("preset", "product", "rows x in x out")
    times = [f"{engine}, ms" for engine in engines]
    table("chosen and fastest", [*names, *times, "of the fastest", "spread"],
          [[*cells(product), f"{behind(product):.2f}", f"{spread(product):.2f}"] for product in slow])
    worst = sorted(products, key=share)[:10]
    table("ten worst", [*names, *times, "floor, ms", "share"],
          [[*cells(product), f"{statistics.median(floors[product]) * 1e3:.3f}", f"{share(product):.2f}"]
           for product in worst])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", choices=ENGINES, default="fp32")
    parser.add_argument("--presets", default="")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--program", default=str(PROGRAM))
    parser.add_argument("--results", help="where to keep what was measured, as JSON")
    options = parser.parse_args()
    options.presets = options.presets.split(",") if options.presets else presets(options.program)
    seconds, floors, roofs = measure_all(options)
    report(seconds, floors, roofs, options)


if __name__ == "__main__":
    main()
