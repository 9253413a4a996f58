"""Prints predictions beside published figures."""

import math
import statistics
from dataclasses import dataclass


@dataclass
class Timed:
    row: object
    half: float  # seconds by the constants of the fitted half
    without: float  # by those fitted to all other tables

    def error(self, which):
        return getattr(self, which) / self.row.seconds - 1

    def factor(self):
        """How far off the half's prediction is, either way: 0.1 is a tenth."""
        return abs(math.log(self.half / self.row.seconds))


def ranks(values):
    order = sorted(range(len(values)), key=values.__getitem__)
    found = [0.0] * len(values)
    begin = 0
    while begin < len(order):
        end = begin
        while end < len(order) and values[order[end]] == values[order[begin]]:
            end += 1
        for index in order[begin:end]:
            found[index] = (begin + end - 1) / 2
        begin = end
    return found


def spearman(first, second):
    """The correlation of ranks, None of fewer than three or of equal values."""
    if len(first) < 3:
        return None
    a, b = ranks(first), ranks(second)
    mean = (len(a) - 1) / 2
    top = sum((x - mean) * (y - mean) for x, y in zip(a, b))
    below = (sum((x - mean) ** 2 for x in a) * sum((y - mean) ** 2 for y in b)) ** 0.5
    return top / below if below else None


def of_errors(errors):
    if not errors:
        return f"{'':>4}{'':>8}{'':>9}"
    mean = sum(map(abs, errors)) / len(errors)
    return f"{len(errors):>4}{100 * mean:>7.1f}%{100 * max(errors, key=abs):>+8.1f}%"


def line(name, timed):
    halves = [[each.error("half") for each in timed if each.row.fitted_half is side] for side in (True, False)]
    out = [each.error("without") for each in timed]
    rank = spearman([each.without / tokens(each.row) for each in timed],
                    [each.row.seconds / tokens(each.row) for each in timed])
    print(f"{name:<24}{of_errors(halves[0])} |{of_errors(halves[1])} |{of_errors(out)}"
          + (f"{rank:>7.3f}" if rank is not None else ""))


def tokens(row):
    """What a GPU's seconds are divided by, so that ranks compare layouts and not the sizes of batches."""
    return row.batch * row.sequence / row.gpus


def times(timed, with_rows):
    for specified, title in ((True, "Step times of rows that are fully specified"),
                             (False, "Step times of rows with assumptions: fitted nowhere")):
        part = [each for each in timed if each.row.specified is specified]
        if not part:
            continue
        print(f"\n{title}: rows, mean and worst error\n{'':<24}{'fitted half':>21} |{'other half':>21} |"
              f"{'left out whole':>21}{'rank':>7}")
        for table in dict.fromkeys(each.row.table for each in part):
            line(table, [each for each in part if each.row.table == table])
        line("all", part)
        if with_rows:
            rows(part)
    intervals(timed)


def intervals(timed):
    """An interval for each row that was not fitted, from those of other tables that were not fitted either: nine of ten of
    their errors are smaller. Says how many rows lie within."""
    blind = [each for each in timed if each.row.specified and not each.row.fitted_half]
    widths, within = [], 0
    for one in blind:
        others = sorted(each.factor() for each in blind if each.row.table != one.row.table)
        if len(others) < 10:
            continue
        widths.append(others[min(len(others), math.ceil(0.9 * (len(others) + 1))) - 1])
        within += one.factor() <= widths[-1]
    if widths:
        print(f"\nIntervals that nine of ten errors of other tables' rows lie within, none fitted: {within} of {len(widths)} rows lie "
              f"within theirs,\n{100 * within / len(widths):.0f} %; half of it is {100 * statistics.median(widths):.1f} % in the median")


def rows(timed):
    print(f"\n{'table':<22}{'model':<10}{'layout':<58}{'predicted':>10}{'published':>10}{'error':>8}"
          f"{'left out':>9}  half")
    for each in timed:
        row = each.row
        print(f"{row.table:<22}{row.model:<10}{row.layout():<58}{each.half:>10.3f}{row.seconds:>10.3f}"
              f"{100 * each.error('half'):>+7.1f}%{100 * each.error('without'):>+8.1f}%  "
              f"{'fitted' if row.fitted_half else 'other'}{'; assumed: ' + row.assumed if row.assumed else ''}")


def memory(found, with_rows):
    if not found:
        return
    print(f"\nMemory, nothing fitted: rows, mean and worst error\n{'':<31}{'specified':>21} |{'with assumptions':>21}")
    for table in dict.fromkeys(f"{row.table} {what}" for row, what, _, _ in found):
        sides = [[predicted / published - 1 for row, what, predicted, published in found
                  if f"{row.table} {what}" == table and row.specified is side] for side in (True, False)]
        print(f"{table:<31}{of_errors(sides[0])} |{of_errors(sides[1])}")
    if with_rows:
        print()
        for row, what, predicted, published in found:
            print(f"{row.table:<22}{row.model:<10}{row.layout():<58}{what:<12}{predicted:>9.2f}{published:>9.2f}"
                  f"{100 * (predicted / published - 1):>+7.1f}%{'; assumed: ' + row.assumed if row.assumed else ''}")


def fits(found, with_rows):
    if not found:
        return
    print(f"\nOut of memory{'':<11}{'ran out':>9}{'told':>6}{'fitted':>8}{'told':>6}")
    for table in [*dict.fromkeys(row.table for row, _, _ in found), "all"]:
        part = [(told, did) for row, told, did in found if table in (row.table, "all")]
        out, fitted = [told for told, did in part if not did], [told for told, did in part if did]
        print(f"{table:<24}{len(out):>9}{out.count(False):>6}{len(fitted):>8}{fitted.count(True):>6}")
    if with_rows:
        for row, told, did in found:
            if told != did:
                how = "told to run out, and fitted" if did else "told to fit, and ran out"
                print(f"{row.table:<22}{row.model:<10}{row.layout():<58}{how}")


def ours(found, with_rows):
    """What our program says; `found`: (row, seconds or None, bytes or None, why there are none)."""
    print(f"\nOur program: rows, mean and worst error\n{'':<24}{'time':>21} |{'memory':>21}")
    for table in dict.fromkeys(row.table for row, _, _, _ in found):
        here = [each for each in found if each[0].table == table]
        times_ = [seconds / row.seconds - 1 for row, seconds, _, _ in here if seconds and row.seconds]
        memory_ = [bytes_ / 2.0 ** 30 / row.memory_gib - 1 for row, _, bytes_, _ in here if bytes_ and row.memory_gib]
        if times_ or memory_:
            print(f"{table:<24}{of_errors(times_)} |{of_errors(memory_)}")
    listed = {row.table for row, _, _, _ in found if row.out_of_memory}
    fits([(row, bytes_ is not None, not row.out_of_memory) for row, _, bytes_, why in found
          if row.table in listed and (bytes_ or "fits" in why)], with_rows)
    for row, seconds, _, why in found if with_rows else ():
        print(f"{row.table:<22}{row.model:<10}{row.layout():<58}{why or f'{seconds:.3f} s'}")
