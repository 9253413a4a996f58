"""Files of safetensors without the package of that name: dictionaries of (type, shape, bytes) by name."""
import array
import json
import math
import random
import struct
from pathlib import Path


def write(path, tensors):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, (kind, shape, values) in tensors.items():
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    Path(path).write_bytes(struct.pack("<Q", len(text)) + text + data)


def write_zeros(path, shapes):
    """Tensors of zeros. They take no space on a disk, so there may be more of them than it has."""
    header, end = {}, 0
    for name, shape in shapes.items():
        begin, end = end, end + 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)


def read(path):
    data = Path(path).read_bytes()
    length, = struct.unpack_from("<Q", data)
    tensors = {}
    for name, entry in json.loads(data[8:8 + length]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        tensors[name] = (entry["dtype"], entry["shape"], data[begin:end])
    return tensors


def read_folder(folder):
    """All tensors of a folder with or without an index."""
    index = Path(folder) / "model.safetensors.index.json"
    if not index.exists():
        return read(Path(folder) / "model.safetensors")
    files = json.loads(index.read_text())["weight_map"]
    tensors = {}
    for name in sorted(set(files.values())):
        here = read(Path(folder) / name)
        assert {tensor for tensor, file in files.items() if file == name} == set(here), name
        tensors.update(here)
    return tensors


def random_tensor(shape, seed, deviation=0.2):
    draws = random.Random(seed)
    count = 1
    for extent in shape:
        count *= extent
    return "F32", list(shape), array.array("f", (draws.gauss(0.0, deviation) for _ in range(count))).tobytes()


def gpt2_shapes(layers=2, width=16, heads=2, vocabulary=257, context=16):
    """config.json of a GPT-2, and the shapes of its tensors."""
    config = {"model_type": "gpt2", "n_layer": layers, "n_embd": width, "n_head": heads, "n_inner": None,
              "vocab_size": vocabulary, "n_positions": context, "activation_function": "gelu_new"}
    shapes = {"wte.weight": (vocabulary, width), "wpe.weight": (context, width)}
    for layer in range(layers):
        block = f"h.{layer}."
        for name, inputs, outputs in (("attn.c_attn", width, 3 * width), ("attn.c_proj", width, width),
                                      ("mlp.c_fc", width, 4 * width), ("mlp.c_proj", 4 * width, width)):
            shapes[block + name + ".weight"] = (inputs, outputs)
            shapes[block + name + ".bias"] = (outputs,)
        for name in ("ln_1", "ln_2"):
            shapes.update({block + name + ".weight": (width,), block + name + ".bias": (width,)})
    shapes.update({"ln_f.weight": (width,), "ln_f.bias": (width,)})
    return config, {"transformer." + name: shape for name, shape in shapes.items()}


def gpt2(**sizes):
    """config.json of a small GPT-2, and its tensors with random values."""
    config, shapes = gpt2_shapes(**sizes)
    return config, {name: random_tensor(shape, name.removeprefix("transformer.")) for name, shape in shapes.items()}


def llama(layers=2, width=16, heads=4, kv_heads=2, hidden=24, vocabulary=257, context=16):
    config = {"model_type": "llama", "num_hidden_layers": layers, "hidden_size": width,
              "num_attention_heads": heads, "num_key_value_heads": kv_heads, "intermediate_size": hidden,
              "vocab_size": vocabulary, "max_position_embeddings": context, "hidden_act": "silu",
              "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False}
    kv_width = width // heads * kv_heads
    shapes = {"model.embed_tokens.weight": (vocabulary, width), "lm_head.weight": (vocabulary, width),
              "model.norm.weight": (width,)}
    for layer in range(layers):
        block = f"model.layers.{layer}."
        shapes.update({block + "self_attn.q_proj.weight": (width, width),
                       block + "self_attn.k_proj.weight": (kv_width, width),
                       block + "self_attn.v_proj.weight": (kv_width, width),
                       block + "self_attn.o_proj.weight": (width, width),
                       block + "mlp.gate_proj.weight": (hidden, width),
                       block + "mlp.up_proj.weight": (hidden, width),
                       block + "mlp.down_proj.weight": (width, hidden),
                       block + "input_layernorm.weight": (width,),
                       block + "post_attention_layernorm.weight": (width,)})
    return config, {name: random_tensor(shape, name) for name, shape in shapes.items()}


def phi3(**sizes):
    """The same as Phi-3 has it: query, key and value are one tensor, and so are gate and up."""
    config, tensors = llama(**sizes)
    made = {}
    for name, (dtype, shape, data) in tensors.items():
        for parts, whole in ((("q_proj", "k_proj", "v_proj"), "qkv_proj"), (("gate_proj", "up_proj"), "gate_up_proj")):
            if parts[0] in name:
                all_parts = [tensors[name.replace(parts[0], part)] for part in parts]
                rows = sum(part[1][0] for part in all_parts)
                made[name.replace(parts[0], whole)] = (dtype, [rows, *shape[1:]], b"".join(part[2] for part in all_parts))
                break
            if any(part in name for part in parts):
                break
        else:
            made[name] = (dtype, shape, data)
    return {**config, "model_type": "phi3", "sliding_window": None}, made


def vit(layers=4, width=16, heads=2, hidden=24, image=12, patch=4, classes=3):
    """config.json of a small ViTForImageClassification, and its tensors with random values."""
    config = {"model_type": "vit", "num_hidden_layers": layers, "hidden_size": width, "num_attention_heads": heads,
              "intermediate_size": hidden, "image_size": image, "patch_size": patch, "num_channels": 3,
              "hidden_act": "gelu", "layer_norm_eps": 1e-6, "qkv_bias": True,
              "id2label": {str(number): f"LABEL_{number}" for number in range(classes)}}
    shapes = {"vit.embeddings.cls_token": (1, 1, width),
              "vit.embeddings.position_embeddings": (1, 1 + (image // patch) ** 2, width)}
    layers_of_blocks = [("vit.embeddings.patch_embeddings.projection", (width, 3, patch, patch)),
                        ("vit.layernorm", (width,)), ("classifier", (classes, width))]
    for layer in range(layers):
        block = f"vit.encoder.layer.{layer}."
        layers_of_blocks += [(block + "attention.attention." + part, (width, width))
                             for part in ("query", "key", "value")]
        layers_of_blocks += [(block + "attention.output.dense", (width, width)),
                             (block + "intermediate.dense", (hidden, width)),
                             (block + "output.dense", (width, hidden)),
                             (block + "layernorm_before", (width,)), (block + "layernorm_after", (width,))]
    for name, shape in layers_of_blocks:
        shapes.update({name + ".weight": shape, name + ".bias": shape[:1]})
    return config, {name: random_tensor(shape, name) for name, shape in shapes.items()}


def bert(layers=2, width=16, heads=2, hidden=24, vocabulary=262, context=16):
    """config.json of a small BertForMaskedLM, and its tensors with random values."""
    config = {"model_type": "bert", "num_hidden_layers": layers, "hidden_size": width, "num_attention_heads": heads,
              "intermediate_size": hidden, "vocab_size": vocabulary, "max_position_embeddings": context,
              "type_vocab_size": 2, "hidden_act": "gelu", "layer_norm_eps": 1e-12}
    shapes = {"bert.embeddings.word_embeddings.weight": (vocabulary, width),
              "bert.embeddings.position_embeddings.weight": (context, width),
              "bert.embeddings.token_type_embeddings.weight": (2, width),
              "cls.predictions.bias": (vocabulary,)}
    layers_of_blocks = [("bert.embeddings.LayerNorm", (width,)),
                        ("cls.predictions.transform.dense", (width, width)),
                        ("cls.predictions.transform.LayerNorm", (width,))]
    for layer in range(layers):
        block = f"bert.encoder.layer.{layer}."
        layers_of_blocks += [(block + "attention.self." + part, (width, width)) for part in ("query", "key", "value")]
        layers_of_blocks += [(block + "attention.output.dense", (width, width)),
                             (block + "attention.output.LayerNorm", (width,)),
                             (block + "intermediate.dense", (hidden, width)),
                             (block + "output.dense", (width, hidden)),
                             (block + "output.LayerNorm", (width,))]
    for name, shape in layers_of_blocks:
        shapes.update({name + ".weight": shape, name + ".bias": shape[:1]})
    return config, {name: random_tensor(shape, name) for name, shape in shapes.items()}
