"""from_gguf.py: a checkpoint and a tokenizer out of an exported model, to train on from what the repository holds.

    python from_gguf.py MODEL.gguf CHECKPOINT.pt tokenizer.json

The inverse of export.py. From a Q8_0 file the weights come back rounded (a relative error of about 0.5 %), which a warm-up of
a few hundred steps repairs; the tokenizer comes back exactly, and must be used: token numbers are part of the weights."""
import json
import sys

import gguf
import numpy as np
import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

import export                                                   # noqa: F401  finds tests/py
import oracle_gguf
from model import shapes
from tokenizer import SPLIT


def number(reader, key):
    return reader.fields["qwen35moe." + key].contents()


def configuration(r):
    heads = number(r, "ssm.time_step_rank")
    return dict(vocab_size=number(r, "vocab_size"), hidden_size=number(r, "embedding_length"), num_hidden_layers=number(r, "block_count"),
                full_attention_interval=number(r, "full_attention_interval"), num_attention_heads=number(r, "attention.head_count"),
                num_key_value_heads=number(r, "attention.head_count_kv"), head_dim=number(r, "attention.key_length"),
                linear_num_key_heads=number(r, "ssm.group_count"), linear_num_value_heads=heads, linear_key_head_dim=number(r, "ssm.state_size"),
                linear_value_head_dim=number(r, "ssm.inner_size") // heads, linear_conv_kernel_dim=number(r, "ssm.conv_kernel"),
                num_experts=number(r, "expert_count"), num_experts_per_tok=number(r, "expert_used_count"),
                moe_intermediate_size=number(r, "expert_feed_forward_length"),
                shared_expert_intermediate_size=number(r, "expert_shared_feed_forward_length"), rms_norm_eps=1e-6,
                rope_theta=float(number(r, "rope.freq_base")),
                partial_rotary_factor=number(r, "rope.dimension_count") / number(r, "attention.key_length"),
                max_position_embeddings=number(r, "context_length"), tie_word_embeddings=True)


def tokenizer(r):
    tokens, kinds = r.fields["tokenizer.ggml.tokens"].contents(), r.fields["tokenizer.ggml.token_type"].contents()
    merges = [tuple(m.split(" ")) for m in r.fields["tokenizer.ggml.merges"].contents()]
    plain = {t: i for i, (t, k) in enumerate(zip(tokens, kinds)) if k == int(gguf.TokenType.NORMAL)}
    t = Tokenizer(models.BPE(vocab=plain, merges=merges))
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(SPLIT), "isolated"),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    for i, kind in enumerate(kinds):
        if kind == int(gguf.TokenType.CONTROL):
            t.add_special_tokens([AddedToken(tokens[i], special=True, normalized=False)])
        elif kind == int(gguf.TokenType.USER_DEFINED):
            t.add_tokens([AddedToken(tokens[i], special=False, normalized=False)])
    assert all(t.token_to_id(x) == i for i, x in enumerate(tokens)), "token numbers moved"
    return t


def weights(r, c):
    """Undo oracle_gguf.convert: find, for each parameter, the stored arrays it became, by converting marked arrays."""
    stored = {t.name: gguf.quants.dequantize(t.data, t.tensor_type).reshape([int(n) for n in reversed(t.shape)]) for t in r.tensors}
    marked, sizes = {}, shapes(c)
    for name, (shape, kind) in sizes.items():
        count = int(np.prod(shape))
        # Norms gain a one and A is mapped through -exp; every other value only moves, so send positions through and look.
        marked[name] = torch.zeros(shape) if kind in ("norm0", "A") else torch.arange(count, dtype=torch.float64).float().reshape(shape)
    moved = oracle_gguf.convert(export.weights(dict(tensors=marked)), "qwen35moe", export.keys(c))
    out = {}
    hk, hv = c["linear_num_key_heads"], c["linear_num_value_heads"]
    order = oracle_gguf.tile_heads(np.arange(hv), hk, hv, 1)
    for name, (shape, kind) in sizes.items():
        alone = export.weights({"tensors": {name: marked[name]}})
        value = np.zeros(int(np.prod(shape)), np.float32)
        for short in oracle_gguf.convert(alone, "qwen35moe", export.keys(c)):
            a = stored[short].astype(np.float32)
            if kind == "norm0":
                value[:] = a.reshape(-1) - 1
            elif kind == "A":
                value[order] = np.log(-a.reshape(-1))
            else:
                value[moved[short].reshape(-1).astype(np.int64)] = a.reshape(-1)
        out[name] = torch.from_numpy(value.reshape(shape)).to(torch.bfloat16)
    return out


def main():
    r = gguf.GGUFReader(sys.argv[1])
    c = configuration(r)
    torch.save(dict(config=c, tensors=weights(r, c), progress=0.0, tokens=0, step=0), sys.argv[2])
    tokenizer(r).save(sys.argv[3])
    print(json.dumps(c))


if __name__ == "__main__":
    main()
