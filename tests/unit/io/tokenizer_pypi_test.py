"""tokenizer_pypi_test.py REPOSITORY PROGRAM: encodes many texts with PROGRAM (tokenizer_program) and with
PyPI's `tokenizers`, and compares: sources of this repository, texts of random characters, and each
character of Unicode alone. Byte-level BPE is compared with another vocabulary, too, which is learnt from
these texts without splitting them: nearly every place where a text is split shows in its tokens. Then come
the tokenizers of tokenizer_parts_pypi.py. PROGRAM itself checks that texts in pieces have the same tokens."""

import base64
import io
import json
import math
import pathlib
import random
import subprocess
import sys
import tempfile
import unicodedata

import sentencepiece
import tiktoken
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from tokenizer_parts_pypi import parts

REPOSITORY, PROGRAM = pathlib.Path(sys.argv[1]), sys.argv[2]
FILES = REPOSITORY / "tests/unit/io/tokenizers"
BLOCKS = [(0x20, 0x7f), (0x20, 0x7f), (0x00, 0x100), (0x300, 0x36f), (0x370, 0x530), (0x590, 0x6d5), (0x900, 0x970),
          (0x1100, 0x1200), (0x1e00, 0x2070), (0x3000, 0x3100), (0x4e00, 0x4f00), (0xac00, 0xad00), (0xff00, 0xff60),
          (0x1f300, 0x1f5ff)]
WORDS = [" ", "  ", "\n", "\n\n", "\r\n", "\t", "'s", "'LL", "the ", "King", "1234", "...", "<think>", "</think", "[SEP]"]
# Bases of characters differ between the versions of Unicode that the programs know: BERT's normalizer
# has that of Unicode 8, Debian's PCRE2 14. Older characters are the same for all.
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
OLD = unicodedata.ucd_3_2_0
FLOAT_STEP = 2 ** -23


def is_old(character):
    return OLD.category(character) not in ("Cn", "Cs") and OLD.category(character) == unicodedata.category(character)


def texts():
    draws = random.Random(7)
    sources = sorted(REPOSITORY.glob("io/*/*.cc")) + sorted(REPOSITORY.glob("*/README.md"))
    yield from (path.read_text(encoding="utf-8") for path in sources)
    for _ in range(1500):
        parts = []
        for _ in range(draws.randrange(1, 40)):
            low, high = draws.choice(BLOCKS)
            characters = (chr(draws.randrange(low, high)) for _ in range(draws.randrange(1, 6)))
            parts.append("".join(c for c in characters if is_old(c)) if draws.random() < 0.6 else draws.choice(WORDS))
        yield "".join(parts)
    characters = [chr(c) for c in range(0x30000) if is_old(chr(c))]
    for start in range(0, len(characters), 64):
        yield "".join(f"a{c}b {c}1{c}{c}" for c in characters[start:start + 64])


def learn(given):
    """A model of BPE whose tokens cross the places where texts are split."""
    whole = Tokenizer(models.BPE())
    whole.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trainer = trainers.BpeTrainer(vocab_size=3000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  show_progress=False)
    whole.train_from_iterator([text[:600] for text in given], trainer)
    return json.loads(whole.to_str())["model"]


def with_model(path, model):
    """The tokenizer of a file with another model, as a text."""
    file = json.loads(path.read_text(encoding="utf-8"))
    file["model"] = {**file["model"], "vocab": model["vocab"], "merges": model["merges"]}
    count = len(model["vocab"])
    for token in file["added_tokens"]:
        token["id"] = model["vocab"].get(token["content"], count)
        count += token["id"] == count
    file["post_processor"] = None  # it names tokens by numbers
    return json.dumps(file)


def fields(message):
    """The fields of a protocol buffer, as pairs of number and value."""
    at = 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            value |= (byte & 127) << shift
            at, shift = at + 1, shift + 7
            if byte < 128:
                return value

    while at < len(message):
        key = number()
        if key & 7 == 0:
            yield key >> 3, number()
            continue
        size = number() if key & 7 == 2 else 4
        yield key >> 3, message[at:at + size]
        at += size


def character_map(given):
    """The map of SentencePiece's nmt_nfkc."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(given[:50]), model_writer=model, vocab_size=600,
                                             hard_vocab_limit=False, minloglevel=2)
    normalizer = next(value for number, value in fields(model.getvalue()) if number == 3)
    return next(value for number, value in fields(normalizer) if number == 2)


def piece_models(given):
    """Models of SentencePiece with normalisers of all kinds, as pairs of a name and bytes."""
    for kind, own in (("bpe", ["\u2581\u2581", "\n\n"]), ("unigram", [])):
        for rule in ("identity", "nmt_nfkc"):
            for prefix, strips in ((True, True), (True, False), (False, True), (False, False)):
                model = io.BytesIO()
                sentencepiece.SentencePieceTrainer.train(
                    sentence_iterator=iter([line for text in given[:12] for line in text.split("\n")]), model_writer=model,
                    vocab_size=900, hard_vocab_limit=False, minloglevel=2, byte_fallback=True, model_type=kind,
                    normalization_rule_name=rule, add_dummy_prefix=prefix, remove_extra_whitespaces=strips,
                    user_defined_symbols=["<think>", "\uff11", *own],
                    max_sentence_length=100000, num_threads=2)
                yield f"{kind}_{rule}_{prefix}_{strips}", model.getvalue()


def models_without_bytes(given):
    """Models of SentencePiece that do not know every character, as T5 and XLM-R have, in pairs like those."""
    choices = [(kind, rule, prefix, strips) for kind in ("unigram", "bpe") for rule, prefix, strips in
               (("nmt_nfkc", True, True), ("identity", False, False), ("nfkc_cf", True, False), ("nmt_nfkc_cf", False, True))]
    choices += [("char", "nmt_nfkc", True, True), ("char", "identity", False, False), ("word", "nmt_nfkc", True, True),
                ("word", "identity", True, False)]
    for kind, rule, prefix, strips in choices:
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([line for text in given[:12] for line in text.split("\n")]), model_writer=model,
            vocab_size=700, hard_vocab_limit=False, minloglevel=2, model_type=kind, normalization_rule_name=rule,
            add_dummy_prefix=prefix, remove_extra_whitespaces=strips, character_coverage=0.98,
            user_defined_symbols=["<think>", "\uff11"] if kind != "word" else [], unk_surface="?" if strips else " \u2047 ",
            max_sentence_length=100000, num_threads=2)
        yield f"{kind}_{rule}_{prefix}_{strips}_unknown", model.getvalue()


def rank_files(model):
    """Rank files in the manner of Llama 3 and Mistral, as triples of a name, a text, and what encodes with them."""
    level = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    visible = {chr(b): b for b in level}
    visible |= {chr(0x100 + i): b for i, b in enumerate(b for b in range(256) if b not in level)}
    words = [bytes(visible[c] for c in word) for word in model["vocab"]]
    tokens = [bytes([b]) for b in range(256)] + sorted({w for w in words if len(w) > 1}, key=len)
    tokens += [f"{i:06d}#".encode() for i in range(128000 - len(tokens))]
    lines = [f"{base64.b64encode(t).decode()} {i}\n" for i, t in enumerate(tokens)]
    made = tiktoken.Encoding("made", pat_str=LLAMA3, mergeable_ranks={t: i for i, t in enumerate(tokens)}, special_tokens={})
    yield "ranks.model", "".join(lines), made.encode_ordinary
    entries = [{"rank": i, "token_bytes": base64.b64encode(t).decode(), "token_str": None} for i, t in enumerate(tokens)]
    config = {"pattern": LLAMA3, "default_vocab_size": 4000, "default_num_special_tokens": 100}
    made = tiktoken.Encoding("made", pat_str=LLAMA3, mergeable_ranks={t: i for i, t in enumerate(tokens[:3900])},
                             special_tokens={})
    yield ("tekken.json", json.dumps({"config": config, "vocab": entries}),
           lambda text: [token + 100 for token in made.encode_ordinary(text)])


def encoder_of(path):
    if path.suffix == ".model":
        return sentencepiece.SentencePieceProcessor(model_file=str(path)).encode
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.encode_special_tokens = True
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids


def equally_good(path, made, wanted):
    """Whether a Unigram model of SentencePiece cut a text as well. It adds up the scores of pieces as 32-bit floats from the
    text's beginning, so of cuts that differ by less its versions take one or the other, and so does a text in parts."""
    if path.suffix != ".model" or not path.name.startswith("unigram_"):
        return False
    model = sentencepiece.SentencePieceProcessor(model_file=str(path))
    scores = [math.fsum(model.get_score(piece) for piece in pieces) for pieces in (made, wanted)]
    if abs(scores[0] - scores[1]) > 4 * FLOAT_STEP * abs(scores[1]):
        return False
    return "".join(model.id_to_piece(made)) == "".join(model.id_to_piece(wanted))


def compare(path, texts_path, given, encode=None):
    run = subprocess.run([PROGRAM, path, texts_path], capture_output=True, text=True, check=False)
    if run.returncode != 0:
        print(f"{path.name}: {run.stderr}")
        return False
    *lines, cuts = run.stdout.split("\n")[:-1]
    assert len(lines) == len(given), f"{len(lines)} lines of {len(given)} texts"
    tokens = bad = 0
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(path)) if path.suffix == ".model" and not encode else None
    encode = encode or encoder_of(path)
    for text, line in zip(given, lines):
        wanted = encode(text)
        tokens += len(wanted)
        numbers, decoded = line.split("\t")
        made = [int(word) for word in numbers.split()]
        if pieces and json.loads(decoded) != pieces.decode(made):
            print(f"{path.name}: {text[:80]!r}: {made[:9]} are decoded to {decoded[:80]}, not {pieces.decode(made)[:80]!r}")
            bad += 1
        if made == wanted or equally_good(path, made, wanted):
            continue
        bad += 1
        at = next((i for i, (a, b) in enumerate(zip(made, wanted)) if a != b), min(len(made), len(wanted)))
        if bad <= 5:
            print(f"{path.name}: {text[:80]!r}: token {at}: ours {made[at:at + 6]}, theirs {wanted[at:at + 6]}")
    print(f"{path.name}: {tokens} tokens of {len(given)} texts, {bad} texts differ; {cuts}")
    # Unigram adds up scores from a word's beginning on, and unknown words of SentencePiece beside each other are one.
    has_no_place = path.name == "unigram_whole.json" or path.name.startswith("word_")
    return tokens > 100 and bad == 0 and (has_no_place or not cuts.startswith("0 "))


def main():
    given = list(texts())
    model = learn(given)
    with tempfile.TemporaryDirectory() as folder:
        texts_path = pathlib.Path(folder) / "texts"
        texts_path.write_text(json.dumps(given, ensure_ascii=False), encoding="utf-8")
        good = []
        for path in sorted(FILES.glob("*.json")):
            if path.name == "expected.json":
                continue
            good.append(compare(path, texts_path, given))
            if "bert" not in path.name:
                other = pathlib.Path(folder) / f"{path.stem}_learnt.json"
                other.write_text(with_model(path, model), encoding="utf-8")
                good.append(compare(other, texts_path, given))
        # Unigram takes the name of end of text for a word, and ours never does.
        few = [text for text in given[::32] if "</s>" not in text]
        texts_path.write_text(json.dumps(few, ensure_ascii=False), encoding="utf-8")
        for name, file in parts(few, model, character_map(given)):
            path = pathlib.Path(folder) / f"{name}.json"
            path.write_text(file, encoding="utf-8")
            good.append(compare(path, texts_path, few))
        for name, file, encode in rank_files(model):
            path = pathlib.Path(folder) / name
            path.write_text(file, encoding="utf-8")
            good.append(compare(path, texts_path, few, encode))
        for name, file in [*piece_models(given), *models_without_bytes(given)]:
            path = pathlib.Path(folder) / f"{name}.model"
            path.write_bytes(file)
            good.append(compare(path, texts_path, few))
    sys.exit(0 if len(good) > 107 and all(good) else 1)


if __name__ == "__main__":
    main()
