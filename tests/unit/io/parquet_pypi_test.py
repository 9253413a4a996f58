"""parquet_pypi_test.py PROGRAM: writes Parquet files with each of the options of PyPI's `pyarrow`, and
compares the rows that PROGRAM (parquet_program) reads with pyarrow's, or the reason why it refuses."""

import itertools
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe

PROGRAM = sys.argv[1]
ROWS = 1500
DRAWS = random.Random(41)
WORDS = [f"word{i}" for i in range(300)] + ["", "é", "日本", "\n", "\0"]


def string(limit=30):
    return " ".join(DRAWS.choice(WORDS) for _ in range(DRAWS.randrange(limit)))


def maybe(value):
    return None if DRAWS.random() < 0.2 else value


def message():
    return maybe({"role": maybe(DRAWS.choice(["user", "assistant"])), "content": maybe(string(6))})


def row(i):
    return {"text": maybe(string()), "name": f"name {i // 3:05}", "kind": DRAWS.choice(["web", "book", "code"]),
            "meta": maybe({"body": maybe(string(5)), "inner": maybe({"deep": maybe(string(3))})}),
            "messages": maybe([message() for _ in range(DRAWS.randrange(5))]),
            "deep": maybe([maybe([maybe(string(2)) for _ in range(DRAWS.randrange(3))])
                           for _ in range(DRAWS.randrange(3))]),
            "pairs": maybe([(f"key{j}", maybe(string(2))) for j in range(DRAWS.randrange(3))]),
            "i32": maybe(DRAWS.randrange(-2**31, 2**31)), "i64": maybe(DRAWS.randrange(-2**63, 2**63)),
            "f32": maybe(float(DRAWS.randrange(1000))), "f64": maybe(DRAWS.random()),
            "flag": maybe(DRAWS.random() < 0.5), "fixed": maybe(DRAWS.randbytes(5)), "none": None}


MESSAGE = pa.struct([("role", pa.string()), ("content", pa.string())])
SCHEMA = pa.schema([
    ("text", pa.string()), pa.field("name", pa.string(), nullable=False), ("kind", pa.large_string()),
    ("meta", pa.struct([("body", pa.string()), ("inner", pa.struct([("deep", pa.binary())]))])),
    ("messages", pa.list_(MESSAGE)), ("deep", pa.list_(pa.list_(pa.string()))),
    ("pairs", pa.map_(pa.string(), pa.string())), ("i32", pa.int32()), ("i64", pa.int64()), ("f32", pa.float32()),
    ("f64", pa.float64()), ("flag", pa.bool_()), ("fixed", pa.binary(5)), ("none", pa.string())])
FORMATS = {pa.int32(): "<i", pa.int64(): "<q", pa.float32(): "<f", pa.float64(): "<d", pa.bool_(): "<?"}


def shown(value, kind):
    if value is None:
        return "n"
    if pa.types.is_map(kind):
        return "(" + "".join(f"({shown(k, kind.key_type)},{shown(v, kind.item_type)},)," for k, v in value) + ")"
    if pa.types.is_list(kind):
        return "(" + "".join(shown(item, kind.value_type) + "," for item in value) + ")"
    if pa.types.is_struct(kind):
        return "(" + "".join(shown(value[field.name], field.type) + "," for field in kind) + ")"
    if kind in FORMATS:
        return "x" + struct.pack(FORMATS[kind], value).hex()
    return "x" + (value if isinstance(value, bytes) else value.encode()).hex()


def lines(table):
    types = [field.type for field in table.schema]
    columns = [column.to_pylist() for column in table.columns]
    return "".join(" ".join(map(shown, values, types)) + "\n" for values in zip(*columns))


def run(path, fields):
    return subprocess.run([PROGRAM, str(path), *fields], capture_output=True, timeout=60, check=False)


TABLE = pa.Table.from_pylist([row(i) for i in range(ROWS)], schema=SCHEMA)
EXPECTED = lines(TABLE).encode()
FIELDS = SCHEMA.names
STRINGS = ["text", "name", "kind", "meta.body", "meta.inner.deep", "messages.list.element.role",
           "messages.list.element.content", "deep.list.element.list.element", "none"]
FLOATS = ["i32", "i64", "f32", "f64", "fixed"]
ENCODINGS = {
    "delta": {**{name: "DELTA_BYTE_ARRAY" for name in STRINGS}, "i32": "DELTA_BINARY_PACKED",
              "i64": "DELTA_BINARY_PACKED", "flag": "RLE", "fixed": "DELTA_BYTE_ARRAY"},
    "lengths": {**{name: "DELTA_LENGTH_BYTE_ARRAY" for name in STRINGS},
                **{name: "BYTE_STREAM_SPLIT" for name in FLOATS}},
    "plain": {name: "PLAIN" for name in [*STRINGS, *FLOATS, "flag"]}}


def variants():
    """Each pair of codec, version of pages and encoding; the other options once or in turn."""
    codecs = ["NONE", "SNAPPY", "GZIP", "ZSTD", "LZ4"]
    dictionaries = [True, False, ["kind", "meta.body"], *ENCODINGS]
    turn = itertools.cycle([dict(row_group_size=400), dict(write_page_checksum=True), dict(data_page_size=300),
                            dict(write_statistics=False), dict(write_page_index=True, data_page_size=2000),
                            dict(store_schema=False, write_batch_size=10, data_page_size=500),
                            dict(dictionary_pagesize_limit=400), dict(use_compliant_nested_type=False),
                            dict(version="1.0"), dict(version="2.4", row_group_size=1, rows=40),
                            dict(store_decimal_as_integer=True), dict(use_content_defined_chunking=True),
                            dict(max_rows_per_page=70), dict(bloom_filter_options={"text": {"ndv": 1000}})])
    for codec, page, dictionary in itertools.product(codecs, ["1.0", "2.0"], dictionaries):
        encoding = ({"use_dictionary": False, "column_encoding": ENCODINGS[dictionary]}
                    if isinstance(dictionary, str) else {"use_dictionary": dictionary})
        yield {"compression": codec, "data_page_version": page, **encoding, **next(turn)}
    for level in [1, 19]:
        yield {"compression": "ZSTD", "compression_level": level}
    yield {"compression": {"text": "ZSTD", "name": "SNAPPY", "kind": "NONE"}}
    yield {"sorting_columns": [pq.SortingColumn(1)], "coerce_timestamps": "ms", "write_time_adjusted_to_utc": True}


def write(table, path, options):
    """False where this version of pyarrow does not know an option."""
    try:
        pq.write_table(table, path, **options)
        return True
    except TypeError as error:
        print(f"not known to pyarrow {pa.__version__}: {error}")
        return False


def check_values(folder):
    for number, options in enumerate(variants()):
        options = dict(options)
        table = TABLE.slice(0, options.pop("rows", ROWS))
        if not write(table, folder / "table.parquet", options):
            continue
        said = run(folder / "table.parquet", FIELDS)
        expected = EXPECTED if len(table) == ROWS else lines(table).encode()
        if options.get("use_compliant_nested_type") is False:
            assert "element" not in str(pq.ParquetFile(folder / "table.parquet").schema), "its names were to be others"
        assert said.stdout == expected and said.returncode == 0, (number, options, said.stderr, said.stdout[:200])
        for path in ["meta.body", "meta.inner.deep"]:
            first, *names = path.split(".")
            wanted = pc.struct_field(table[first], names)
            assert run(folder / "table.parquet", [path]).stdout == lines(pa.table({"x": wanted})).encode(), path
    print(f"{number + 1} ways to write {ROWS} rows: the same values")


class Keys(pe.KmsClient):
    """Keys that are not wrapped: a test's."""

    def __init__(self, _):
        super().__init__()

    def wrap_key(self, key_bytes, master_key_identifier):
        return key_bytes.hex()

    def unwrap_key(self, wrapped_key, master_key_identifier):
        return bytes.fromhex(wrapped_key)


def check_refusals(folder):
    path = folder / "refused.parquet"

    def refused(options, fields, reason, table=TABLE):
        if write(table, path, options):
            said = run(path, fields)
            message = said.stderr.decode()
            assert said.returncode == 3 and message == f"{path}: {reason}\n", (options, message, said.stdout[:100])

    refused({"compression": "BROTLI"}, ["text"], "column text is compressed with BROTLI, which is not read: SNAPPY, "
            "GZIP, ZSTD, LZ4 and LZ4_RAW are")
    for plaintext in [True, False]:
        config = pe.EncryptionConfiguration(footer_key="f", column_keys={"c": ["text"]}, plaintext_footer=plaintext)
        factory = pe.CryptoFactory(Keys)
        properties = factory.file_encryption_properties(pe.KmsConnectionConfig(), config)
        flat = TABLE.select(["text", "name"])
        refused({"encryption_properties": properties}, ["text"],
                "column text is encrypted, which is not read" if plaintext
                else "its footer is encrypted, which is not read", flat)
        if plaintext:
            # Where the footer can be read, so can the columns that have no key.
            assert run(path, ["name"]).stdout == lines(flat.select(["name"])).encode()


with tempfile.TemporaryDirectory() as name:
    check_values(pathlib.Path(name))
    check_refusals(pathlib.Path(name))
