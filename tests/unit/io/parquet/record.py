#!/usr/bin/env python3
"""record.py [FOLDER]: writes the small files that parquet_test reads, by PyPI's `pyarrow`."""
import pathlib
import sys

import pyarrow as pa
import pyarrow.parquet as pq

ROWS = 40


def text(i):
    return None if i % 7 == 3 else f"text {i} " + "and so on " * (i % 4)


def messages(i):
    if i % 5 == 4:
        return None
    return [{"role": "user" if j % 2 == 0 else "assistant", "content": f"turn {j} of {i}" if j != 2 else None}
            for j in range(i % 4)]


def table():
    string = pa.string()
    schema = pa.schema([
        ("text", string),
        pa.field("name", string, nullable=False),
        ("meta", pa.struct([("body", string), ("n", pa.int64())])),
        ("messages", pa.list_(pa.struct([("role", string), ("content", string)]))),
        ("id", pa.int32()), ("good", pa.bool_())])
    rows = [{"text": text(i), "name": f"row{i:03}", "meta": None if i % 11 == 5 else {"body": f"body {i}", "n": i * 3},
             "messages": messages(i), "id": i * i, "good": i % 3 == 0} for i in range(ROWS)]
    return pa.Table.from_pylist(rows, schema=schema)


DELTA = {"text": "DELTA_BYTE_ARRAY", "name": "DELTA_BYTE_ARRAY", "meta.body": "DELTA_LENGTH_BYTE_ARRAY",
         "meta.n": "DELTA_BINARY_PACKED", "id": "BYTE_STREAM_SPLIT", "good": "RLE"}
# pyarrow splits a page every `write_batch_size` values at the soonest.
SMALL = {"data_page_size": 64, "write_batch_size": 8, "row_group_size": 25, "write_statistics": False}
FILES = {
    "plain": dict(compression="NONE", use_dictionary=False, data_page_version="1.0"),
    "snappy": dict(compression="SNAPPY", data_page_version="1.0"),
    "zstd": dict(compression="ZSTD", data_page_version="2.0"),
    "gzip": dict(compression="GZIP", data_page_version="1.0", write_page_checksum=True),
    "lz4": dict(compression="LZ4", data_page_version="2.0"),
    "delta": dict(compression="NONE", use_dictionary=False, column_encoding=DELTA, data_page_version="2.0"),
    "brotli": dict(compression="BROTLI"),
}

if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
    for name, options in FILES.items():
        pq.write_table(table(), folder / f"{name}.parquet", store_schema=False, **SMALL, **options)
    # Row groups without rows, as appending writers leave them.
    with pq.ParquetWriter(folder / "groups.parquet", table().schema, compression="NONE", store_schema=False,
                          write_statistics=False) as writer:
        for begin, end in [(0, 0), (0, 3), (3, 3), (3, 3), (3, ROWS), (0, 0)]:
            writer.write_table(table().slice(begin, end - begin))
