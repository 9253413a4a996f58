"""Tokenizers for tokenizer_pypi_test.py: each part of a tokenizer.json alone, and combined as Llama 2, Gemma,
Mistral, SmolLM, T5 and others have them, with models that are learnt from given texts."""

import json

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

MARK = "\u2581"
BYTES = [f"<0x{b:02X}>" for b in range(256)]
BEHAVIORS = ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]


def spm_style(texts, specials=("<unk>", "<s>", "</s>"), size=2500):
    """A model of BPE over characters in the manner of SentencePiece, whose tokens span no words."""
    made = Tokenizer(models.BPE(unk_token="<unk>"))
    made.normalizer = normalizers.Replace(" ", MARK)
    made.pre_tokenizer = pre_tokenizers.Split(Regex(f"{MARK}*[^{MARK}]+|{MARK}+"), "isolated")
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=list(specials) + BYTES, limit_alphabet=300,
                                  show_progress=False)
    made.train_from_iterator([t[:1500] for t in texts], trainer)
    return json.loads(made.to_str())["model"]


def across(texts, size=2500):
    """A model of BPE over characters whose tokens cross the places where texts are split."""
    made = Tokenizer(models.BPE(unk_token="<unk>"))
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=["<unk>", "</s>"] + BYTES, limit_alphabet=300,
                                  show_progress=False)
    made.train_from_iterator([t[:300] for t in texts] + [t[:300].replace(" ", MARK) for t in texts], trainer)
    return json.loads(made.to_str())["model"]


def unigram(texts, size=1500):
    made = Tokenizer(models.Unigram())
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=size, special_tokens=["<unk>", "</s>", "<pad>"] + BYTES, unk_token="<unk>",
                                      show_progress=False)
    made.train_from_iterator([t[:3000] for t in texts[:25]], trainer)
    return json.loads(made.to_str())["model"]


def assembled(model, normalizer=None, pre_tokenizer=None, decoder=None, added=(), **options):
    """A tokenizer.json as a text."""
    file = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
            "pre_tokenizer": None, "post_processor": None, "decoder": None, "model": {**model, **options}}
    made = Tokenizer.from_str(json.dumps(file))
    for name, part in (("normalizer", normalizer), ("pre_tokenizer", pre_tokenizer), ("decoder", decoder)):
        if part is not None:
            setattr(made, name, part)
    made.add_special_tokens([t for t in ("<s>", "</s>") if made.token_to_id(t) is not None] or ["<|endoftext|>"])
    for token in added:
        made.add_tokens([token])
    return made.to_str()


def token(text, **options):
    return AddedToken(text, **{"normalized": False, **options})


def parts(texts, byte_level, charsmap):
    """Pairs of a name and a tokenizer.json. `byte_level`: a model of bytes, `charsmap`: a character map as bytes."""
    spm, wide, uni = spm_style(texts), across(texts), unigram(texts)
    level = pre_tokenizers.ByteLevel
    sequence = pre_tokenizers.Sequence
    llama = normalizers.Sequence([normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)])
    fall = {"byte_fallback": True, "fuse_unk": True}
    dummy = decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse(),
                               decoders.Strip(" ", 1, 0)])
    spaces = [token(" " * n, normalized=True) for n in (2, 3, 4, 8)]
    odd = [token("<think>", lstrip=True), token("the", single_word=True), token("1", rstrip=True), token("\n\n")]
    # Models of today.
    yield "llama2", assembled(spm, llama, None, dummy, **fall)
    yield "llama2_added", assembled(spm, llama, None, dummy, odd + [token("King", normalized=True)], **fall)
    yield "mistral", assembled(spm, None, pre_tokenizers.Metaspace(MARK, "first", False), dummy, **fall)
    yield "gemma", assembled(spm, normalizers.Replace(" ", MARK), pre_tokenizers.Split(" ", "merged_with_previous"),
                             decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse()]),
                             [token("\n" * n) for n in (2, 3)] + [token(MARK * n) for n in (2, 3)], **fall)
    yield "smollm", assembled(byte_level, None, sequence([pre_tokenizers.Digits(True), level(add_prefix_space=False)]))
    yield "cohere", assembled(byte_level, normalizers.NFC(),
                              sequence([pre_tokenizers.Digits(True), level(add_prefix_space=False)]))
    yield "neox", assembled(byte_level, normalizers.NFC(), level(add_prefix_space=False), None, spaces)
    yield "roberta", assembled(byte_level, None, level(add_prefix_space=True))
    t5 = normalizers.Sequence([normalizers.Precompiled(charsmap), normalizers.Replace(Regex(" {2,}"), " ")])
    yield "t5", assembled(uni, t5, pre_tokenizers.Metaspace(), decoders.Metaspace())
    yield "xlmr", assembled(uni, normalizers.Precompiled(charsmap),
                            sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]), decoders.Metaspace())
    albert = normalizers.Sequence([normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD(),
                                   normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Precompiled(charsmap),
                                   normalizers.Strip(False, True), normalizers.Replace(Regex(" {2,}"), MARK)])
    yield "albert", assembled(uni, albert, pre_tokenizers.Metaspace(), decoders.Metaspace())
    # Parts.
    yield "unknown", assembled(spm, llama)
    yield "unknown_fused", assembled(spm, llama, fuse_unk=True)
    yield "unknown_gone", assembled({**spm, "unk_token": None}, llama)
    yield "ignore_merges", assembled(spm, None, pre_tokenizers.Metaspace(), ignore_merges=True, **fall)
    yield "unigram_bytes", assembled(uni, None, pre_tokenizers.Metaspace(), byte_fallback=True)
    yield "unigram_whole", assembled(uni, None, pre_tokenizers.Metaspace(split=False))
    for scheme in ("always", "first", "never"):
        for splits in (True, False):
            yield f"metaspace_{scheme}_{splits}", assembled(wide, None, pre_tokenizers.Metaspace(MARK, scheme, splits),
                                                            None, odd)
    for name, part in (("strip", normalizers.Strip()), ("strip_left", normalizers.Strip(True, False)),
                       ("accents", normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()])),
                       ("marks", normalizers.StripAccents()),
                       ("lowercase", normalizers.Lowercase()), ("nfkc", normalizers.NFKC()), ("nfkd", normalizers.NFKD()),
                       ("replace", normalizers.Replace("th", "\u00e9")),
                       ("replace_regex", normalizers.Replace(Regex(r"\s+"), MARK)),
                       ("replace_words", normalizers.Replace(Regex(r"e\s|\p{N}+"), "#")),
                       ("charsmap", normalizers.Precompiled(charsmap))):
        yield name, assembled(wide, part, None, None, odd + [token("King", normalized=True, single_word=True)])
        yield f"{name}_level", assembled(byte_level, part, level(add_prefix_space=False), None,
                                         [token("King", normalized=True)])
    for name, part in (("marks", normalizers.StripAccents()), ("charsmap", normalizers.Precompiled(charsmap)),
                       ("clean", normalizers.BertNormalizer(True, False, False, False))):
        yield f"{name}_first", assembled(wide, part, pre_tokenizers.Metaspace(MARK, "first", True))
    for name, part in (("digits", pre_tokenizers.Digits(False)), ("digits_alone", pre_tokenizers.Digits(True)),
                       ("whitespace", pre_tokenizers.Whitespace()), ("whitespace_split", pre_tokenizers.WhitespaceSplit()),
                       ("prefix", sequence([pre_tokenizers.Punctuation(), level(add_prefix_space=True, use_regex=False)])),
                       ("bare", level(add_prefix_space=True, use_regex=False))):
        model = byte_level if name in ("prefix", "bare") else wide
        yield name, assembled(model, None, part)
    for behavior in BEHAVIORS:
        yield f"punctuation_{behavior}", assembled(wide, None, pre_tokenizers.Punctuation(behavior), None, odd)
        for invert in (False, True):
            for name, pattern in (("text", "e "), ("regex", Regex(r"\s+|\p{L}?,"))):
                yield (f"split_{name}_{behavior}_{invert}",
                       assembled(wide, None, pre_tokenizers.Split(pattern, behavior, invert)))
