"""record.py TEXT: trains small tokenizers on a text with PyPI's `tokenizers` and records what they make
of texts: tokenizer.json files in the manner of GPT-2, Llama 3, Qwen 2 and BERT, and expected.json,
all beside this script. huggingface_tokenizer_test reads them. Those of BERT are kept where they exist,
because WordPiece learns other words each time."""

import json
import pathlib
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = pathlib.Path(__file__).parent
CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + REST
QWEN2 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + REST

# Where a text is split shows in its tokens only if a token could span the place: of white space, and of a
# mark and U+180E, which is white space to some.
SPANNING = [("\u010a", "\u010a"), ("\u0120", "\u0120"), ("\u0109", "\u0109"), ("\u0109", "\u010a"), ("!", "\u00e1")]

TEXTS = [
    "",
    " ",
    "\n",
    "a",
    "Hello, world!",
    "  leading and trailing  ",
    "two  spaces   three    four\t\ttabs \t mixed",
    "line one\nline two\n\nline four\r\nwindows\r\n\r\n  indented\n\n\n",
    "I'll we've you're he'd it's can't I'M IT'S WE'LL don'T 'tis o''s",
    "12 345 6789 1234567 3.14159 1,000,000 x2 2x ½ ² Ⅷ ४२",
    "caf\u00e9 cafe\u0301 na\u00efve \u00c5ngstr\u00f6m A\u030angstro\u0308m \u1e9e\u0130I\u0131\u017f \u03a3\u03c3\u03c2",
    "\u4e2d\u6587\u5b57\u7b26 mixed \u65e5\u672c\u8a9e \u3042\u30a2 \ud55c\uad6d\uc5b4 \u1100\u1161\u11a8",
    "\u0440\u0443\u0441\u0441\u043a\u0438\u0439 \u0627\u0644\u0639\u0631\u0628\u064a\u0629 \u05e2\u05d1\u05e8\u05d9\u05ea "
    "\u0939\u093f\u0928\u094d\u0926\u0940 \u0e44\u0e17\u0e22",
    "\U0001f600 \U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \u2603\ufe0f \U0001d54f",
    "\u00a0\u2003\u3000\u2028\u2029\u0085\u200b\u200d\ufeff spaces \u202f of \u1680 all kinds",
    "zero\u0000byte \u0001\u001f\u007f control \ufffd replacement \ue000 private",
    "\u2581literal \u0120mark \u010a and \u00ad hyphen",
    "\"quotes\" (brackets) [more] {braces} <tags> a-b_c/d\\e@f#g$h%i^j&k*l~m`n|o+p=q;r:s,t.u!v?w",
    "\u2014dash\u2026ellipsis\u00ab\u00bb\u201c\u201d\u2018\u2019\u3002\uff0c\uff01\u00bf\u00a7\u00b6 \u20ac \u00a3 \u2122 \u00b0",
    "<|endoftext|> <|end_of_text|> [CLS] [SEP] [MASK] [PAD] [UNK] </s> <tool_call>{}</tool_call><tool_call",
    "<think>hm</think> <<think> <thin k> <think>\n\n",
    "ofofofofofofofof aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" + "b" * 120,
    "x" * 100 + " " + "y" * 101 + " " + "\u00e9" * 100 + " " + "\u00e9" * 101,
    "\u0301\u0301 starts with marks a\u0328\u0301 a\u0301\u0328 \u1e69 s\u0323\u0307 \u212b \u2126 \ufb01 \u2460 \u337f",
    " \n \n  \n\t\n end",
    "a!\u180e  \u180e.. \u180e",
    "x\n\ny\t\tz  w\t\n v\n \n  ",
    "##ing ## ing# #",
    "ROMEO:\nBut, soft! what light through yonder window breaks?\nIt is the east, and Juliet is the sun.",
]


def added(text, special=True, normalized=False):
    return AddedToken(text, special=special, normalized=normalized)


def split(pattern):
    return pre_tokenizers.Split(Regex(pattern), behavior="isolated")


def byte_level(text, pre_tokenizer, specials, normalizer=None, size=495, **model):
    tokenizer = Tokenizer(models.BPE(**model))
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=[added(s) for s in specials], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([text], trainer)
    file = json.loads(tokenizer.to_str())
    vocabulary, merges = file["model"]["vocab"], file["model"]["merges"]
    for left, right in SPANNING:
        if left + right not in vocabulary:
            vocabulary[left + right] = len(vocabulary)
            merges.append([left, right])
    return Tokenizer.from_str(json.dumps(file))


def word_piece(text, specials, **normalizer):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(**normalizer)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(vocab_size=500, special_tokens=[added(s) for s in specials], show_progress=False)
    tokenizer.train_from_iterator([text], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[(s, tokenizer.token_to_id(s)) for s in ("[CLS]", "[SEP]")])
    return tokenizer


def made(text):
    level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bare = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    bert = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    many = text + "".join(TEXTS) * 5  # so that others than English are in the vocabulary
    yield "gpt2", byte_level(text, level, ["<|endoftext|>"])
    llama = byte_level(text, pre_tokenizers.Sequence([split(LLAMA3), bare]),
                       ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"], ignore_merges=True)
    llama.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=True),
        processors.TemplateProcessing(single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", 0)])])
    yield "llama3", llama
    qwen = byte_level(text, pre_tokenizers.Sequence([split(QWEN2), bare]), ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
                      normalizers.NFC())
    qwen.add_tokens([added(s, special=False) for s in ("<tool_call>", "</tool_call>", "<think>", "</think>")])
    yield "qwen2", qwen
    for name, options in (("bert_uncased", {"lowercase": True}),
                          ("bert_cased", {"lowercase": False, "strip_accents": False})):
        path = HERE / f"{name}.json"
        yield name, Tokenizer.from_file(str(path)) if path.exists() else word_piece(many, bert, **options)


def main():
    text = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")
    texts = TEXTS + [text[:1500]]
    tokens = {}
    for name, tokenizer in made(text):
        (HERE / f"{name}.json").write_text(tokenizer.to_str() + "\n", encoding="utf-8")
        tokenizer.encode_special_tokens = True
        tokens[name] = [tokenizer.encode(t, add_special_tokens=False).ids for t in texts]
    expected = {"texts": texts, "tokens": tokens}
    (HERE / "expected.json").write_text(json.dumps(expected, separators=(",", ":")) + "\n", encoding="utf-8")


main()
