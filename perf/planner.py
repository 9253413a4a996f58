#!/usr/bin/env python3
"""Published training runs beside what is predicted of them: step time, memory, and what ran out of memory.

usage: perf/planner.py [--rows] [--table NAME,...]
       perf/planner.py --fit
       perf/planner.py --backend trireme [--program build/release/bin/trireme] ...

The rows and their sources are in perf/planner/published.csv and sources.json. The programs that ran them are not ours:
what differs between them is a profile (profiles.json), the same for all rows of a program. A closed form (peer_step.py,
peer_memory.py) predicts them with at most 4 constants a device, 3 a network and 2 a program (devices.py), none for a
row or a table. --fit fits these to half of the rows, by a hash of what a row is; for each table to all rows but the
table's; and to all; it writes constants.json. Rows that the source does not specify fully (column `assumed`) are fitted
nowhere.

For each table it prints the mean and the worst error, and Spearman's rank correlation, of the fitted half, the other
half, and with the table left out whole; --rows prints the rows too: predicted, published, error. The backend `trireme`
asks our program for each row that it can run instead (perf/planner/our_step.py).
"""

import argparse
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE / "planner"))
import fit  # noqa: E402
import our_step  # noqa: E402
import peer_memory  # noqa: E402
import peer_step  # noqa: E402
import report  # noqa: E402
from devices import DEVICES  # noqa: E402
from table import HERE as FOLDER, read_json, read_rows  # noqa: E402


def predict(row, profile, constants):
    """The seconds of a row's step by the closed form; `constants` by name, as fit.py has them."""
    return peer_step.seconds(peer_step.workload(row, profile), fit.look_up(constants))


def fit_all(rows, profiles):
    """Constants for the other half, for each table left out, and of everything."""
    made = [peer_step.workload(row, profiles[row.program]) for row in rows if row.seconds and row.specified]
    found = {"half": fit.fit([each for each in made if each.row.fitted_half], profiles)}
    for table in sorted({each.row.table for each in made}):
        found[f"without {table}"] = fit.fit([each for each in made if each.row.table != table], profiles)
    found["all"] = fit.fit(made, profiles)
    fit.write(FOLDER / "constants.json", found)


def times(rows, profiles, constants):
    """Each timed row's error by the constants of the half, and by those fitted without its table."""
    found = []
    for row in rows:
        if not row.seconds:
            continue
        without = constants.get(f"without {row.table}", constants["all"])
        found.append(report.Timed(row, predict(row, profiles[row.program], constants["half"]),
                                  predict(row, profiles[row.program], without)))
    return found


def memories(rows, profiles):
    """(row, what, predicted, published) of each published figure of memory."""
    for row in rows:
        profile = profiles[row.program]
        if row.state_gib:
            yield row, "states", peer_memory.states(row, profile) / peer_memory.GIB, row.state_gib
        if row.activation_gib:
            yield row, "activations", peer_memory.activations(row, profile) / peer_memory.GIB, row.activation_gib
        if row.memory_gib:
            yield row, "all", peer_memory.largest(row, profile) / peer_memory.GIB, row.memory_gib
        if row.activation_percent:
            yield row, "percent", 100 * peer_memory.activation_share(row, profile), row.activation_percent


def fits(rows, profiles):
    """(row, whether it is predicted to fit, whether it did), of tables that list what ran out of memory."""
    listed = {row.table for row in rows if row.out_of_memory}
    return [(row, peer_memory.fits(row, profiles[row.program], DEVICES[row.device]), not row.out_of_memory)
            for row in rows if row.table in listed]


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage:")[1].split("\n\n")[0].strip())
    parser.add_argument("--rows", action="store_true")
    parser.add_argument("--table", type=lambda text: text.split(","), default=[])
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--backend", choices=("peer", "trireme"), default="peer")
    parser.add_argument("--program", default=HERE.parent / "build/release/bin/trireme", type=pathlib.Path)
    options = parser.parse_args()
    rows, profiles = read_rows(), read_json("profiles.json")
    unknown = set(options.table) - {row.table for row in rows}
    if unknown:
        known = ", ".join(sorted({row.table for row in rows}))
        sys.exit(f"no table is called {', '.join(sorted(unknown))}; there are {known}")
    if options.fit:
        fit_all(rows, profiles)
    rows = [row for row in rows if not options.table or row.table in options.table]
    if options.backend == "trireme":
        report.ours(our_step.predictions(rows, options.program), options.rows)
        return
    report.times(times(rows, profiles, read_json("constants.json")), options.rows)
    report.memory(list(memories(rows, profiles)), options.rows)
    report.fits(fits(rows, profiles), options.rows)


if __name__ == "__main__":
    main()
