#!/usr/bin/env python3
"""Writes tests/bad_input.tsv, which says what bad input gets, from the tests that show it.

    tests/bad_input_table.py           writes the table
    tests/bad_input_table.py --check   status 1 where the table is not what the tests say

A test says it right above the assertion, in a comment of as many lines as it takes:

    // bad input: `prepare`: a tail that is all of the text | the validation split takes all of the
    // text (... bytes), nothing is left to train on | 3

The same row in several tests is one row that names them all. `house_rules_test` runs the check.
"""
import csv
import io
import re
import sys
from pathlib import Path

TABLE = "tests/bad_input.tsv"
MARK = "bad input:"
STATUS = re.compile(r"\d+(; \d+)*|that of the point")
COMMENT = re.compile(r"\s*(?://|#) ?(.*)")
# What a line that shows something looks like, in C++, Python and shell.
SHOWS = re.compile(r"EXPECT|ASSERT|expect|refus|assert|fail|fault|message|error|status|said|grep|\"|'")
LINES_TO_ASSERTION = 12


def field(text):
    return " ".join(text.split())


def rows_in(path, text, problems):
    """(input, message, status) of each comment of a file."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        comment = COMMENT.fullmatch(line)
        if not comment or not comment[1].startswith(MARK):
            continue
        where = f"{path}:{number + 1}"
        said, last = comment[1][len(MARK):], number
        fields = [field(part) for part in said.split(" | ")]
        while not (len(fields) == 3 and STATUS.fullmatch(fields[2])):
            last += 1
            more = COMMENT.fullmatch(lines[last]) if last < len(lines) else None
            if not more or more[1].startswith(MARK):
                problems.append(f"{where}: expected INPUT | MESSAGE | STATUS")
                break
            said += " " + more[1]
            fields = [field(part) for part in re.split(r"\s\|\s", said)]
        else:
            below = lines[last + 1:last + 1 + LINES_TO_ASSERTION]
            if not any(SHOWS.search(other) and not COMMENT.fullmatch(other) for other in below):
                problems.append(f"{where}: no assertion stands below it")
            yield tuple(fields)


def collect(root):
    """The rows, each with its tests, and what is wrong with them."""
    table, problems = {}, []
    tests = root / "tests"
    declared = "".join(path.read_text(encoding="utf-8") for path in tests.rglob("CMakeLists.txt"))
    for path in sorted(tests.rglob("*")):
        if path.suffix not in (".cc", ".py", ".sh") or path.name == Path(__file__).name:
            continue
        name = path.relative_to(root).as_posix()
        found = list(rows_in(name, path.read_text(encoding="utf-8"), problems))
        # A loop there may add "_test" to a name.
        if found and not re.search(rf"\b{path.stem.removesuffix('_test')}(_test)?\b", declared):
            problems.append(f"{name}: no CMakeLists.txt of tests/ knows this test")
        for row in found:
            table.setdefault(row, []).append(path.stem)
    return table, problems


def order(row):
    subject = re.match(r"`([^`]*)`|the archive|a job", row[0][0])
    return (subject[0].strip("`").split()[0] if subject else "~", row[0])


def text_of(table):
    """Values are separated by tabs; those with quotation marks are quoted, as GitHub wants it."""
    text = io.StringIO()
    writer = csv.writer(text, delimiter="\t", lineterminator="\n")
    writer.writerow(["Input", "Message", "Status", "Test"])
    for row, tests in sorted(table.items(), key=order):
        writer.writerow([*row, ", ".join(sorted(set(tests)))])
    return text.getvalue()


def check(root):
    """What is wrong with the comments, and with the table beside them."""
    table, problems = collect(root)
    path = root / TABLE
    if not path.is_file() or path.read_text(encoding="utf-8") != text_of(table):
        problems.append(f"{TABLE} is not what the tests say; tests/bad_input_table.py writes it")
    return problems


def main():
    root = Path(__file__).resolve().parent.parent
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit("usage: tests/bad_input_table.py [--check]")
    if sys.argv[1:]:
        problems = check(root)
    else:
        table, problems = collect(root)
        if not problems:
            (root / TABLE).write_text(text_of(table), encoding="utf-8")
    for problem in problems:
        print(problem, file=sys.stderr)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
