"""Qwen3-ASR's architecture for tools/train_asr.py: log-mel features of a batch, the audio tower,
and Qwen3, with the parameter names of published checkpoints less their `thinker.`."""

import math

RATE, FFT, HOP, BINS = 16000, 400, 160, 128
CHUNK, CHUNK_TOKENS, WINDOW = 100, 13, 800  # frames, tokens of a chunk, frames that attend together
BLOCK = WINDOW // CHUNK * CHUNK_TOKENS
HEAD_DIM, EPS, THETA, CONTEXT = 64, 1e-6, 1000000, 4096


def tokens(frames):
    """Audio tokens of as many frames; ints or tensors."""
    rest = frames % CHUNK
    for _ in range(3):
        rest = (rest + 1) // 2
    return frames // CHUNK * CHUNK_TOKENS + rest


def mel_filters(np):
    """[201, BINS], Slaney's scale and areas."""
    def hertz(mel):
        return np.where(mel < 15, mel * 200 / 3, 1000 * np.exp((mel - 15) * np.log(6.4) / 27))

    p = hertz(np.linspace(0, 15 + 27 * np.log(8) / np.log(6.4), BINS + 2))
    f = 40.0 * np.arange(FFT // 2 + 1)[:, None]
    rising, falling = (f - p[:-2]) / (p[1:-1] - p[:-2]), (p[2:] - f) / (p[2:] - p[1:-1])
    return np.maximum(0, np.minimum(rising, falling)) * (2 / (p[2:] - p[:-2]))


def log_mel(torch, x, n_samples, filters):
    """x [B, T] with T a multiple of 16,000 and n_samples [B] of them heard -> [B, BINS, T / HOP],
    0 after each clip's frames. A clip's end is mirrored as if the clip were alone."""
    b, t = x.shape
    at = torch.arange(-FFT // 2, t + FFT // 2, device=x.device)[None].abs()
    last = n_samples[:, None] - 1
    at = torch.where(at > last, 2 * last - at, at).clamp(0, t - 1)
    frames = x.gather(1, at).unfold(1, FFT, HOP)[:, : t // HOP]
    window = torch.hann_window(FFT, device=x.device)
    power = torch.fft.rfft(frames * window).abs().square()
    mel = (power @ filters).clamp(min=1e-10).log10().transpose(1, 2)
    here = torch.arange(t // HOP, device=x.device)[None] < (n_samples // HOP)[:, None]
    most = mel.masked_fill(~here[:, None], -10.0).amax((1, 2), keepdim=True)
    mel = (torch.maximum(mel, most - 8) + 4) / 4
    return mel.masked_fill(~here[:, None], 0.0)


def build_model(torch, s):
    """`s`: a shape of train_asr.SHAPES."""
    nn, F = torch.nn, torch.nn.functional

    # ---- audio tower -----------------------------------------------------------------------------

    class AudioAttention(nn.Module):
        def __init__(self):
            super().__init__()
            for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
                setattr(self, name, nn.Linear(s["audio_hidden"], s["audio_hidden"]))

        def forward(self, x, seen):
            b, n, _ = x.shape
            split = lambda y: y.view(b, n, -1, HEAD_DIM).transpose(1, 2)
            y = F.scaled_dot_product_attention(split(self.q_proj(x)), split(self.k_proj(x)),
                                               split(self.v_proj(x)), attn_mask=seen)
            return self.out_proj(y.transpose(1, 2).reshape(b, n, -1))

    class AudioLayer(nn.Module):
        def __init__(self):
            super().__init__()
            self.self_attn = AudioAttention()
            self.self_attn_layer_norm = nn.LayerNorm(s["audio_hidden"])
            self.final_layer_norm = nn.LayerNorm(s["audio_hidden"])
            self.fc1 = nn.Linear(s["audio_hidden"], s["audio_intermediate"])
            self.fc2 = nn.Linear(s["audio_intermediate"], s["audio_hidden"])

        def forward(self, x, seen):
            x = x + self.self_attn(self.self_attn_layer_norm(x), seen)
            return x + self.fc2(F.gelu(self.fc1(self.final_layer_norm(x))))

    class AudioTower(nn.Module):
        def __init__(self):
            super().__init__()
            c, d = s["channels"], s["audio_hidden"]
            self.conv2d1 = nn.Conv2d(1, c, 3, 2, padding=1)
            self.conv2d2 = nn.Conv2d(c, c, 3, 2, padding=1)
            self.conv2d3 = nn.Conv2d(c, c, 3, 2, padding=1)
            self.conv_out = nn.Linear(c * BINS // 8, d, bias=False)
            self.layers = nn.ModuleList(AudioLayer() for _ in range(s["audio_layers"]))
            self.ln_post = nn.LayerNorm(d)
            self.proj1, self.proj2 = nn.Linear(d, d), nn.Linear(d, s["hidden"])
            scale = torch.exp(torch.arange(d // 2).float() * (-math.log(10000) / (d // 2 - 1)))
            angle = torch.arange(CHUNK_TOKENS)[:, None] * scale
            self.register_buffer("places", torch.cat((angle.sin(), angle.cos()), 1),
                                 persistent=False)

        def forward(self, mel, n_tokens):
            """mel [B, BINS, F], F a multiple of CHUNK; n_tokens [B]. Returns what comes out of the
            layers, normalised, [B, tokens(F), d]; rows from n_tokens on mean nothing."""
            b, n_chunks = mel.shape[0], mel.shape[2] // CHUNK
            x = mel.view(b, BINS, n_chunks, CHUNK).transpose(1, 2).reshape(-1, 1, BINS, CHUNK)
            x = x.contiguous(memory_format=torch.channels_last)
            for conv in (self.conv2d1, self.conv2d2, self.conv2d3):
                x = F.gelu(conv(x))
            x = self.conv_out(x.permute(0, 3, 1, 2).flatten(2)) + self.places
            n = n_chunks * CHUNK_TOKENS
            x = x.reshape(b, n, -1)
            block = min(n, BLOCK)
            x = F.pad(x, (0, 0, 0, -n % block)).reshape(-1, block, x.shape[-1])
            at = torch.arange(x.shape[0] // b * block, device=x.device)
            seen = (at < n_tokens[:, None]).view(-1, 1, 1, block)
            seen = seen | ~seen.any(-1, keepdim=True)  # a softmax over nothing would be no number
            for layer in self.layers:
                x = layer(x, seen)
            return self.ln_post(x.reshape(b, -1, x.shape[-1])[:, :n])

        def project(self, x):
            return self.proj2(F.gelu(self.proj1(x)))

    # ---- Qwen3 -----------------------------------------------------------------------------------

    class Norm(nn.Module):
        def __init__(self, n):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(n))

        def forward(self, x):
            return F.rms_norm(x.float(), x.shape[-1:], self.weight, EPS).to(x.dtype)

    def rotate(x, cos, sin):
        a, b = x.float().chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(x.dtype)

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            h, q, kv = s["hidden"], s["heads"] * HEAD_DIM, s["kv_heads"] * HEAD_DIM
            self.q_proj, self.k_proj = nn.Linear(h, q, bias=False), nn.Linear(h, kv, bias=False)
            self.v_proj, self.o_proj = nn.Linear(h, kv, bias=False), nn.Linear(q, h, bias=False)
            self.q_norm, self.k_norm = Norm(HEAD_DIM), Norm(HEAD_DIM)

        def forward(self, x, cos, sin):
            b, n, _ = x.shape
            split = lambda y: y.view(b, n, -1, HEAD_DIM).transpose(1, 2)
            q = rotate(self.q_norm(split(self.q_proj(x))), cos, sin)
            k = rotate(self.k_norm(split(self.k_proj(x))), cos, sin)
            group = s["heads"] // s["kv_heads"]
            v = split(self.v_proj(x)).repeat_interleave(group, 1)
            y = F.scaled_dot_product_attention(q.to(v.dtype), k.repeat_interleave(group, 1)
                                               .to(v.dtype), v, is_causal=True)
            return self.o_proj(y.transpose(1, 2).reshape(b, n, -1))

    class Mlp(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate_proj = nn.Linear(s["hidden"], s["intermediate"], bias=False)
            self.up_proj = nn.Linear(s["hidden"], s["intermediate"], bias=False)
            self.down_proj = nn.Linear(s["intermediate"], s["hidden"], bias=False)

        def forward(self, x):
            return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.self_attn, self.mlp = Attention(), Mlp()
            self.input_layernorm = Norm(s["hidden"])
            self.post_attention_layernorm = Norm(s["hidden"])

        def forward(self, x, cos, sin):
            x = x + self.self_attn(self.input_layernorm(x), cos, sin)
            return x + self.mlp(self.post_attention_layernorm(x))

    class Body(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed_tokens = nn.Embedding(s["vocab"], s["hidden"])
            self.layers = nn.ModuleList(Layer() for _ in range(s["layers"]))
            self.norm = Norm(s["hidden"])

    class Qwen3Asr(nn.Module):
        def __init__(self):
            super().__init__()
            self.audio_tower, self.model = AudioTower(), Body()
            for name, p in self.model.named_parameters():
                if p.dim() == 2:
                    late = name.endswith(("o_proj.weight", "down_proj.weight"))
                    nn.init.normal_(p, std=0.02 / math.sqrt(2 * s["layers"]) if late else 0.02)
            inverse = 1.0 / THETA ** (torch.arange(0, HEAD_DIM, 2).float() / HEAD_DIM)
            angle = torch.outer(torch.arange(1024).float(), inverse)
            self.register_buffer("cos", angle.cos(), persistent=False)
            self.register_buffer("sin", angle.sin(), persistent=False)

        def hidden(self, ids, audio, is_audio, audio_row):
            """ids, is_audio, audio_row [B, S]: where is_audio, row audio_row of audio [B, A, H]
            stands instead of an id's embedding."""
            x = self.model.embed_tokens(ids)
            rows = audio.gather(1, audio_row[..., None].expand(-1, -1, audio.shape[-1]))
            x = torch.where(is_audio[..., None], rows.to(x.dtype), x)
            n = ids.shape[1]
            for layer in self.model.layers:
                x = layer(x, self.cos[:n], self.sin[:n])
            return self.model.norm(x)

        def head(self, x):
            return F.linear(x, self.model.embed_tokens.weight)

    return Qwen3Asr()


def model_config(s, ids):
    """`ids`: {name of a control token: id}."""
    pairs = HEAD_DIM // 2
    third = pairs * 5 // 16
    return {
        "architectures": ["Qwen3ASRForConditionalGeneration"], "model_type": "qwen3_asr",
        "support_languages": ["English"],
        "thinker_config": {
            "architectures": ["Qwen3ASRForConditionalGeneration"], "model_type": "qwen3_asr",
            "audio_config": {
                "model_type": "qwen3_asr_audio_encoder", "activation_dropout": 0.0,
                "activation_function": "gelu", "attention_dropout": 0.0, "conv_chunksize": 500,
                "d_model": s["audio_hidden"], "downsample_hidden_size": s["channels"],
                "dropout": 0.0, "encoder_attention_heads": s["audio_hidden"] // HEAD_DIM,
                "encoder_ffn_dim": s["audio_intermediate"], "encoder_layers": s["audio_layers"],
                "initializer_range": 0.02, "max_source_positions": 1500, "n_window": CHUNK // 2,
                "n_window_infer": WINDOW, "num_hidden_layers": s["audio_layers"],
                "num_mel_bins": BINS, "output_dim": s["hidden"], "scale_embedding": False},
            "audio_end_token_id": ids["<|audio_end|>"],
            "audio_start_token_id": ids["<|audio_start|>"],
            "audio_token_id": ids["<|audio_pad|>"], "dtype": "bfloat16",
            "text_config": {
                "model_type": "qwen3", "attention_bias": False, "attention_dropout": 0.0,
                "eos_token_id": [ids["<|im_end|>"], ids["<|endoftext|>"]],
                "head_dim": HEAD_DIM, "hidden_act": "silu", "hidden_size": s["hidden"],
                "initializer_range": 0.02, "intermediate_size": s["intermediate"],
                "max_position_embeddings": CONTEXT, "num_attention_heads": s["heads"],
                "num_hidden_layers": s["layers"], "num_key_value_heads": s["kv_heads"],
                "rms_norm_eps": EPS, "rope_theta": THETA,
                "rope_scaling": {"interleaved": True, "rope_type": "default",
                                 "mrope_section": [pairs - 2 * third, third, third]},
                "tie_word_embeddings": True, "use_cache": True, "vocab_size": s["vocab"]}}}
