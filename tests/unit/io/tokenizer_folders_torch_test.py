"""tokenizer_folders_torch_test.py PROGRAM: AutoTokenizer of transformers loads the folders that PROGRAM
(hugging_face_files_program) writes, beside the config.json of any model, and gives the same tokens. It needs no PyTorch
itself, so tokenizer_folders_transformers4_test runs it with another version."""

import base64
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", TRANSFORMERS_VERBOSITY="error")
import transformers  # noqa: E402
from transformers import AutoTokenizer  # noqa: E402

PROGRAM = sys.argv[1]
FILES = pathlib.Path(__file__).resolve().parent / "tokenizers"
# Not qwen2: transformers 5 gives these models the class of Qwen's own tokenizer, whatever the folder says.
MODELS = [None, "gpt2", "llama", "mistral", "ministral3", "qwen3", "gemma", "gemma3_text", "phi3", "gpt_neox", "olmo2",
          "cohere", "starcoder2", "granite", "smollm3"]
CONTEXT = 1024  # of PROGRAM


def sample():
    return "".join(path.read_text(encoding="utf-8") for path in sorted(FILES.parent.glob("*_test.cc"))[:9])


def texts():
    draws = random.Random(5)
    yield from ["", " ", "a", "  two  spaces ", "caf\u00e9 \u65e5\u672c \U0001f600\n\n\t.", "a\u2581b \u2581", "\x00\x01", "n't  ' s",
                "do n't . , ! ?", "<0x41>", "<|im_begin|>user\nHi", "x" * 300, "1234567 12.5", sample()[:3000]]
    for _ in range(40):
        yield "".join(draws.choice(" \n.,'abcdeinrst\u00e9\u65e50123<>|") for _ in range(draws.randrange(1, 60)))


def tekken():
    """A tekken.json of bytes and a few words."""
    tokens = [bytes([b]) for b in range(256)] + [b"in", b"th", b"the", b" the", b"ing", b"  "]
    entries = [{"rank": i, "token_bytes": base64.b64encode(t).decode(), "token_str": None} for i, t in enumerate(tokens)]
    pattern = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    return json.dumps({"config": {"pattern": pattern, "default_vocab_size": 20 + len(tokens), "default_num_special_tokens": 20},
                       "vocab": entries})


def brought(folder, tokenizer, config=None):
    """A folder of files that come with the tokenizer: their tokens around texts are rewritten."""
    folder.mkdir()
    (folder / "tokenizer.json").write_bytes((FILES / f"{tokenizer}.json").read_bytes())
    if config:
        config = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": CONTEXT, **config}
        (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def folders(folder, given):
    """Triples of a name, a folder, and the tokens of the texts."""
    (folder / "texts").write_text(json.dumps(given), encoding="utf-8")
    (folder / "sample").write_text(sample(), encoding="utf-8")
    (folder / "tekken.json").write_text(tekken(), encoding="utf-8")
    for name, tokenizer in (("byte", "byte"), ("bpe", f"bpe:{folder / 'sample'}"), ("unigram", f"unigram:{folder / 'sample'}"),
                            ("tekken", folder / "tekken.json"), ("gpt2", FILES / "gpt2.json"),
                            ("qwen2", FILES / "qwen2.json"), ("their-gpt2", brought(folder / "a", "gpt2")),
                            ("their-qwen2", brought(folder / "b", "qwen2", {"eos_token": "<|im_end|>", "add_bos_token": False})),
                            ("their-llama3", brought(folder / "c", "llama3", {"eos_token": "<|eot_id|>",
                                                                             "bos_token": "<|begin_of_text|>"}))):
        run = subprocess.run([PROGRAM, tokenizer, folder / "texts", folder / name], capture_output=True, text=True, check=False)
        if run.returncode != 0:
            sys.exit(f"{name}: {run.stderr}")
        yield name, folder / name, json.loads(run.stdout)


def differences(name, folder, given, wanted):
    theirs = AutoTokenizer.from_pretrained(folder)
    begin = theirs.convert_tokens_to_ids(theirs.bos_token)
    is_unbegun = name == "their-llama3"
    end = begin if not is_unbegun else theirs.convert_tokens_to_ids("<|eot_id|>")
    if (theirs.eos_token_id, begin, theirs.model_max_length) != (end, theirs.bos_token_id, CONTEXT):
        yield f"end of text {theirs.eos_token_id}, begin of text {begin}, context {theirs.model_max_length}"
    is_file = name in ("gpt2", "qwen2")  # that stays as it is
    for text, (tokens, decoded) in zip(given, wanted, strict=True):
        made = theirs.encode(text, add_special_tokens=False)
        if made != tokens:
            yield f"{text[:60]!r}: ours {tokens[:12]}, theirs {made[:12]}"
        begun = tokens if is_unbegun else [begin] + tokens
        if not is_file and theirs.encode(text) != begun:
            yield f"{text[:60]!r}: begins with {theirs.encode(text)[:3]}, not {begun[:3]}"
        if theirs.decode(made) != decoded:
            yield f"{text[:60]!r}: is {theirs.decode(made)[:60]!r} again"


def main():
    given = list(texts())
    bad = 0
    with tempfile.TemporaryDirectory() as temporary:
        for name, folder, wanted in folders(pathlib.Path(temporary), given):
            for model in MODELS:
                config = folder / "config.json"
                if model:
                    config.write_text(json.dumps({"model_type": model}), encoding="utf-8")
                found = list(differences(name, folder, given, wanted))
                bad += bool(found)
                for line in found[:3]:
                    print(f"{name} beside {model}: {line}")
            print(f"{name}: {len(given)} texts beside {len(MODELS)} models")
    print(f"transformers {transformers.__version__}: {bad} differ")
    sys.exit(bad > 0)


main()
