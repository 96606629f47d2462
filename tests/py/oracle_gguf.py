"""Write an oracle model (a Hugging Face folder of one of the seven families) as GGUF, with the public converter's names, keys
and value changes, so that the GGUF path can be held against the same reference logits as the safetensors path.

    oracle_gguf.py FOLDER OUT.gguf [--type F32|F16|BF16|Q8_0|Q4_0|Q4_1|Q5_0|Q5_1]

or `from oracle_gguf import write_gguf`. What the converter changes, and so does this:
  A_log becomes −exp(A_log); norms of the zero-centred families get their 1 (not DeltaNet's own norm); qwen3_5* value heads go
  from grouped to tiled order; q and k rows of llama are interleaved for its kind of RoPE; the convolution loses its middle
  axis; experts are stacked; qwen3_next's fused [q, k, v, z] per key head is taken apart (its [b, a] stays as it is).
Vectors, norms, routers, and the convolution stay float32, as do weights whose rows are no whole blocks of the wanted type."""
import argparse
import json
import os
import struct

import gguf
import numpy as np

ARCHITECTURES = {
    "llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "qwen3_moe": "qwen3moe", "qwen3_next": "qwen3next",
    "qwen3_5": "qwen35", "qwen3_5_text": "qwen35", "qwen3_5_moe": "qwen35moe", "qwen3_5_moe_text": "qwen35moe",
}
ZERO_CENTRED = {"qwen35", "qwen35moe", "qwen3next"}
TILED = {"qwen35", "qwen35moe"}
NAMES = {
    "input_layernorm.weight": "attn_norm.weight", "post_attention_layernorm.weight": "ffn_norm.weight",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "linear_attn.in_proj_qkv": "attn_qkv", "linear_attn.in_proj_z": "attn_gate", "linear_attn.in_proj_a": "ssm_alpha",
    "linear_attn.in_proj_b": "ssm_beta", "linear_attn.in_proj_ba": "ssm_ba", "linear_attn.conv1d": "ssm_conv1d",
    "linear_attn.norm": "ssm_norm", "linear_attn.out_proj": "ssm_out", "linear_attn.A_log": "ssm_a",
    "linear_attn.dt_bias": "ssm_dt.bias",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "mlp.gate": "ffn_gate_inp",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp", "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp", "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    "mlp.experts.gate_proj": "ffn_gate_exps", "mlp.experts.up_proj": "ffn_up_exps", "mlp.experts.down_proj": "ffn_down_exps",
}
GLOBAL = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
          "lm_head.weight": "output.weight"}


def read_safetensors(path):
    """Name to float32 (or int32) array; NumPy knows no bfloat16, so by hand."""
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        raw = data[begin:end]
        if entry["dtype"] == "BF16":
            array = (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)
        else:
            array = np.frombuffer(raw, {"F32": "<f4", "F16": "<f2", "I32": "<i4", "I64": "<i8"}[entry["dtype"]])
            array = array.astype(np.float32) if entry["dtype"] == "F16" else array
        tensors[name] = array.reshape(entry["shape"])
    return tensors


def stack_experts(tensors):
    """...experts.K.gate_proj.weight for every K become one ...experts.gate_proj.weight."""
    out, stacks = {}, {}
    for name, array in tensors.items():
        head, found, tail = name.partition(".mlp.experts.")
        if found and tail[0].isdigit():
            number, rest = tail.split(".", 1)
            stacks.setdefault(f"{head}.mlp.experts.{rest}", {})[int(number)] = array
        else:
            out[name] = array
    for name, parts in stacks.items():
        out[name] = np.stack([parts[k] for k in range(len(parts))])
    return out


def tile_heads(array, key_heads, value_heads, width, axis=0):
    """Value heads along `axis`, `width` entries each, from [key head][j] order to [j][key head]."""
    moved = np.moveaxis(array, axis, 0)
    rest = moved.shape[1:]
    moved = moved.reshape(key_heads, value_heads // key_heads, width, *rest).swapaxes(0, 1).reshape(-1, *rest)
    return np.moveaxis(moved, 0, axis)


def tile_deltanet(name, array, config):
    hk, hv = config["linear_num_key_heads"], config["linear_num_value_heads"]
    dk, dv = config["linear_key_head_dim"], config["linear_value_head_dim"]
    if "in_proj_qkv." in name or "conv1d" in name:
        keys = 2 * hk * dk
        return np.concatenate([array[:keys], tile_heads(array[keys:], hk, hv, dv)])
    if "in_proj_z" in name:
        return tile_heads(array, hk, hv, dv)
    if "out_proj" in name:
        return tile_heads(array, hk, hv, dv, axis=1)
    if any(part in name for part in ["in_proj_a.", "in_proj_b.", "A_log", "dt_bias"]):
        return tile_heads(array, hk, hv, 1)
    return array


def split_qkvz(array, config):
    """Rows [q, k, r·v, r·z] of each key head to ([q of all | k of all | v of all], z of all)."""
    hk, dk = config["linear_num_key_heads"], config["linear_key_head_dim"]
    v = config["linear_num_value_heads"] // hk * config["linear_value_head_dim"]
    heads = array.reshape(hk, 2 * dk + 2 * v, -1)
    q, k, v, z = np.split(heads, [dk, 2 * dk, 2 * dk + v], axis=1)
    return np.concatenate([part.reshape(-1, array.shape[1]) for part in (q, k, v)]), z.reshape(-1, array.shape[1])


def interleave_rope(array, heads):
    """Row i and row i + half of a head become neighbours."""
    half = array.shape[0] // heads // 2
    return array.reshape(heads, 2, half, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)


def convert(tensors, architecture, config):
    """GGUF name to float32 array."""
    out = {}
    for name, array in stack_experts(tensors).items():
        is_norm = name.endswith("norm.weight")
        if is_norm and architecture in ZERO_CENTRED and not name.endswith("linear_attn.norm.weight"):
            array = array + np.float32(1)
        if "conv1d" in name:
            array = array.reshape(array.shape[0], array.shape[-1])
        if "shared_expert_gate" in name:
            array = array.reshape(-1)
        if "linear_attn" in name and architecture in TILED:
            array = tile_deltanet(name, array, config)
        if name.endswith("A_log"):
            array = -np.exp(array)
        if architecture == "llama" and ".q_proj." in name:
            array = interleave_rope(array, config["num_attention_heads"])
        if architecture == "llama" and ".k_proj." in name:
            array = interleave_rope(array, config["num_key_value_heads"])
        if name in GLOBAL:
            out[GLOBAL[name]] = array
            continue
        _, _, layer, rest = name.split(".", 3)
        if "in_proj_qkvz" in rest:
            out[f"blk.{layer}.attn_qkv.weight"], out[f"blk.{layer}.attn_gate.weight"] = split_qkvz(array, config)
            continue
        stem, dot, kind = rest.rpartition(".")
        if rest == "post_attention_layernorm.weight" and architecture in ZERO_CENTRED:
            short = "post_attention_norm.weight"
        elif rest in NAMES:
            short = NAMES[rest]
        else:
            short = NAMES[stem] + dot + kind
        out[f"blk.{layer}.{short}"] = array
    return out


def add_keys(w, architecture, config):
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    rope = config.get("rope_parameters") or {}
    w.add_block_count(config["num_hidden_layers"])
    w.add_context_length(config["max_position_embeddings"])
    w.add_embedding_length(config["hidden_size"])
    if "intermediate_size" in config:
        w.add_feed_forward_length(config["intermediate_size"])
    w.add_head_count(heads)
    w.add_head_count_kv(config["num_key_value_heads"])
    w.add_key_length(head_dim)
    w.add_value_length(head_dim)
    w.add_layer_norm_rms_eps(config["rms_norm_eps"])
    w.add_rope_freq_base(rope.get("rope_theta", config.get("rope_theta", 10000.0)))
    w.add_vocab_size(config["vocab_size"])
    fraction = rope.get("partial_rotary_factor", config.get("partial_rotary_factor", 1.0))
    w.add_rope_dimension_count(int(head_dim * fraction))
    if architecture in TILED:
        w.add_rope_dimension_sections((rope.get("mrope_section", [11, 11, 10]) + [0])[:4])
    experts = config.get("num_experts") or config.get("num_local_experts")
    if experts:
        w.add_expert_count(experts)
        w.add_expert_used_count(config["num_experts_per_tok"])
        w.add_expert_feed_forward_length(config["moe_intermediate_size"])
        if "shared_expert_intermediate_size" in config:
            w.add_expert_shared_feed_forward_length(config["shared_expert_intermediate_size"])
    if "linear_num_key_heads" in config:
        w.add_ssm_conv_kernel(config["linear_conv_kernel_dim"])
        w.add_ssm_state_size(config["linear_key_head_dim"])
        w.add_ssm_group_count(config["linear_num_key_heads"])
        w.add_ssm_time_step_rank(config["linear_num_value_heads"])
        w.add_ssm_inner_size(config["linear_num_value_heads"] * config["linear_value_head_dim"])
        w.add_uint32(f"{architecture}.full_attention_interval", config.get("full_attention_interval", 4))


def byte_characters():
    """GPT-2's printable character for each byte: itself where it prints, else the next free one from U+0100."""
    free, out = 256, []
    for byte in range(256):
        if 33 <= byte <= 126 or 161 <= byte <= 172 or 174 <= byte <= 255:
            out.append(chr(byte))
        else:
            out.append(chr(free))
            free += 1
    return out


def add_tokenizer(w, config, whole_characters, pre="qwen2", letters="abcdefghijklmnop"):
    """A byte vocabulary, then pairs of letters: enough for a loader that insists on a tokenizer. With `whole_characters` no
    token is part of a UTF-8 sequence, for servers that hold back such tokens together with their probabilities."""
    first = byte_characters()
    pairs = [(first[ord(a)], first[ord(b)]) for a in letters for b in letters]
    if whole_characters:
        first = first[:128] + [f"<byte{i}>" for i in range(128, 256)]
    tokens = (first + [a + b for a, b in pairs] + [f"<unused{i}>" for i in range(config["vocab_size"])])
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre(pre)
    w.add_token_list(tokens[: config["vocab_size"]])
    w.add_token_types([int(gguf.TokenType.NORMAL)] * config["vocab_size"])
    w.add_token_merges([f"{a} {b}" for a, b in pairs])
    w.add_add_bos_token(False)
    for key, add in [("bos_token_id", w.add_bos_token_id), ("eos_token_id", w.add_eos_token_id)]:
        if config.get(key) is not None:
            add(config[key])


def stays_float32(name, array):
    return (array.ndim == 1 or name.endswith("norm.weight") or "ffn_gate_inp" in name or "ssm_conv1d" in name)


def write_gguf(folder, out, dtype="F32", whole_characters=False, decoded=False, pooling=None, **tokenizer):
    """`tokenizer`: pre and letters of add_tokenizer(). `pooling` ("LAST", ...) makes it a model for embeddings, whose tokenizer ends a text with EOS. With `decoded` the weights are rounded as the type does, and written as the float32 numbers that a reader decodes."""
    with open(os.path.join(folder, "config.json")) as f:
        config = json.load(f)
    config = {**config, **config.get("text_config", {})}
    architecture = ARCHITECTURES[config["model_type"]]
    tensors = convert(read_safetensors(os.path.join(folder, "model.safetensors")), architecture, config)
    qtype = gguf.GGMLQuantizationType[dtype]
    block = gguf.GGML_QUANT_SIZES[qtype][0]
    w = gguf.GGUFWriter(out, architecture)
    w.add_name("oracle " + config["model_type"])
    w.add_file_type(int(gguf.LlamaFileType["ALL_F32" if dtype == "F32" else f"MOSTLY_{dtype}"]))
    add_keys(w, architecture, config)
    add_tokenizer(w, config, whole_characters, **tokenizer)
    if pooling:
        w.add_pooling_type(gguf.PoolingType[pooling])
        w.add_add_eos_token(True)
    for name, array in tensors.items():
        array = np.ascontiguousarray(array, np.float32)
        if dtype == "F32" or stays_float32(name, array) or array.shape[-1] % block:
            w.add_tensor(name, array)
        elif decoded:
            w.add_tensor(name, gguf.quants.dequantize(gguf.quants.quantize(array, qtype), qtype))
        else:
            w.add_tensor(name, gguf.quants.quantize(array, qtype), raw_dtype=qtype)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return architecture


def main():
    parser = argparse.ArgumentParser(description="Write an oracle model folder as GGUF.")
    parser.add_argument("folder")
    parser.add_argument("out")
    parser.add_argument("--type", default="F32")
    args = parser.parse_args()
    print(write_gguf(args.folder, args.out, args.type))


if __name__ == "__main__":
    main()
