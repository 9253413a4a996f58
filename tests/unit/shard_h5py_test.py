"""Reads token shards with h5py and compares them with the text that they were made from."""
import pathlib
import sys

import h5py
import xxhash

folder = pathlib.Path(sys.argv[1])
text = (folder / "text.txt").read_bytes()
documents = [document for document in text.split(b"\n\n") if document]


def shard_documents(path):
    """The documents of a byte-level shard."""
    with h5py.File(path) as shard:
        tokens = shard["tokens"][:]
        starts = shard["documents"][:]
        assert tokens.dtype == "<u2", tokens.dtype
        assert starts.dtype == "<u8", starts.dtype
        assert shard["tokens"].chunks is None
        assert shard.attrs["format_version"] == 1
        assert shard.attrs["tokens"] == len(tokens)
        assert shard.attrs["documents"] == len(starts)
        assert shard.attrs["vocabulary"] == 257
        assert shard.attrs["tokenizer"] == "byte"
        assert shard.attrs["source"] == str(folder / "text.txt")
        assert shard.attrs["split"] == path.stem
        digest = xxhash.xxh64(tokens.tobytes(), seed=0).hexdigest()
        assert shard.attrs["checksum"] == "xxh64:" + digest, digest
        end_of_text = shard.attrs["end_of_text"]
        ends = list(starts[1:]) + [len(tokens)]
        found = []
        for start, end in zip(starts, ends):
            assert tokens[end - 1] == end_of_text
            found.append(bytes(int(token) for token in tokens[start : end - 1]))
        assert shard.attrs["original_bytes"] == sum(len(document) for document in found)
        return found


train = shard_documents(folder / "bytes/train.h5")
validation = shard_documents(folder / "bytes/validation.h5")
assert len(train) > 10 and len(validation) > 10
assert sorted(train + validation) == sorted(documents)

with h5py.File(folder / "pieces/train.h5") as shard:
    model = shard["tokenizer"][:].tobytes()
    assert shard.attrs["tokenizer"] == "sentencepiece"
    assert shard["tokenizer"].attrs["checksum"] == "xxh64:" + xxhash.xxh64(model).hexdigest()
    assert 0 < shard["tokens"].size < len(text)
    assert shard["tokens"][:].max() < shard.attrs["vocabulary"]
    assert shard.attrs["original_bytes"] == len(text)
print("h5py reads what was written")
