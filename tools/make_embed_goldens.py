#!/usr/bin/env python3
"""Miniatures of Qwen3-Embedding and Qwen3-Reranker, and what transformers computes for them.

usage: make_embed_goldens.py tests/fixtures/embed tests/golden/embed.json

The folders are laid out as the published ones: names of tensors, config, tokenizer.json with its
post-processor, and sentence-transformers' files. Weights are random (numpy, seed 1) and rounded to
bf16; the tokenizer is trained here on a few sentences, with the pipeline of the published one.

embed.json, of each text: the prompt before it, ids, and the vectors of the float32 and the bf16 run,
normalised: of the last token of each text alone, without padding. Of each query: ids, tokens cut,
and P(yes) of each document in both types, as the model card's code makes them.
"""
import json
import lzma
import sys
from pathlib import Path

import numpy as np
import safetensors.torch
import tokenizers
import torch
import transformers

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TAGS = ["<think>", "</think>"]
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TASK = "Given a web search query, retrieve relevant passages that answer the query"
QUERY_PROMPT = f"Instruct: {TASK}\nQuery:"
BEFORE = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and "
    'the Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
    "<|im_start|>user\n"
)
AFTER = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"

TEXTS = [
    "The capital of China is Beijing.",
    "Gravity is a force that attracts two bodies towards each other. It gives weight to physical "
    "objects and is responsible for the movement of planets around the sun.",
    "a",
    "",
    "Die Hauptstadt von China heißt Peking.",
    "中国的首都是北京。",
    "line one\nline two\n\n  indented",
    "1234567890 3.14159",
    "yes",
    " ".join(f"word{i} of a long text" for i in range(60)),
    "😀 emoji and cafe\u0301",
    "What is the capital of China?",
]
QUERIES = ["What is the capital of China?", "Explain gravity"]
DOCUMENTS = TEXTS[:3] + TEXTS[4:11]
TEACH = TEXTS + [BEFORE, AFTER, QUERY_PROMPT, "<Instruct>: <Query>: <Document>: ", "yes\nno\n" * 50]


def make_tokenizer(ends):
    tok = tokenizers.Tokenizer(tokenizers.models.BPE(byte_fallback=False, fuse_unk=False))
    tok.normalizer = tokenizers.normalizers.NFC()
    tok.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [
            tokenizers.pre_tokenizers.Split(tokenizers.Regex(SPLIT), "isolated", False),
            tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False),
        ]
    )
    tok.decoder = tokenizers.decoders.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=420,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tok.train_from_iterator(TEACH, trainer)
    tok.add_special_tokens(SPECIAL)
    tok.add_tokens([tokenizers.AddedToken(tag, special=False, normalized=False) for tag in TAGS])
    level = tokenizers.processors.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    tok.post_processor = level
    if ends:
        end = tokenizers.processors.TemplateProcessing(
            single="$A <|endoftext|>",
            pair="$A <|endoftext|> $B:1 <|endoftext|>:1",
            special_tokens=[("<|endoftext|>", tok.token_to_id("<|endoftext|>"))],
        )
        tok.post_processor = tokenizers.processors.Sequence([level, end])
    return tok


def config_of(tok, tied):
    stop = tok.token_to_id("<|endoftext|>" if tied else "<|im_end|>")
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": tok.token_to_id("<|endoftext|>"),
        "eos_token_id": stop,
        "head_dim": 16,
        "hidden_act": "silu",
        "hidden_size": 48,
        "initializer_range": 0.02,
        "intermediate_size": 80,
        "max_position_embeddings": 2048,
        "max_window_layers": 3,
        "model_type": "qwen3",
        "num_attention_heads": 4,
        "num_hidden_layers": 3,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-06,
        "rope_scaling": None,
        "rope_theta": 1000000,
        "sliding_window": None,
        "tie_word_embeddings": tied,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.51.3",
        "use_cache": True,
        "use_sliding_window": False,
        "vocab_size": tok.get_vocab_size(),
    }


def weights_of(config, tied):
    random = np.random.default_rng(1 if tied else 2)
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**config))
    state = {}
    for name, values in sorted(model.state_dict().items()):
        if name == "lm_head.weight" and tied:
            continue
        shape = tuple(values.shape)
        spread = 1.0 if len(shape) == 1 else 1.4 / np.sqrt(shape[1]) if "embed" not in name else 0.5
        made = random.standard_normal(shape) * (0.1 if len(shape) == 1 else spread)
        state[name] = torch.tensor(made + (1 if len(shape) == 1 else 0)).to(torch.bfloat16)
    return state


def pack(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_name(path.name + ".xz").write_bytes(lzma.compress(content, preset=9))


def pack_json(path, content):
    pack(path, (json.dumps(content, indent=2) + "\n").encode())


def write_folder(folder, tok, config, state, embeds):
    names = {n.removeprefix("model."): v for n, v in state.items()} if embeds else state
    pack(folder / "model.safetensors", safetensors.torch.save(names, {"format": "pt"}))
    pack(folder / "tokenizer.json", tok.to_str(pretty=False).encode())
    pack_json(folder / "config.json", config)
    pack_json(
        folder / "tokenizer_config.json",
        {
            "add_bos_token": False,
            "add_prefix_space": False,
            "eos_token": "<|im_end|>",
            "errors": "replace",
            "model_max_length": 131072,
            "pad_token": "<|endoftext|>",
            "tokenizer_class": "Qwen2Tokenizer",
            "unk_token": None,
        },
    )
    if not embeds:
        return
    kind = "sentence_transformers.models."
    modules = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    pack_json(
        folder / "modules.json",
        [{"idx": i, "name": str(i), "path": p, "type": kind + t} for i, (p, t) in enumerate(modules)],
    )
    modes = ["cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken"]
    pack_json(
        folder / "1_Pooling" / "config.json",
        {"word_embedding_dimension": config["hidden_size"]}
        | {"pooling_mode_" + m: m == "lasttoken" for m in modes}
        | {"include_prompt": True},
    )
    pack_json(
        folder / "config_sentence_transformers.json",
        {
            "prompts": {"query": QUERY_PROMPT, "document": ""},
            "default_prompt_name": None,
            "similarity_fn_name": "cosine",
        },
    )


def load(config, state, dtype):
    made = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model(**config), dtype=torch.float32
    ).eval()
    made.load_state_dict({n: v.float() for n, v in state.items()}, strict=False)
    made.tie_weights()
    frequencies = made.model.rotary_emb.inv_freq.clone()
    made = made.to(dtype)
    made.model.rotary_emb.inv_freq = frequencies  # loading in bf16 keeps them, .to() does not
    return made


@torch.inference_mode()
def vector(model, ids):
    last = model.model(input_ids=torch.tensor([ids]), use_cache=False).last_hidden_state[0, -1].float()
    return torch.nn.functional.normalize(last, dim=0).tolist()


@torch.inference_mode()
def chance(model, tok, ids):
    logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].float()
    pair = logits[[tok.token_to_id("no"), tok.token_to_id("yes")]]
    return torch.log_softmax(pair, dim=0)[1].exp().item()


def rerank_ids(tok, query, document, room):
    def plain(text):
        return tok.encode(text, add_special_tokens=False).ids

    body = plain(f"<Instruct>: {TASK}\n<Query>: {query}\n<Document>: {document}")
    before, after = plain(BEFORE), plain(AFTER)
    kept = body if room == 0 else body[: room - len(before) - len(after)]
    return before + kept + after, len(kept) < len(body)


def main():
    fixtures, golden = Path(sys.argv[1]), Path(sys.argv[2])
    types = {"f32": torch.float32, "bf16": torch.bfloat16}
    out = {"torch": torch.__version__, "transformers": transformers.__version__, "texts": [], "queries": []}

    tok = make_tokenizer(True)
    config = config_of(tok, True)
    state = weights_of(config, True)
    write_folder(fixtures / "qwen3-embedding", tok, config, state, True)
    models = {name: load(config, state, dtype) for name, dtype in types.items()}
    for prompt in ("", QUERY_PROMPT):
        for text in TEXTS:
            ids = tok.encode(prompt + text).ids
            entry = {"prompt": prompt, "text": text, "ids": ids}
            out["texts"].append(entry | {name: vector(model, ids) for name, model in models.items()})

    tok = make_tokenizer(False)
    config = config_of(tok, False)
    state = weights_of(config, False)
    write_folder(fixtures / "qwen3-reranker", tok, config, state, False)
    models = {name: load(config, state, dtype) for name, dtype in types.items()}
    for room in (0, 250):
        for query in QUERIES:
            made = [rerank_ids(tok, query, d, room) for d in DOCUMENTS]
            out["queries"].append(
                {"query": query, "max_tokens": room, "documents": DOCUMENTS, "truncated": [cut for _, cut in made]}
                | {"n_ids": [len(ids) for ids, _ in made]}
                | {n: [chance(model, tok, ids) for ids, _ in made] for n, model in models.items()}
            )
    golden.write_text(json.dumps(out, ensure_ascii=True) + "\n")


main()
