"""export.py: writes a checkpoint as GGUF with tokenizer and chat template inside.

    python export.py CHECKPOINT.pt OUT.gguf [--type Q8_0|F32] [--tokenizer tokenizer.json]

Names and value changes are the public converter's; tests/py/oracle_gguf.py makes them and is held against llama.cpp by a test
of its own. Norms, routers, gates of the scan and the convolution stay float32."""
import argparse
import json
import os
import sys

import gguf
import numpy as np
import torch

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "tests", "py"))
import oracle_gguf                                              # noqa: E402


def weights(checkpoint):
    """transformers' names to float32 arrays, experts' gate and up apart."""
    out = {}
    for name, t in checkpoint["tensors"].items():
        a = t.float().numpy()
        if name.endswith("experts.gate_up_proj"):
            stem = name[:-len("gate_up_proj")]
            half = a.shape[1] // 2
            out[stem + "gate_proj.weight"], out[stem + "up_proj.weight"] = a[:, :half], a[:, half:]
        elif name.endswith("experts.down_proj"):
            out[name + ".weight"] = a
        else:
            out[name] = a
    return out


def keys(c):
    rotary = int(c["head_dim"] * c["partial_rotary_factor"]) // 2
    third = rotary // 3
    return dict(c, rope_parameters={"rope_theta": c["rope_theta"], "partial_rotary_factor": c["partial_rotary_factor"],
                                    "mrope_section": [rotary - 2 * third, third, third]})


def add_tokenizer(w, path):
    with open(path) as f:
        data = json.load(f)
    vocab = data["model"]["vocab"]
    tokens = [None] * (max(max(vocab.values()), max(t["id"] for t in data["added_tokens"])) + 1)
    types = [int(gguf.TokenType.NORMAL)] * len(tokens)
    for text, i in vocab.items():
        tokens[i] = text
    for t in data["added_tokens"]:
        tokens[t["id"]] = t["content"]
        types[t["id"]] = int(gguf.TokenType.CONTROL if t["special"] else gguf.TokenType.USER_DEFINED)
    merges = [m if isinstance(m, str) else " ".join(m) for m in data["model"]["merges"]]
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("qwen35")
    w.add_token_list(tokens)
    w.add_token_types(types)
    w.add_token_merges(merges)
    w.add_add_bos_token(False)
    w.add_eos_token_id(tokens.index("<|im_end|>"))
    w.add_pad_token_id(tokens.index("<|endoftext|>"))
    with open(os.path.join(HERE, "template.jinja")) as f:
        w.add_chat_template(f.read())


def stays_float32(name, array):
    return oracle_gguf.stays_float32(name, array) or "ssm_alpha" in name or "ssm_beta" in name


def write(checkpoint, out, dtype="Q8_0", tokenizer=os.path.join(HERE, "tokenizer.json")):
    c = checkpoint["config"]
    config = keys(c)
    tensors = oracle_gguf.convert(weights(checkpoint), "qwen35moe", config)
    qtype = gguf.GGMLQuantizationType[dtype]
    w = gguf.GGUFWriter(out, "qwen35moe")
    w.add_name("evenshare default")
    w.add_description("Small hybrid mixture-of-experts model made for evenshare: recall over long texts, small English, tools, JSON.")
    w.add_license("apache-2.0")
    w.add_file_type(int(gguf.LlamaFileType["ALL_F32" if dtype == "F32" else f"MOSTLY_{dtype}"]))
    oracle_gguf.add_keys(w, "qwen35moe", config)
    add_tokenizer(w, tokenizer)
    for name, array in tensors.items():
        array = np.ascontiguousarray(array, np.float32)
        if dtype == "F32" or stays_float32(name, array):
            w.add_tensor(name, array)
        else:
            w.add_tensor(name, gguf.quants.quantize(array, qtype), raw_dtype=qtype)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("checkpoint")
    p.add_argument("out")
    p.add_argument("--type", default="Q8_0")
    p.add_argument("--tokenizer", default=os.path.join(HERE, "tokenizer.json"))
    args = p.parse_args()
    write(torch.load(args.checkpoint), args.out, args.type, args.tokenizer)
    print(args.out, os.path.getsize(args.out), "bytes")


if __name__ == "__main__":
    main()
