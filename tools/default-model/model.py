"""model.py: the default model (family qwen3_5_moe) written for training speed; weights carry transformers' names and shapes,
and test_export.py holds its logits against transformers' own classes.

Everything that looks at one token at a time works on [T, ...] with T = 131,072 whatever the row length is, so that
torch.compile sees one shape; only the scan (flash-linear-attention's kernels) and attention know rows. All routed experts
are computed densely and weighted by the router: 16 small experts side by side are one matrix product of a usual size."""
import contextlib
import json
import math
import time

import torch
import torch.nn.functional as F
from torch import nn

CONFIG = dict(vocab_size=4096, hidden_size=256, num_hidden_layers=8, full_attention_interval=4, num_attention_heads=4, num_key_value_heads=2,
              head_dim=128, linear_num_key_heads=4, linear_num_value_heads=8, linear_key_head_dim=64, linear_value_head_dim=64,
              linear_conv_kernel_dim=4, num_experts=16, num_experts_per_tok=4, moe_intermediate_size=64,
              shared_expert_intermediate_size=256, rms_norm_eps=1e-6, rope_theta=1e7, partial_rotary_factor=0.25,
              max_position_embeddings=131072, tie_word_embeddings=True)


def is_attention(c, i):
    return (i + 1) % c["full_attention_interval"] == 0


def transformers_config(c):
    """The same model as transformers' text configuration."""
    from transformers.models.qwen3_5_moe import Qwen3_5MoeTextConfig
    rotary = int(c["head_dim"] * c["partial_rotary_factor"]) // 2
    third = rotary // 3
    return Qwen3_5MoeTextConfig(
        **{k: v for k, v in c.items() if k not in ("rope_theta", "partial_rotary_factor", "full_attention_interval")},
        layer_types=["full_attention" if is_attention(c, i) else "linear_attention" for i in range(c["num_hidden_layers"])],
        rope_parameters={"rope_type": "default", "rope_theta": c["rope_theta"], "partial_rotary_factor": c["partial_rotary_factor"],
                         "mrope_section": [rotary - 2 * third, third, third]}, hidden_act="silu", attention_bias=False, use_cache=True)


def shapes(c):
    """Every parameter: name -> (shape, kind). Kinds: matrix, embed, norm0 (zero-centred), one, conv, A, dt, small."""
    h, hd = c["hidden_size"], c["head_dim"]
    kd = c["linear_num_key_heads"] * c["linear_key_head_dim"]
    vd = c["linear_num_value_heads"] * c["linear_value_head_dim"]
    hv = c["linear_num_value_heads"]
    out = {"model.embed_tokens.weight": ((c["vocab_size"], h), "embed"), "model.norm.weight": ((h,), "norm0")}
    for i in range(c["num_hidden_layers"]):
        p = "model.layers.%d." % i
        out[p + "input_layernorm.weight"] = ((h,), "norm0")
        out[p + "post_attention_layernorm.weight"] = ((h,), "norm0")
        if is_attention(c, i):
            a = p + "self_attn."
            out[a + "q_proj.weight"] = ((c["num_attention_heads"] * hd * 2, h), "matrix")
            out[a + "k_proj.weight"] = ((c["num_key_value_heads"] * hd, h), "matrix")
            out[a + "v_proj.weight"] = ((c["num_key_value_heads"] * hd, h), "matrix")
            out[a + "o_proj.weight"] = ((h, c["num_attention_heads"] * hd), "matrix")
            out[a + "q_norm.weight"] = ((hd,), "norm0")
            out[a + "k_norm.weight"] = ((hd,), "norm0")
        else:
            a = p + "linear_attn."
            out[a + "in_proj_qkv.weight"] = ((2 * kd + vd, h), "matrix")
            out[a + "in_proj_z.weight"] = ((vd, h), "matrix")
            out[a + "in_proj_b.weight"] = ((hv, h), "small")
            out[a + "in_proj_a.weight"] = ((hv, h), "small")
            out[a + "conv1d.weight"] = ((2 * kd + vd, 1, c["linear_conv_kernel_dim"]), "conv")
            out[a + "dt_bias"] = ((hv,), "dt")
            out[a + "A_log"] = ((hv,), "A")
            out[a + "norm.weight"] = ((c["linear_value_head_dim"],), "one")
            out[a + "out_proj.weight"] = ((h, vd), "matrix")
        m = p + "mlp."
        e, inner, shared = c["num_experts"], c["moe_intermediate_size"], c["shared_expert_intermediate_size"]
        out[m + "gate.weight"] = ((e, h), "small")
        out[m + "experts.gate_up_proj"] = ((e, 2 * inner, h), "matrix")
        out[m + "experts.down_proj"] = ((e, h, inner), "matrix")
        out[m + "shared_expert.gate_proj.weight"] = ((shared, h), "matrix")
        out[m + "shared_expert.up_proj.weight"] = ((shared, h), "matrix")
        out[m + "shared_expert.down_proj.weight"] = ((h, shared), "matrix")
        out[m + "shared_expert_gate.weight"] = ((1, h), "small")
    return out


def initial(name, shape, kind, layers, gen):
    if kind in ("norm0",):
        return torch.zeros(shape)
    if kind == "one":
        return torch.ones(shape)
    if kind == "A":
        return torch.log(torch.empty(shape).uniform_(1, 16, generator=gen))
    if kind == "dt":
        dt = torch.exp(torch.empty(shape).uniform_(math.log(0.001), math.log(0.1), generator=gen))
        return dt + torch.log(-torch.expm1(-dt))
    if kind == "conv":
        return torch.empty(shape).uniform_(-0.5, 0.5, generator=gen)
    std = 0.02 if kind == "embed" else 0.6 * shape[-1] ** -0.5
    if name.endswith(("o_proj.weight", "out_proj.weight", "down_proj", "down_proj.weight")):
        std /= math.sqrt(2 * layers)
    return torch.randn(shape, generator=gen) * std



def linear(x, w):
    return F.linear(x, w.to(x.dtype))


def rms(x, w, eps):
    x = x.float()
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * (1.0 + w)


def gdn_before(x, norm, qkv_w, z_w, b_w, a_w, conv_w, dt_bias, a_log, pos, dims, dtype):
    """Norm, projections, causal convolution; x [T, H]. Rows begin where pos is 0."""
    hk, dk, hv, dv = dims
    t = x.shape[0]
    y = rms(x, norm, 1e-6).to(dtype)
    mixed = linear(y, qkv_w)
    z = linear(y, z_w)
    b = linear(y, b_w).float()
    a = linear(y, a_w).float()
    w = conv_w.squeeze(1).to(torch.float32)
    taps = w.shape[1]
    total = mixed.float() * w[:, taps - 1]
    for back in range(1, taps):
        shifted = F.pad(mixed, (0, 0, back, 0))[:t].float()
        total = total + torch.where((pos >= back)[:, None], shifted, 0.0) * w[:, taps - 1 - back]
    mixed = F.silu(total).to(dtype)
    q, k, v = mixed.split([hk * dk, hk * dk, hv * dv], dim=-1)
    beta = torch.sigmoid(b)
    g = -a_log.float().exp() * F.softplus(a + dt_bias.float())
    return q.reshape(t, hk, dk).contiguous(), k.reshape(t, hk, dk).contiguous(), v.reshape(t, hv, dv).contiguous(), g, beta, z


def moe(x, norm, router, gate_up, down, s_gate, s_up, s_down, s_route, top, dtype):
    """x + experts(norm(x)); also the balance loss's two vectors folded into one number."""
    t = x.shape[0]
    e, two_inner, h = gate_up.shape
    normed = rms(x, norm, 1e-6)
    y = normed.to(dtype)
    p = torch.softmax(F.linear(y.float(), router), dim=-1)
    rank = (p[:, None, :] > p[:, :, None]).sum(-1)
    chosen = (rank < top).float()
    w = p * chosen
    w = w / w.sum(-1, keepdim=True)
    balance = e * (chosen.mean(0) / top * p.mean(0)).sum()
    both = F.linear(y, gate_up.to(dtype).reshape(e * two_inner, h)).view(t, e, 2, two_inner // 2)
    inner = F.silu(both[:, :, 0].float()) * both[:, :, 1].float() * w[:, :, None]
    routed = inner.to(dtype).reshape(t, -1) @ down.to(dtype).permute(0, 2, 1).reshape(-1, h)
    s = F.silu(linear(y, s_gate).float()) * linear(y, s_up).float()
    shared = linear(s.to(dtype), s_down).float() * torch.sigmoid(linear(y, s_route).float())
    return x + routed.float() + shared, balance


def gdn_after(x, o, z, gated_norm, out_w, mlp, top, dtype):
    t = x.shape[0]
    o = o.float()
    o = o * torch.rsqrt(o.pow(2).mean(-1, keepdim=True) + 1e-6) * gated_norm
    o = o * F.silu(z.view(o.shape).float())
    x = x + linear(o.reshape(t, -1).to(dtype), out_w).float()
    return moe(x, *mlp, top, dtype)


def attention_before(x, norm, q_w, k_w, v_w, q_norm, k_norm, cos, sin, pos, dims, dtype):
    heads, kv, hd = dims
    t = x.shape[0]
    y = rms(x, norm, 1e-6).to(dtype)
    q, gate = linear(y, q_w).view(t, heads, 2 * hd).chunk(2, dim=-1)
    k = linear(y, k_w).view(t, kv, hd)
    v = linear(y, v_w).view(t, kv, hd)
    q, k = rms(q, q_norm, 1e-6), rms(k, k_norm, 1e-6)
    c, s = cos[pos][:, None, :], sin[pos][:, None, :]
    half = c.shape[-1]

    def rotate(u):
        a, b, rest = u[..., :half], u[..., half:2 * half], u[..., 2 * half:]
        return torch.cat([a * c - b * s, b * c + a * s, rest], dim=-1).to(dtype)

    return rotate(q).contiguous(), rotate(k).contiguous(), v.contiguous(), gate.reshape(t, -1).contiguous()


def attention_after(x, o, gate, out_w, mlp, top, dtype):
    t = x.shape[0]
    o = o.reshape(t, -1).float() * torch.sigmoid(gate.float())
    x = x + linear(o.to(dtype), out_w).float()
    return moe(x, *mlp, top, dtype)


def head(x, norm, embed, dtype):
    return F.linear(rms(x, norm, 1e-6).to(dtype), embed.to(dtype))


def head_loss(x, norm, embed, target, weight, dtype):
    """Sum of weight · cross-entropy, and which tokens the model would have chosen right."""
    logits = head(x, norm, embed, dtype).float()
    loss = F.cross_entropy(logits, target, reduction="none")
    return (loss * weight).sum(), (logits.argmax(-1) == target)


class Model(nn.Module):
    def __init__(self, config=None, seed=1, dtype=torch.bfloat16):
        super().__init__()
        self.c = dict(CONFIG, **(config or {}))
        self.dtype = dtype
        gen = torch.Generator().manual_seed(seed)
        self.kinds = {}
        self.w = {}
        for name, (shape, kind) in shapes(self.c).items():
            value = nn.Parameter(initial(name, shape, kind, self.c["num_hidden_layers"], gen))
            self.register_parameter(name.replace(".", "/"), value)
            self.w[name] = value
            self.kinds[name] = kind
        self.tables = None
        self.quickest = {}
        self.scan = None
        self.repeat = self.c["num_attention_heads"] // self.c["num_key_value_heads"]
        self.fn = dict(gdn_before=gdn_before, gdn_after=gdn_after, attention_before=attention_before, attention_after=attention_after,
                       head_loss=head_loss, head=head)

    def compile(self, **options):
        for name in list(self.fn):
            if name != "head":
                self.fn[name] = torch.compile(self.fn[name], fullgraph=True, dynamic=False, **options)

    def named(self):
        """Parameters under transformers' names."""
        return {name.replace("/", "."): p for name, p in self.named_parameters()}

    def load_named(self, tensors):
        with torch.no_grad():
            for name, p in self.named().items():
                p.copy_(tensors[name].reshape(p.shape))

    def prepare(self, device, train=True):
        self.to(device)
        self.w = self.named()
        c = self.c
        half = int(c["head_dim"] * c["partial_rotary_factor"]) // 2
        inv = 1.0 / c["rope_theta"] ** (torch.arange(half, dtype=torch.float64) / half)
        angle = torch.arange(c["max_position_embeddings"], dtype=torch.float64)[:, None] * inv[None]
        self.tables = angle.cos().float().to(device), angle.sin().float().to(device)
        if torch.device(device).type == "cuda":
            import scan
            self.scan = scan.choose() if train else scan.kernel(64)
        else:
            from transformers.models.qwen3_5_moe.modeling_qwen3_5_moe import torch_chunk_gated_delta_rule as slow
            r = c["linear_num_value_heads"] // c["linear_num_key_heads"]
            self.scan = lambda q, k, v, g, b: slow(q.repeat_interleave(r, 2), k.repeat_interleave(r, 2), v, g=g, beta=b,
                                                   use_qk_l2norm_in_kernel=True)[0]
        return self

    def attention(self, length):
        """The quickest attention for this row length on this GPU, as a context; found once by trying."""
        if self.tables[0].device.type != "cuda" or not torch.is_grad_enabled():
            return contextlib.nullcontext()
        from torch.nn.attention import SDPBackend, sdpa_kernel
        if length not in self.quickest:
            c = self.c
            shape = (max(1, 131072 // length), c["num_attention_heads"], length, c["head_dim"])
            best = None
            for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION):
                try:
                    with torch.enable_grad(), sdpa_kernel(backend):
                        q, k, v = (torch.randn(shape, device="cuda", dtype=self.dtype, requires_grad=True) for _ in range(3))
                        for turn in range(3):
                            torch.cuda.synchronize()
                            t = time.time()
                            F.scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward()
                            torch.cuda.synchronize()
                        t = time.time() - t
                    print("attention at %d with %s: %.1f ms" % (length, backend, t * 1000), flush=True)
                    if best is None or t < best[0]:
                        best = t, backend
                except Exception as e:
                    print("attention at %d with %s: %s" % (length, backend, str(e)[:200]), flush=True)
            self.quickest[length] = best[1]
        return sdpa_kernel(self.quickest[length])

    def trunk(self, ids):
        """ids [B, L] -> the residual stream [B·L, H] after the last layer, and the mean balance loss."""
        c, w, dtype = self.c, self.w, self.dtype
        b, length = ids.shape
        t = b * length
        pos = torch.arange(length, device=ids.device).repeat(b)
        x = F.embedding(ids.reshape(-1), w["model.embed_tokens.weight"]).float()
        gd = (c["linear_num_key_heads"], c["linear_key_head_dim"], c["linear_num_value_heads"], c["linear_value_head_dim"])
        ad = (c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"])
        top = c["num_experts_per_tok"]
        balances = []
        for i in range(c["num_hidden_layers"]):
            p = "model.layers.%d." % i
            m = p + "mlp."
            mlp = (w[p + "post_attention_layernorm.weight"], w[m + "gate.weight"], w[m + "experts.gate_up_proj"], w[m + "experts.down_proj"],
                   w[m + "shared_expert.gate_proj.weight"], w[m + "shared_expert.up_proj.weight"], w[m + "shared_expert.down_proj.weight"],
                   w[m + "shared_expert_gate.weight"])
            if is_attention(c, i):
                a = p + "self_attn."
                q, k, v, gate = self.fn["attention_before"](
                    x, w[p + "input_layernorm.weight"], w[a + "q_proj.weight"], w[a + "k_proj.weight"], w[a + "v_proj.weight"],
                    w[a + "q_norm.weight"], w[a + "k_norm.weight"], self.tables[0], self.tables[1], pos, ad, dtype)
                q, k, v = (u.view(b, length, -1, ad[2]).transpose(1, 2) for u in (q, k, v))
                k, v = (u.repeat_interleave(self.repeat, 1) for u in (k, v))
                with self.attention(length):
                    o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
                o = o.transpose(1, 2).reshape(t, ad[0], ad[2])
                x, balance = self.fn["attention_after"](x, o, gate, w[a + "o_proj.weight"], mlp, top, dtype)
            else:
                a = p + "linear_attn."
                q, k, v, g, beta, z = self.fn["gdn_before"](
                    x, w[p + "input_layernorm.weight"], w[a + "in_proj_qkv.weight"], w[a + "in_proj_z.weight"], w[a + "in_proj_b.weight"],
                    w[a + "in_proj_a.weight"], w[a + "conv1d.weight"], w[a + "dt_bias"], w[a + "A_log"], pos, gd, dtype)
                o = self.scan(*(u.view(b, length, *u.shape[1:]) for u in (q, k, v, g, beta)))
                o = o.reshape(t, gd[2], gd[3])
                x, balance = self.fn["gdn_after"](x, o, z, w[a + "norm.weight"], w[a + "out_proj.weight"], mlp, top, dtype)
            balances.append(balance)
        return x, torch.stack(balances).mean()

    def loss(self, ids, weight):
        """ids [B, L], weight [B, L] of each token as a target. Weighted sum of losses, balance, [B, L] hits (aligned with targets)."""
        b, length = ids.shape
        x, balance = self.trunk(ids)
        target = torch.roll(ids.reshape(-1), -1)
        wt = torch.roll(weight, -1, dims=1)
        wt[:, -1] = 0
        total, hit = self.fn["head_loss"](x, self.w["model.norm.weight"], self.w["model.embed_tokens.weight"], target, wt.reshape(-1), self.dtype)
        return total, balance, hit.view(b, length), wt

    def logits(self, ids):
        x, _ = self.trunk(ids)
        return self.fn["head"](x, self.w["model.norm.weight"], self.w["model.embed_tokens.weight"], self.dtype).float().view(*ids.shape, -1)


def save_config(path, c):
    with open(path, "w") as f:
        json.dump(c, f, indent=1)
