"""Evaluate an oracle model in float64, formula by formula, and compare with its reference.

    oracle_exact.py [--write] [FAMILY ...]

The references in tests/data/oracle were computed in float32. For the classic families that is within 1e-5 of the exact
answer. The hybrids' reference is not: DeltaNet outputs of size 3e-5 pass an RMSNorm whose epsilon is 1e-6, which amplifies
the rounding of the chunked algorithm a thousandfold at a few positions. So a tolerance for them needs the exact answer:
--write puts it, rounded to float32, into FAMILY/exact.safetensors under the names of the reference, with the greedy answer.

Everything is float64 except what the models define in float32: the weights (BF16 as stored), RoPE's frequencies and angles."""
import argparse
import json
import os
import struct

import numpy as np

from oracle_gguf import read_safetensors, split_qkvz

DATA = os.path.join(os.environ.get("ES_SOURCE", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")),
                    "tests", "data", "oracle")
HYBRID = ["qwen3_5", "qwen3_5_moe", "qwen3_next"]
CLASSIC = ["qwen3", "qwen3_moe", "qwen2", "llama"]
LENGTHS = [1, 3, 7, 63, 64, 65, 130, 300, 4096]
SUFFIXES = ["logits", "last8_logits", "last4_logits"]


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def softmax(x):
    p = np.exp(x - x.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True)


def unit(x):
    return x / np.sqrt((x * x).sum(-1, keepdims=True) + 1e-6)


class Exact:
    """One family's model; call it with token numbers to get logits [tokens, vocabulary]."""

    def __init__(self, family):
        with open(os.path.join(DATA, family, "config.json"), encoding="utf-8") as f:
            self.c = json.load(f)
        tensors = read_safetensors(os.path.join(DATA, family, "model.safetensors"))
        self.w = {name: array.astype(np.float64) for name, array in tensors.items()}
        self.centred = family in HYBRID
        self.head_dim = self.c.get("head_dim") or self.c["hidden_size"] // self.c["num_attention_heads"]
        rope = self.c["rope_parameters"]
        self.rotated = int(self.head_dim * rope.get("partial_rotary_factor", 1.0))
        steps = np.arange(0, self.rotated, 2, dtype=np.float32) / np.float32(self.rotated)
        self.frequency = np.float32(1) / (rope["rope_theta"] ** steps.astype(np.float64)).astype(np.float32)

    def norm(self, x, name, centred=None):
        weight = self.w[name] + (1 if (self.centred if centred is None else centred) else 0)
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.c["rms_norm_eps"]) * weight

    def linear(self, x, name):
        y = x @ self.w[name + ".weight"].T
        return y + self.w[name + ".bias"] if name + ".bias" in self.w else y

    def rope(self, x):
        """The angle is a float32 product; its cosine and sine are exact."""
        angle = (np.arange(len(x), dtype=np.float32)[:, None] * self.frequency).astype(np.float64)[:, None]
        a, b, rest = np.split(x, [self.rotated // 2, self.rotated], axis=-1)
        return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle), rest], -1)

    def attention(self, h, at):
        rows, dim, heads, kv_heads = len(h), self.head_dim, self.c["num_attention_heads"], self.c["num_key_value_heads"]
        q = self.linear(h, at + "q_proj").reshape(rows, heads, -1)
        q, gate = q[..., :dim], q[..., dim:]
        k = self.linear(h, at + "k_proj").reshape(rows, kv_heads, dim)
        v = self.linear(h, at + "v_proj").reshape(rows, kv_heads, dim)
        if at + "q_norm.weight" in self.w:
            q, k = self.norm(q, at + "q_norm.weight"), self.norm(k, at + "k_norm.weight")
        q, k = self.rope(q), self.rope(k)
        out = np.empty_like(q)
        later = ~np.tri(rows, dtype=bool)
        for head in range(heads):
            of = head // (heads // kv_heads)
            scores = q[:, head] @ k[:, of].T * dim**-0.5
            scores[later] = -np.inf
            out[:, head] = softmax(scores) @ v[:, of]
        if gate.size:
            out = out * sigmoid(gate)
        return self.linear(out.reshape(rows, -1), at + "o_proj")

    def delta_inputs(self, h, at):
        """q|k|v before the convolution, z, b and a; qwen3_next's fused rows are [q, k, r·v, r·z] and [r·b, r·a]."""
        if at + "in_proj_qkvz.weight" not in self.w:
            return [self.linear(h, at + "in_proj_" + part) for part in ["qkv", "z", "b", "a"]]
        qkv, z = split_qkvz(self.w[at + "in_proj_qkvz.weight"], self.c)
        ba = self.linear(h, at + "in_proj_ba").reshape(len(h), self.c["linear_num_key_heads"], 2, -1)
        return h @ qkv.T, h @ z.T, ba[:, :, 0].reshape(len(h), -1), ba[:, :, 1].reshape(len(h), -1)

    def delta(self, h, at):
        rows, hk, hv = len(h), self.c["linear_num_key_heads"], self.c["linear_num_value_heads"]
        dk, dv = self.c["linear_key_head_dim"], self.c["linear_value_head_dim"]
        x, z, b, a = self.delta_inputs(h, at)
        taps = self.w[at + "conv1d.weight"][:, 0]
        padded = np.concatenate([np.zeros((3, x.shape[1])), x])
        x = silu(sum(padded[j:j + rows] * taps[:, j] for j in range(4)))
        q, k, v = np.split(x, [hk * dk, 2 * hk * dk], axis=1)
        q = np.repeat(unit(q.reshape(rows, hk, dk)) * dk**-0.5, hv // hk, axis=1)
        k = np.repeat(unit(k.reshape(rows, hk, dk)), hv // hk, axis=1)
        v = v.reshape(rows, hv, dv)
        beta = sigmoid(b)
        decay = np.exp(-np.exp(self.w[at + "A_log"]) * np.log1p(np.exp(a + self.w[at + "dt_bias"])))
        state, out = np.zeros((hv, dk, dv)), np.empty((rows, hv, dv))
        for t in range(rows):
            state *= decay[t][:, None, None]
            predicted = (k[t][:, None] @ state)[:, 0]
            state += k[t][:, :, None] * (beta[t][:, None] * (v[t] - predicted))[:, None]
            out[t] = (q[t][:, None] @ state)[:, 0]
        out = self.norm(out, at + "norm.weight", centred=False) * silu(z.reshape(rows, hv, dv))
        return self.linear(out.reshape(rows, -1), at + "out_proj")

    def swiglu(self, h, at):
        return self.linear(silu(self.linear(h, at + "gate_proj")) * self.linear(h, at + "up_proj"), at + "down_proj")

    def mlp(self, h, at):
        if at + "gate_proj.weight" in self.w:
            return self.swiglu(h, at)
        p = softmax(self.linear(h, at + "gate"))
        chosen = np.argsort(-p, axis=-1, kind="stable")[:, :self.c["num_experts_per_tok"]]
        weight = np.take_along_axis(p, chosen, axis=-1)
        if self.c.get("norm_topk_prob", True):
            weight /= weight.sum(-1, keepdims=True)
        out = np.zeros_like(h)
        for expert in range(p.shape[1]):
            row, rank = np.nonzero(chosen == expert)
            if len(row):
                out[row] += weight[row, rank][:, None] * self.swiglu(h[row], f"{at}experts.{expert}.")
        if at + "shared_expert_gate.weight" in self.w:
            out += sigmoid(self.linear(h, at + "shared_expert_gate")) * self.swiglu(h, at + "shared_expert.")
        return out

    def states(self, ids):
        """What the output matrix is given: [tokens, hidden]."""
        x = self.w["model.embed_tokens.weight"][ids]
        for i in range(self.c["num_hidden_layers"]):
            at = f"model.layers.{i}."
            h = self.norm(x, at + "input_layernorm.weight")
            recurrent = at + "linear_attn.A_log" in self.w
            x = x + (self.delta(h, at + "linear_attn.") if recurrent else self.attention(h, at + "self_attn."))
            x = x + self.mlp(self.norm(x, at + "post_attention_layernorm.weight"), at + "mlp.")
        return self.norm(x, "model.norm.weight")

    def __call__(self, ids):
        head = self.w.get("lm_head.weight", self.w["model.embed_tokens.weight"])
        return self.states(ids) @ head.T


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, array in tensors.items():
        dtype, kind = ("I32", "<i4") if array.dtype.kind == "i" else ("F32", "<f4")
        raw = array.astype(kind).tobytes()
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def evaluate(family, lengths=LENGTHS):
    """Name to exact float64 logits of the positions that the reference has, and the reference's own tensors."""
    model = Exact(family)
    reference = read_safetensors(os.path.join(DATA, family, "reference.safetensors"))
    exact = {}
    for length in lengths:
        name = next(f"len{length}.{s}" for s in SUFFIXES if f"len{length}.{s}" in reference)
        exact[name] = model(reference[f"len{length}.ids"].ravel())[-len(reference[name]):]
    return exact, reference


def greedy(model, prompt, count):
    """The likeliest tokens after a prompt, and by how much each beats the second."""
    ids, margins = list(prompt), []
    for _ in range(count):
        row = model(np.array(ids))[-1]
        second, first = np.argsort(row, kind="stable")[-2:]
        ids.append(first)
        margins.append(row[first] - row[second])
    return np.array(ids[len(prompt):]), np.array(margins)


def add_greedy(family, exact, reference):
    """The exact greedy answer, and where the reference's own tokens are not the likeliest behind its own tokens."""
    model = Exact(family)
    prompt, chosen = reference["greedy.prompt"].ravel(), reference["greedy.tokens"].ravel()
    exact["greedy.tokens"], exact["greedy.margin"] = greedy(model, prompt, len(chosen))
    likeliest = model(np.concatenate([prompt, chosen]))[len(prompt) - 1:-1].argmax(-1)
    wrong = [f"{i} (margin {reference['greedy.margin'].ravel()[i]:.1e})" for i in np.nonzero(likeliest != chosen)[0]]
    print(f"{family:12} greedy: exact tokens {'equal' if (exact['greedy.tokens'] == chosen).all() else 'differ from'} the "
          f"reference's; not the likeliest in the reference: {', '.join(wrong) or 'none'}", flush=True)


def main():
    parser = argparse.ArgumentParser(description="Evaluate oracle models in float64.")
    parser.add_argument("--write", action="store_true", help="write exact.safetensors of the hybrids")
    parser.add_argument("families", nargs="*", metavar="FAMILY")
    args = parser.parse_args()
    for family in args.families or HYBRID + CLASSIC:
        exact, reference = evaluate(family)
        for name, logits in exact.items():
            apart = np.abs(logits - reference[name]).max(-1)
            print(f"{family:12} {name:20} worst {apart.max():.1e} at position {apart.argmax()} of {len(apart)}, "
                  f"median {np.median(apart):.1e}", flush=True)
        add_greedy(family, exact, reference)
        if args.write and family in HYBRID:
            write_safetensors(os.path.join(DATA, family, "exact.safetensors"), exact)


if __name__ == "__main__":
    main()
