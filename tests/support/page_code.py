#!/usr/bin/env python3
"""Writes the code that a page shows of a file: its fenced blocks that name it, one after the other.

    python3 page_code.py PAGE NAME OUTPUT

A block names its file behind its language: ```cpp train.cc
"""
import re
import sys

page, name, output = sys.argv[1:]
with open(page, encoding="utf-8") as text:
    blocks = re.findall(rf"^```\w+ {re.escape(name)}\n(.*?)^```$", text.read(), re.DOTALL | re.MULTILINE)
if not blocks:
    sys.exit(f"{page}: no block of code names {name}")
with open(output, "w", encoding="utf-8") as file:
    file.write("\n".join(blocks))
