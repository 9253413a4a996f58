"""Reads token shards with h5py and compares them with the text that they were made from; has trireme
read what h5py and h5repack write.

usage: shard_h5py_test.py FOLDER SHARD_MUTATION_TEST TRIREME
"""
import pathlib
import shutil
import subprocess
import sys

import h5py
import numpy
import xxhash

folder = pathlib.Path(sys.argv[1])
mutations, trireme = sys.argv[2:]
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
        assert shard.attrs["format_version"] == 2
        assert shard["token_checksums"].attrs["block_bytes"] == 4096
        assert shard["token_checksums"].dtype == "<u8"
        raw = tokens.tobytes()
        blocks = [raw[at : at + 4096] for at in range(0, len(raw), 4096)]
        assert list(shard["token_checksums"]) == [xxhash.xxh3_64_intdigest(block) for block in blocks]
        documents = xxhash.xxh64(starts.tobytes()).hexdigest().encode()
        assert shard["documents"].attrs["checksum"] == b"xxh64:" + documents
        assert shard.attrs["tokens"] == len(tokens)
        assert shard.attrs["documents"] == len(starts)
        assert shard.attrs["vocabulary"] == 257
        assert shard.attrs["tokenizer"] == b"byte"
        assert shard.attrs["source"].decode() == str(folder / "text.txt")
        assert shard.attrs["split"].decode() == path.stem
        digest = xxhash.xxh64(tokens.tobytes(), seed=0).hexdigest()
        assert shard.attrs["checksum"].decode() == "xxh64:" + digest, digest
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
    assert shard.attrs["tokenizer"] == b"sentencepiece"
    assert shard["tokenizer"].attrs["checksum"].decode() == "xxh64:" + xxhash.xxh64(model).hexdigest()
    assert 0 < shard["tokens"].size < len(text)
    assert shard["tokens"][:].max() < shard.attrs["vocabulary"]
    assert shard.attrs["original_bytes"] == len(text)
with h5py.File(folder / "images/train.h5") as shard:
    images, labels = shard["images"], shard["labels"]
    assert images.dtype == "u1" and images.shape == (5, 6, 8, 3) and images.chunks is None
    assert labels.dtype == "<i4" and list(labels) == [0, 0, 0, 1, 1]
    assert shard["classes"].dtype == "S8" and shard["image_checksums"].dtype == "<u8"
    assert [name.decode() for name in shard["classes"]] == ["dog", "äffchen"]
    # Pictures are in alphabetical order of paths: 2 to 4, then 0 and 1.
    for i, number in enumerate([2, 3, 4, 0, 1]):
        assert images[i].tobytes() == (folder / f"images/{number}.raw").read_bytes()
        sum_of_picture = xxhash.xxh3_64_intdigest(images[i].tobytes(), seed=int(labels[i]))
        assert shard["image_checksums"][i] == sum_of_picture
    pixels = images[:].reshape(-1, 3) / 255
    assert numpy.allclose(shard["mean"], pixels.mean(axis=0), rtol=0, atol=1e-12)
    assert numpy.allclose(shard["deviation"], pixels.std(axis=0), rtol=0, atol=1e-9)
    assert shard.attrs["format_version"] == 1 and shard.attrs["images"] == 5
    assert shard.attrs["split"] == b"train" and shard.attrs["source"].decode() == str(folder / "pets")
    digest = xxhash.xxh64(shard["image_checksums"][:].tobytes()).hexdigest()
    assert shard.attrs["checksum"].decode() == "xxh64:" + digest
print("h5py reads what was written")


def look(path, status=0, message=": good, "):
    """Has trireme verify a shard: the status, and one line with these words."""
    done = subprocess.run([trireme, "data", "verify", path], capture_output=True, text=True, timeout=60)
    line = done.stdout if status == 0 else done.stderr
    assert done.returncode == status, (path, done)
    assert line.count("\n") == 1 and message in line, (path, done)


def small(path, tokens=None, text=str, **options):
    """A shard of version 1 as another program may write it; `tokens` adds /tokens in another way."""
    values = numpy.array(list(b"one") + [256] + list(b"and two") + [256], dtype="<u2")
    with h5py.File(path, "w", **options) as shard:
        if tokens is None:
            shard["tokens"] = values
        else:
            tokens(shard, values)
        shard["documents"] = numpy.array([0, 4], dtype="<u8")
        shard["tokenizer"] = numpy.zeros(0, dtype="u1")
        checksum = "xxh64:" + xxhash.xxh64(values.tobytes()).hexdigest()
        for name, value in {"tokenizer": "byte", "source": "here", "split": "train",
                            "checksum": checksum}.items():
            shard.attrs[name] = text(value)
        for name, value in {"format_version": 1, "tokens": 12, "documents": 2, "original_bytes": 10,
                            "vocabulary": 257, "end_of_text": 256}.items():
            shard.attrs[name] = value
    return path


look(small(folder / "plain.h5"))  # strings of variable length
look(small(folder / "fixed.h5", text=numpy.bytes_))
look(small(folder / "later.h5", libver=("v110", "v110")))
for name in ("gzip", "shuffle", "fletcher32"):
    options = {"compression": "gzip"} if name == "gzip" else {name: True}
    look(small(folder / f"{name}.h5", lambda shard, values: shard.create_dataset(
        "tokens", data=values, chunks=(5,), **options)))


def elsewhere(shard, values):
    with h5py.File(folder / "elsewhere.h5", "w") as other:
        other["tokens"] = values


def external_link(shard, values):
    elsewhere(shard, values)
    shard["tokens"] = h5py.ExternalLink("elsewhere.h5", "/tokens")


def soft_link(shard, values):
    shard["values"] = values
    shard["tokens"] = h5py.SoftLink("/values")


def virtual(shard, values):
    elsewhere(shard, values)
    layout = h5py.VirtualLayout(shape=values.shape, dtype=values.dtype)
    layout[:] = h5py.VirtualSource(str(folder / "elsewhere.h5"), "tokens", shape=values.shape)
    shard.create_virtual_dataset("tokens", layout)


def external_storage(shard, values):
    (folder / "raw").write_bytes(values.tobytes())
    shard.create_dataset("tokens", shape=values.shape, dtype=values.dtype,
                         external=[(str(folder / "raw"), 0, values.nbytes)])


def scale_offset(shard, values):
    shard.create_dataset("tokens", data=values, chunks=(5,), scaleoffset=0)


# bad input: a shard with a soft, external or user-defined link | ...: /tokens is an external link, which is
# not followed; copy the object into the file | 3
look(small(folder / "a.h5", external_link), 3, "/tokens is an external link, which is not followed")
look(small(folder / "b.h5", soft_link), 3, "/tokens is a soft link, which is not followed")
# bad input: a shard whose tokens are a virtual dataset, or in external storage | ...: /tokens is a virtual
# dataset, whose elements lie in other files; ... | 3
look(small(folder / "c.h5", virtual), 3, "/tokens is a virtual dataset, whose elements lie in other files")
look(small(folder / "d.h5", external_storage), 3, "/tokens has external storage")
# bad input: a shard with another filter of HDF5 | ...: /tokens is stored with filter 6 of HDF5, which is
# not read; compress it with `h5repack -f GZIP=4` | 3
look(small(folder / "e.h5", scale_offset), 3, "/tokens is stored with filter 6 of HDF5, which is not read")
# bad input: a shard with a user block | ...: has a user block, or addresses that are not eight bytes long;
# ... | 3
look(small(folder / "f.h5", userblock_size=512), 3, "has a user block")

# A compressed copy of a shard of version 2 is checked as the shard is.
packed = folder / "packed.h5"
with h5py.File(folder / "bytes/train.h5") as whole, h5py.File(packed, "w") as shard:
    tokens = whole["tokens"][:]
    tokens[5000] ^= 1
    shard.create_dataset("tokens", data=tokens, chunks=(3000,), compression="gzip")
    for name in ("documents", "token_checksums", "tokenizer"):
        whole.copy(name, shard)
    for name, value in whole.attrs.items():
        shard.attrs[name] = value
look(packed, 3, "damaged: tokens 4096 to 6143 (block 2) do not match their checksum")
with h5py.File(packed, "r+") as shard:
    shard["tokens"][5000] ^= 1
look(packed)
if shutil.which("h5repack"):
    for options in ([], ["-f", "tokens:GZIP=4"]):  # it refuses to compress what is empty
        subprocess.run(["h5repack", *options, folder / "bytes/train.h5", packed], check=True)
        look(packed)

# The same for an image shard.
packed = folder / "packed_images.h5"
with h5py.File(folder / "images/train.h5") as whole, h5py.File(packed, "w") as shard:
    images = whole["images"][:]
    images[3, 2, 1, 0] ^= 1
    shard.create_dataset("images", data=images, chunks=(2, 6, 8, 3), compression="gzip")
    for name in ("labels", "classes", "image_checksums", "mean", "deviation"):
        whole.copy(name, shard)
    for name, value in whole.attrs.items():
        shard.attrs[name] = value
look(packed, 3, "damaged: picture 3 or its label does not match its checksum")
with h5py.File(packed, "r+") as shard:
    images[3, 2, 1, 0] ^= 1
    shard["images"][3] = images[3]
look(packed, message=": good, 5 pictures, 2 classes")


def changed(name, **values):
    """A copy of the image shard in which a dataset is another one."""
    path = folder / f"{name}.h5"
    with h5py.File(packed) as whole, h5py.File(path, "w") as shard:
        for key in ("images", "labels", "classes", "image_checksums", "mean", "deviation"):
            whole.copy(key, shard)
        for key, value in whole.attrs.items():
            shard.attrs[key] = value
        for key, value in values.items():
            del shard[key]
            shard.create_dataset(key, data=value)
    return path


# bad input: an image shard with other types, sizes or numbers of datasets | ...: /images is not N x height x
# width x 3; ...: /labels holds 4 values for 5 pictures; ...: /classes does not hold strings of fixed length | 3
look(changed("flat", images=images[:, :, :, 0]), 3, "/images is not N x height x width x 3")
look(changed("wide", images=images.astype("<f4")), 3, "/images holds float32, not uint8")
look(changed("short", labels=numpy.zeros(4, dtype="<i4")), 3, "/labels holds 4 values for 5 pictures")
look(changed("numbers", classes=numpy.zeros(2)), 3, "/classes does not hold strings of fixed length")
look(changed("text", classes=["a", "b"]), 3, "/classes does not hold strings of fixed length")
look(changed("mean", mean=numpy.array([0.5, numpy.nan, 0.5])), 3, "/mean holds nan, not 0 to 1")
look(changed("one", classes=numpy.array([b"dog"])), 3, "the label of picture 3 is 1, but there are 1 classes")

# No damaged byte crashes the reader, not even in HDF5's oldest format, whose headers have no checksums.
def chunked(shard, values):
    shard.create_dataset("tokens", data=values, chunks=(5,), compression="gzip", shuffle=True)


# bad input: a shard in HDF5's oldest format with a damaged size of chunks | ...: /tokens is damaged: it has
# chunks of no elements | 3
subprocess.run([mutations, small(folder / "chunked.h5", chunked)], check=True, timeout=250)
print("trireme reads what h5py writes")
