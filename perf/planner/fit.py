"""The fit of constants: a coordinate search on the logarithms of predicted over published seconds.

Each constant is held near its first guess by what devices.py believes of it, so that a constant that no row tells of
stays there. Rows far off count by their distance, not its square: a published row can be wrong.
"""

import math

from devices import DEVICE_CONSTANTS, NETWORK_CONSTANTS, PROGRAM_CONSTANTS, beliefs
from peer_step import seconds

SPREAD = 0.03  # rows that lie as near as this are as good as exact
FAR = 2.0  # spreads at which a row counts by its distance
LARGEST = {"product": 0.95, "memory": 0.95, "attention": 0.95, "link": 0.95, "nic": 0.95, "pace": 1.5}
LEAST = {"pace": 1.0}
NAMES = {kind: tuple(name for name, _, _ in constants) for kind, constants in
         (("device", DEVICE_CONSTANTS), ("network", NETWORK_CONSTANTS), ("program", PROGRAM_CONSTANTS))}


def look_up(values):
    return lambda kind, name: tuple(values[f"{kind}.{name}.{constant}"] for constant in NAMES[kind])


def loss_of(made, values, weight):
    off = abs(math.log(seconds(made, look_up(values)) / made.row.seconds)) / SPREAD
    return weight * (off * off if off < FAR else 2 * FAR * off - FAR * FAR)


def weights(workloads):
    """A table of many rows counts as much as the square root of their number."""
    rows = {}
    for made in workloads:
        rows[made.row.table] = rows.get(made.row.table, 0) + 1
    return [4 / max(4, rows[made.row.table]) ** 0.5 for made in workloads]


def fit(workloads, profiles, rounds=40):
    """The constants that suit these rows best, from the first guess on."""
    believed = beliefs(dict.fromkeys(profile["constants"] for profile in profiles.values()))
    values = {name: guess for name, (guess, _) in believed.items()}
    concerned = {name: [] for name in values}
    each = weights(workloads)
    for index, made in enumerate(workloads):
        row = made.row
        for kind, name in (("device", row.device), ("network", row.network), ("program", made.profile["constants"])):
            for constant in NAMES[kind]:
                concerned[f"{kind}.{name}.{constant}"].append(index)
    losses = [loss_of(made, values, weight) for made, weight in zip(workloads, each)]
    steps = {name: 0.1 for name, indexes in concerned.items() if indexes}
    for _ in range(rounds):
        for name in steps:
            improve(name, values, believed[name], concerned[name], workloads, losses, each, steps)
        if max(steps.values(), default=0) < 1e-3:
            break
    return values


def improve(name, values, belief, indexes, workloads, losses, each, steps):
    guess, deviation = belief
    before = values[name]

    def doubt(value):
        return (math.log(value / guess) / deviation) ** 2

    best, kept = sum(losses[i] for i in indexes) + doubt(before), before
    kept_losses = None
    last = name.rsplit(".", 1)[1]
    for factor in (1 + steps[name], 1 / (1 + steps[name])):
        value = min(max(before * factor, LEAST.get(last, 0)), LARGEST.get(last, math.inf))
        values[name] = value
        tried = [loss_of(workloads[i], values, each[i]) for i in indexes]
        total = sum(tried) + doubt(value)
        if total < best - 1e-9:
            best, kept, kept_losses = total, value, tried
    values[name] = kept
    if kept_losses is None:
        steps[name] /= 2
        return
    steps[name] = min(steps[name] * 1.3, 0.3)
    for i, value in zip(indexes, kept_losses):
        losses[i] = value


def write(path, found):
    """Writes {name of a fit: {constant: value}}, a line for each thing that has constants."""
    parts = []
    for fit_name, values in found.items():
        owners = dict.fromkeys(name.rsplit(".", 1)[0] for name in values)
        of_owner = {owner: [name for name in values if name.rsplit(".", 1)[0] == owner] for owner in owners}
        lines = [", ".join(f'"{name}": {values[name]:.4g}' for name in names) for names in of_owner.values()]
        parts.append(f'"{fit_name}": {{\n  ' + ",\n  ".join(lines) + "\n}")
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")
