"""A small Qwen3.5 for training: transformers' mathematics and parameter names, in PyTorch alone.
Used by tools/train_hybrid.py."""
import math

INTERVAL = 4    # every fourth layer is attention
TAPS = 4
EPS = 1e-6
THETA = 10_000_000
CONTEXT = 8192  # positions the config allows
NEAR = 16       # positions attention sees where the DeltaNet has to remember
CHUNK = 64      # positions of the delta rule


def delta_rule(torch, q, k, v, g, beta):
    """The gated delta rule in chunks, from an empty state: docs/MODEL_qwen35.md. float32; q, k, v
    [b, heads, t, dim] with q and k normed, g (log of the decay, at most 0), beta [b, heads, t]."""
    b, heads, t, dim = q.shape
    pad = -t % CHUNK
    if pad:
        q, k, v = (torch.nn.functional.pad(x, (0, 0, 0, pad)) for x in (q, k, v))
        g, beta = (torch.nn.functional.pad(x, (0, pad)) for x in (g, beta))
    q, k, v = (x.reshape(b, heads, -1, CHUNK, x.shape[-1]) for x in (q, k, v))
    g, beta = (x.reshape(b, heads, -1, CHUNK) for x in (g, beta))
    total = g.cumsum(-1)
    later = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=q.device).triu(1)
    decay = (total[..., :, None] - total[..., None, :]).masked_fill(later, -math.inf).exp()
    among = (k * beta[..., None]) @ k.transpose(-1, -2) * decay
    right = torch.cat((v * beta[..., None], k * (beta * total.exp())[..., None]), -1)
    solved = torch.linalg.solve_triangular(among, right, upper=False, unitriangular=True)
    new, seen = solved.split((v.shape[-1], dim), -1)
    asked = q @ k.transpose(-1, -2) * decay
    q = q * total.exp()[..., None]
    kept = (k * (total[..., -1:] - total).exp()[..., None]).transpose(-1, -2)
    end = total[..., -1].exp()[..., None, None]
    state, out = q.new_zeros(b, heads, dim, v.shape[-1]), []
    for i in range(q.shape[2]):
        d = new[:, :, i] - seen[:, :, i] @ state
        out.append(q[:, :, i] @ state + asked[:, :, i] @ d)
        state = state * end[:, :, i] + kept[:, :, i] @ d
    return torch.cat(out, 2)[:, :, :t]


def build_model(torch, shape, positions):
    """transformers' parameter names, plus dropout, which is off outside training."""
    nn, F = torch.nn, torch.nn.functional

    class Norm(nn.Module):
        def __init__(self, n):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(n))

        def forward(self, x):
            y = x.float()
            y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + EPS)
            return (y * (1 + self.weight)).to(x.dtype)

    class GatedNorm(nn.Module):
        def __init__(self, n):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(n))

        def forward(self, x, gate):
            y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS)
            return self.weight * y * F.silu(gate.float())

    def rotate(x, cos, sin):
        n = 2 * cos.shape[-1]
        a, b = x[..., :n].float().chunk(2, -1)
        turned = torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
        return torch.cat([turned.to(x.dtype), x[..., n:]], -1)

    class Attention(nn.Module):
        def __init__(self, s):
            super().__init__()
            self.heads, self.kv_heads, self.dim = s["heads"], s["kv_heads"], s["head_dim"]
            self.q_proj = nn.Linear(s["hidden"], 2 * self.heads * self.dim, bias=False)
            self.k_proj = nn.Linear(s["hidden"], self.kv_heads * self.dim, bias=False)
            self.v_proj = nn.Linear(s["hidden"], self.kv_heads * self.dim, bias=False)
            self.o_proj = nn.Linear(self.heads * self.dim, s["hidden"], bias=False)
            self.q_norm, self.k_norm = Norm(self.dim), Norm(self.dim)

        def forward(self, x, how):
            b, t, _ = x.shape
            q, gate = self.q_proj(x).view(b, t, self.heads, 2 * self.dim).chunk(2, -1)
            k, v = (p(x).view(b, t, self.kv_heads, self.dim) for p in (self.k_proj, self.v_proj))
            q = rotate(self.q_norm(q).transpose(1, 2), how.cos[:t], how.sin[:t])
            k = rotate(self.k_norm(k).transpose(1, 2), how.cos[:t], how.sin[:t])
            group = self.heads // self.kv_heads
            k = k.repeat_interleave(group, 1)
            v = v.transpose(1, 2).repeat_interleave(group, 1).to(k.dtype)
            n = b - how.near_rows
            parts = []
            if n:
                parts.append(F.scaled_dot_product_attention(q[:n], k[:n], v[:n], is_causal=True))
            if n < b:
                mask = how.near[:t, :t]
                parts.append(F.scaled_dot_product_attention(q[n:], k[n:], v[n:], attn_mask=mask))
            y = torch.cat(parts).transpose(1, 2).reshape(b, t, -1)
            return self.o_proj(y * torch.sigmoid(gate.reshape(b, t, -1)))

    class Delta(nn.Module):
        def __init__(self, s):
            super().__init__()
            self.heads, self.dim = s["delta_heads"], s["delta_dim"]
            width = self.heads * self.dim
            self.in_proj_qkv = nn.Linear(s["hidden"], 3 * width, bias=False)
            self.in_proj_z = nn.Linear(s["hidden"], width, bias=False)
            self.in_proj_b = nn.Linear(s["hidden"], self.heads, bias=False)
            self.in_proj_a = nn.Linear(s["hidden"], self.heads, bias=False)
            self.conv1d = nn.Conv1d(3 * width, 3 * width, TAPS, groups=3 * width, bias=False)
            self.norm = GatedNorm(self.dim)
            self.out_proj = nn.Linear(width, s["hidden"], bias=False)
            self.remember_pairs()
            # At first heads forget half within 10 to 2,000 positions: some must remember far.
            rate = torch.logspace(math.log10(3e-4), math.log10(0.07), self.heads)
            step = 0.02
            self.A_log = nn.Parameter(torch.log(rate / step))
            self.dt_bias = nn.Parameter(torch.full((self.heads,), math.log(math.expm1(step))))

        @torch.no_grad()
        def remember_pairs(self):
            """A start from which recall is learned soon: keys are made as queries are, in every
            other head from the position before, so that a token finds what once followed it."""
            taps, width = self.conv1d.weight, self.heads * self.dim
            taps.mul_(0.2)
            taps[:, 0, -1] += 1
            for head in range(0, self.heads, 2):
                keys = slice(width + head * self.dim, width + (head + 1) * self.dim)
                taps[keys, 0, -2:] = taps[keys, 0, -2:].flip(1)

        def forward(self, x, how):
            b, t, _ = x.shape
            u, z = self.in_proj_qkv(x), self.in_proj_z(x)
            beta = torch.sigmoid(self.in_proj_b(x)).float().transpose(1, 2)
            g = -self.A_log.float().exp() * F.softplus(self.in_proj_a(x).float() + self.dt_bias)
            if how.empty_at is not None:
                g = g.index_fill(1, how.empty_at, -100.0)
            u = F.pad(u, (0, 0, TAPS - 1, 0))
            taps = self.conv1d.weight[:, 0].to(u.dtype)
            u = F.silu(sum(u[:, i : i + t] * taps[:, i] for i in range(TAPS)))
            with torch.autocast(x.device.type, enabled=False):
                q, k, v = u.float().view(b, t, 3, self.heads, self.dim).permute(2, 0, 3, 1, 4)
                q, k = (y * torch.rsqrt(y.pow(2).sum(-1, keepdim=True) + EPS) for y in (q, k))
                o = delta_rule(torch, q * self.dim**-0.5, k, v, g.transpose(1, 2), beta)
                o = self.norm(o.transpose(1, 2), z.view(b, t, self.heads, self.dim))
            return self.out_proj(o.reshape(b, t, -1).to(x.dtype))

    class Mlp(nn.Module):
        def __init__(self, s):
            super().__init__()
            self.gate_proj = nn.Linear(s["hidden"], s["intermediate"], bias=False)
            self.up_proj = nn.Linear(s["hidden"], s["intermediate"], bias=False)
            self.down_proj = nn.Linear(s["intermediate"], s["hidden"], bias=False)

        def forward(self, x):
            return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))

    class Layer(nn.Module):
        def __init__(self, s, index):
            super().__init__()
            self.is_attention = (index + 1) % INTERVAL == 0
            if self.is_attention:
                self.self_attn = Attention(s)
            else:
                self.linear_attn = Delta(s)
            self.mlp, self.drop = Mlp(s), nn.Dropout(s["dropout"])
            self.input_layernorm = Norm(s["hidden"])
            self.post_attention_layernorm = Norm(s["hidden"])

        def forward(self, x, how):
            mixer = self.self_attn if self.is_attention else self.linear_attn
            x = x + self.drop(mixer(self.input_layernorm(x), how))
            return x + self.drop(self.mlp(self.post_attention_layernorm(x)))

    class Body(nn.Module):
        def __init__(self, s):
            super().__init__()
            self.embed_tokens = nn.Embedding(s["vocab"], s["hidden"])
            self.layers = nn.ModuleList([Layer(s, i) for i in range(s["layers"])])
            self.norm = Norm(s["hidden"])

    class How:
        """What a pass is asked for: the last near_rows rows with short attention; the DeltaNets'
        states emptied before a position."""

        def __init__(self, model, near_rows, empty_at):
            self.cos, self.sin, self.near = model.cos, model.sin, model.near
            self.near_rows = near_rows
            self.empty_at = None
            if empty_at is not None:
                self.empty_at = torch.tensor([empty_at], device=model.cos.device)

    class Qwen35(nn.Module):
        def __init__(self, s):
            super().__init__()
            self.model, self.drop = Body(s), nn.Dropout(s["dropout"])
            for name, p in self.named_parameters():
                if p.dim() != 2:
                    continue
                scale = 0.02
                if name.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight")):
                    scale /= math.sqrt(2 * s["layers"])
                nn.init.normal_(p, std=scale)
            for layer in self.model.layers:
                if not layer.is_attention:
                    q, k, _ = layer.linear_attn.in_proj_qkv.weight.data.chunk(3)
                    k.copy_(q)
            n = positions
            turning = s["head_dim"] // 4
            inverse = 1.0 / THETA ** (torch.arange(0, turning, 2).float() / turning)
            angle = torch.outer(torch.arange(n).float(), inverse)
            back = torch.arange(n)[:, None] - torch.arange(n)[None, :]
            for name, value in (("cos", angle.cos()), ("sin", angle.sin()),
                                ("near", (back >= 0) & (back < NEAR))):
                self.register_buffer(name, value, persistent=False)

        def hidden(self, ids, near_rows=0, empty_at=None):
            how = How(self, near_rows, empty_at)
            x = self.drop(self.model.embed_tokens(ids))
            for layer in self.model.layers:
                x = layer(x, how)
            return self.model.norm(x)

        def head(self, x):
            return F.linear(x, self.model.embed_tokens.weight)

        def forward(self, ids, near_rows=0, empty_at=None):
            return self.head(self.hidden(ids, near_rows, empty_at))

    return Qwen35(shape)


def model_config(s, eos):
    pairs = s["head_dim"] // 8  # a quarter of a head turns
    return {
        "architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text",
        "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": None,
        "dtype": "bfloat16", "eos_token_id": eos, "full_attention_interval": INTERVAL,
        "head_dim": s["head_dim"], "hidden_act": "silu", "hidden_size": s["hidden"],
        "initializer_range": 0.02, "intermediate_size": s["intermediate"],
        "layer_types": ["full_attention" if (i + 1) % INTERVAL == 0 else "linear_attention"
                        for i in range(s["layers"])],
        "linear_conv_kernel_dim": TAPS, "linear_key_head_dim": s["delta_dim"],
        "linear_num_key_heads": s["delta_heads"], "linear_num_value_heads": s["delta_heads"],
        "linear_value_head_dim": s["delta_dim"], "max_position_embeddings": CONTEXT,
        "num_attention_heads": s["heads"], "num_hidden_layers": s["layers"],
        "num_key_value_heads": s["kv_heads"], "rms_norm_eps": EPS,
        "rope_parameters": {
            "rope_type": "default", "rope_theta": THETA, "partial_rotary_factor": 0.25,
            "mrope_interleaved": True,
            "mrope_section": [pairs - 2 * (pairs // 3), pairs // 3, pairs // 3]},
        "tie_word_embeddings": True, "use_cache": True, "vocab_size": s["vocab"],
    }
