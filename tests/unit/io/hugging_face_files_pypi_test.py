"""hugging_face_files_pypi_test.py REPOSITORY PROGRAM: PROGRAM (hugging_face_files_program) writes tokenizers of each
kind as Hugging Face's files. The tokens that PyPI's `tokenizers` then gives many texts are compared with ours, and so is
what they decode to. PROGRAM itself compares with what our own reader of these files gives."""

import io
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

import sentencepiece
from tokenizers import Tokenizer

from tokenizer_pypi_test import FILES, PROGRAM, learn, rank_files, texts

NAMES = ["<s>", "</s>", "<unk>", "<|endoftext|>", "<0x0A>", "<0x41>", "<0xE2>", "<|begin_of_text|>", "[INST]", "<think>"]


def nasty():
    """Texts in which merges of equal score meet, and names of tokens."""
    draws = random.Random(11)
    for size in range(1, 300):
        letters = draws.choice(["ab", "a ", "- ", "=", " ", "\n ", "the ", "\u2581a ", "0.", "\uff11a", "()", "\u2581", "in"])
        yield "".join(draws.choice(letters) for _ in range(size % 90 + 1))
        yield letters * (size % 33)
    for _ in range(300):
        yield "".join(draws.choice(NAMES + [" ", "a", "\n", "x", "\u2581", "0"]) for _ in range(draws.randrange(1, 6)))
    yield from ["", " ", "  ", "\n", " \n ", "a ", " a", "a\u2581", "\u2581", "\u2581\u2581a", "a \u2581 "]


def sentences(given):
    return [line for text in given[:14] for line in text.split("\n")] + ["a" * 30, "= " * 20, "  " * 9, "-" * 64] * 20


def piece_model(given, own=(), **options):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences(given)), model_writer=model, hard_vocab_limit=False, minloglevel=2,
        byte_fallback=True, user_defined_symbols=list(own), max_sentence_length=100000, num_threads=2,
        **{"vocab_size": 900, "normalization_rule_name": "identity", "model_type": "bpe", "add_dummy_prefix": False,
           "remove_extra_whitespaces": False, **options})
    return model.getvalue()


def run_of_spaces(count):
    """A piece to append to a model, with the score that Llama 2's and Mistral's have."""
    text = ("\u2581" * count).encode()
    piece = b"\n" + bytes([len(text)]) + text + b"\x15" + struct.pack("<f", -1e9)
    return b"\n" + bytes([len(piece)]) + piece


def piece_models(given):
    """Triples of a name, a model, and what it is refused for."""
    own = ["<think>", "\uff11", "\u2581\u2581", "\n\n"]
    for kind in ("bpe", "unigram"):
        for prefix, strips in ((True, True), (True, False), (False, False)):
            options = {"model_type": kind, "add_dummy_prefix": prefix, "remove_extra_whitespaces": strips}
            yield f"{kind}_{prefix}_{strips}", piece_model(given, **options), None
    yield "bpe_own", piece_model(given, own), None
    yield "bpe_wide", piece_model(given, split_by_whitespace=False, allow_whitespace_only_pieces=True), None
    yield "unigram_own", piece_model(given, ["the", "\uff11", "<"], model_type="unigram", add_dummy_prefix=True), None
    yield "unigram_wide", piece_model(given, split_by_whitespace=False, model_type="unigram"), None
    yield "bpe_spaces", piece_model(given, add_dummy_prefix=True) + b"".join(map(run_of_spaces, [*range(2, 15), 16])), None
    yield "characters", piece_model(given, model_type="char"), None
    yield "small", piece_model(given[20:21], model_type="unigram", vocab_size=340), None
    yield "maps", piece_model(given, normalization_rule_name="nmt_nfkc"), "changes characters (nmt_nfkc)"
    yield "bpe_own_prefix", piece_model(given, own, add_dummy_prefix=True), "is user-defined in a BPE"
    yield "strips", piece_model(given, remove_extra_whitespaces=True), "remove_extra_whitespaces without"
    yield "words", piece_model(given, model_type="word"), "is of words"
    yield "unknown", piece_model(given, ["<\u0601\u0602>"], model_type="unigram"), "which is no piece"


def compare(name, tokenizer, given, folder, refusal=None):
    texts_path = folder / "texts"
    texts_path.write_text(json.dumps(given, ensure_ascii=False), encoding="utf-8")
    run = subprocess.run([PROGRAM, tokenizer, texts_path, folder / name], capture_output=True, text=True, check=False)
    if refusal:
        good = run.returncode == 1 and refusal in run.stderr and run.stderr.count("\n") == 1
        print(f"{name}: {'refused' if good else 'NOT REFUSED'}: {run.stderr.strip()[:200]}")
        return good
    if run.returncode != 0:
        print(f"{name}: {run.stderr}")
        return False
    theirs = Tokenizer.from_file(str(folder / name / "tokenizer.json"))
    theirs.encode_special_tokens = True
    config = json.loads((folder / name / "tokenizer_config.json").read_text(encoding="utf-8"))
    is_unigram = json.loads(theirs.to_str())["model"]["type"] == "Unigram"
    begins = [] if name.startswith("file_") else [theirs.token_to_id(config["bos_token"])]
    tokens = bad = other = 0
    for text, (wanted, decoded) in zip(given, json.loads(run.stdout), strict=True):
        made = theirs.encode(text, add_special_tokens=False).ids
        tokens += len(made)
        good = theirs.decode(made, skip_special_tokens=False) == decoded
        if good and made != wanted and is_unigram and sorted(made) == sorted(wanted):
            other += 1  # of equally good cuts
        else:
            good = good and made == wanted and (not begins or theirs.encode(text).ids == begins + made)
        bad += not good
        if not good and bad <= 5:
            print(f"{name}: {text[:80]!r}: ours {wanted[:12]}, theirs {made[:12]}, which is {theirs.decode(made)[:60]!r}")
    print(f"{name}: {tokens} tokens of {len(given)} texts, {bad} texts differ; {other} have other equally good tokens")
    return tokens > 100 and bad == 0 and other * 20 < len(given)


def main():
    given = list(texts())
    model = learn(given)
    few = given[::24] + list(nasty())
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "sample").write_text("\n".join(sentences(given)), encoding="utf-8")
        good = [compare("byte", "byte", few, folder)]
        good += [compare(kind, f"{kind}:{folder / 'sample'}", few, folder) for kind in ("bpe", "unigram")]
        good.append(compare("file_gpt2", FILES / "gpt2.json", few, folder))
        good.append((folder / "file_gpt2/tokenizer.json").read_bytes() == (FILES / "gpt2.json").read_bytes())
        for name, file, _ in rank_files(model):
            path = folder / name
            path.write_text(file, encoding="utf-8")
            good.append(compare(f"made_{name}", path, few, folder))
        for name, file, refusal in piece_models(given):
            path = folder / f"{name}.model"
            path.write_bytes(file)
            good.append(compare(name, path, few, folder, refusal))
    sys.exit(0 if len(good) > 20 and all(good) else 1)


main()
