#!/usr/bin/env python3
"""Twelve repositories in the layouts of published ones, without their weights: tests/fixtures/repositories.

    make_repositories.py tests/fixtures/repositories --llama-cpp LLAMA_CPP_SOURCES

Files, keys of config.json and of tokenizer_config.json, special tokens, pre-tokenizers and post-processors
are as published; sizes are small, and vocabularies are 400 tokens of tests/fixtures/tokenizers, or 400
trained here by SentencePiece. Chat templates are those of tests/fixtures/templates and tests/fixtures/chat.
Weights are not there: the test makes them from config.json, seed 1, as this tool does for llama.cpp's
converter, which writes the GGUF files. The converter knows pre-tokenizers by a hash over a real vocabulary,
so their names are given here. Needs sentencepiece, and what the converter needs: torch, transformers.
"""
import argparse
import io
import json
import lzma
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FIXTURES = ROOT / "tests" / "fixtures"
WORDS = 400  # of a byte-level vocabulary, and pieces of a SentencePiece one

# ---- tokenizers


def added(id, content, special=True, **conditions):
    return {"id": id, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, "special": special, **conditions}


QWEN2 = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>",
         "<|box_start|>", "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>",
         "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>"]
QWEN2_PLAIN = ["<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>",
               "<|repo_name|>", "<|file_sep|>"]
QWEN3_PLAIN = QWEN2_PLAIN + ["<tool_response>", "</tool_response>", "<think>", "</think>"]
LLAMA3 = ["<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>", "<|reserved_special_token_1|>",
          "<|finetune_right_pad_id|>", "<|reserved_special_token_2|>", "<|start_header_id|>", "<|end_header_id|>",
          "<|eom_id|>", "<|eot_id|>", "<|python_tag|>"]
SMOLLM2 = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<repo_name>", "<reponame>", "<file_sep>", "<filename>",
           "<gh_stars>", "<issue_start>", "<issue_comment>", "<issue_closed>", "<jupyter_start>", "<jupyter_text>",
           "<jupyter_code>", "<jupyter_output>", "<jupyter_script>", "<empty_output>"]


def byte_level(pipeline, special, plain=(), first=False):
    """A tokenizer.json with the words and settings of a pipeline and its own special tokens, behind the words or,
    as SmolLM2's, before them."""
    packed = FIXTURES / "tokenizers" / f"pipelines-{pipeline}" / "tokenizer.json.xz"
    tok = json.loads(lzma.decompress(packed.read_bytes()))
    model = tok["model"]
    words = sorted(model["vocab"], key=model["vocab"].get)[:WORDS]
    merges = [list(m) if isinstance(m, list) else m.split(" ", 1) for m in model["merges"]]
    for left, right in (("y", "e"), ("ye", "s"), ("n", "o")):  # that the reranker asks for
        if left + right not in words:
            words.append(left + right)
        if [left, right] not in merges:
            merges.append([left, right])
    start = len(special) if first else 0
    known = set(words)
    model["vocab"] = {w: start + i for i, w in enumerate(words)}
    model["merges"] = [m for m in merges if m[0] in known and m[1] in known and "".join(m) in known]
    at = 0 if first else len(words)
    tok["added_tokens"] = [added(at + i, t, i < len(special)) for i, t in enumerate([*special, *plain])]
    if first:
        model["vocab"] = {**{t: i for i, t in enumerate(special)}, **model["vocab"]}
    return tok


def byte_level_only():
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}


def with_token(tok, token, behind):
    """The post-processor that puts a token before or behind a text, as Llama 3 and Qwen3-Embedding have it."""
    id = next(t["id"] for t in tok["added_tokens"] if t["content"] == token)
    one, a, b = ({"SpecialToken": {"id": token, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                 {"Sequence": {"id": "B", "type_id": 1}})
    other = {"SpecialToken": {"id": token, "type_id": 1}}
    template = {"type": "TemplateProcessing", "single": [a, one] if behind else [one, a],
                "pair": [a, one, b] if behind else [one, a, other, b],
                "special_tokens": {token: {"id": token, "ids": [id], "tokens": [token]}}}
    level = byte_level_only() if behind else {**byte_level_only(), "add_prefix_space": True, "trim_offsets": True,
                                              "use_regex": True}
    tok["post_processor"] = {"type": "Sequence", "processors": [level, template]}
    return tok


def qwen(plain, behind=None):
    tok = byte_level("qwen-embedding", QWEN2, plain)
    tok["post_processor"] = byte_level_only()
    return with_token(tok, behind, True) if behind else tok


def llama3():
    return with_token(byte_level("llama-3", LLAMA3), "<|begin_of_text|>", False)


def smollm2():
    tok = byte_level("llama-3", SMOLLM2, first=True)
    tok["model"]["ignore_merges"] = False
    tok["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [
        {"type": "Digits", "individual_digits": True},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}]}
    tok["post_processor"] = None
    return tok


def sentencepiece_model(extra=()):
    import sentencepiece
    text = [(ROOT / name).read_text() for name in ("README.md", "docs/ARCHITECTURE.md")]
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter("\n".join(text).split("\n")), model_writer=out, model_type="bpe",
        vocab_size=WORDS + len(extra), byte_fallback=True, character_coverage=0.98, split_digits=True,
        allow_whitespace_only_pieces=True, remove_extra_whitespaces=False, normalization_rule_name="identity",
        control_symbols=list(extra), num_threads=1, minloglevel=2)
    return out.getvalue()


def sentencepiece_json(serialized):
    sys.path.insert(0, str(ROOT / "tools"))
    import make_spm_goldens
    from sentencepiece import sentencepiece_model_pb2 as pb
    model = pb.ModelProto()
    model.ParseFromString(serialized)
    tok = json.loads(make_spm_goldens.tokenizer_json(model, "prepend"))
    tok["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                 {"SpecialToken": {"id": "<s>", "type_id": 1}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}
    return tok


# ---- repositories


def template(name):
    return (FIXTURES / name).read_text()


def decoder(tok):
    return {str(t["id"]): {k: v for k, v in t.items() if k != "id"} for t in tok["added_tokens"]}


def id_of(tok, text):
    return next(t["id"] for t in tok["added_tokens"] if t["content"] == text)


def rows(tok):
    """As published files have them: padded beyond the last token."""
    most = max([*tok["model"]["vocab"].values(), *(t["id"] for t in tok["added_tokens"])]) + 1
    return -(-most // 16) * 16


SMALL = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2}
COMMON = {"hidden_act": "silu", "initializer_range": 0.02, "torch_dtype": "bfloat16", "use_cache": True}
LLAMA3_SCALING = {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                  "original_max_position_embeddings": 8192, "rope_type": "llama3"}


def qwen_folder(kind, tok, config, chat, generation, files=None):
    tokenizer_config = {
        "add_bos_token": False, "add_prefix_space": False, "added_tokens_decoder": decoder(tok),
        "additional_special_tokens": QWEN2[1:], "bos_token": None, "clean_up_tokenization_spaces": False,
        "eos_token": "<|im_end|>", "errors": "replace", "model_max_length": 131072, "pad_token": "<|endoftext|>",
        "split_special_tokens": False, "tokenizer_class": "Qwen2Tokenizer", "unk_token": None}
    if chat:
        tokenizer_config["chat_template"] = chat
    end, stop = id_of(tok, "<|endoftext|>"), id_of(tok, "<|im_end|>")
    config = {"architectures": [kind + "ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": end,
              "eos_token_id": stop, **COMMON, **SMALL, **config, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
              "vocab_size": rows(tok)}
    return {"config.json": config, "tokenizer.json": tok, "tokenizer_config.json": tokenizer_config,
            "generation_config.json": {"bos_token_id": end, "pad_token_id": end, "do_sample": True,
                                       "eos_token_id": [stop, end], **generation}, **(files or {})}


def qwen25():
    config = {"max_position_embeddings": 32768, "max_window_layers": 21, "model_type": "qwen2", "sliding_window": 32768,
              "tie_word_embeddings": True, "transformers_version": "4.43.1", "use_sliding_window": False}
    return qwen_folder("Qwen2", qwen(QWEN2_PLAIN), config, template("templates/qwen-qwen2.5-7b-instruct.jinja"),
                       {"repetition_penalty": 1.1, "temperature": 0.7, "top_p": 0.8, "top_k": 20,
                        "transformers_version": "4.37.0"})


def qwen3_config(head_dim=32):
    return {"attention_bias": False, "head_dim": head_dim, "max_position_embeddings": 40960, "max_window_layers": 28,
            "model_type": "qwen3", "rope_scaling": None, "sliding_window": None, "tie_word_embeddings": True,
            "transformers_version": "4.51.0", "use_sliding_window": False}


def qwen3():
    return qwen_folder("Qwen3", qwen(QWEN3_PLAIN), qwen3_config(), template("templates/qwen3.jinja"),
                       {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "transformers_version": "4.51.0"})


def embedding():
    modules = [{"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
               for i, (path, kind) in enumerate((("", "Transformer"), ("1_Pooling", "Pooling"),
                                                 ("2_Normalize", "Normalize")))]
    pooling = {"word_embedding_dimension": 64, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": False,
               "pooling_mode_max_tokens": False, "pooling_mode_mean_sqrt_len_tokens": False,
               "pooling_mode_weightedmean_tokens": False, "pooling_mode_lasttoken": True, "include_prompt": True}
    prompts = {"prompts": {"query": "Instruct: Given a web search query, retrieve relevant passages that answer the "
                                    "query\nQuery:", "document": ""},
               "default_prompt_name": None, "similarity_fn_name": "cosine"}
    made = qwen_folder("Qwen3", qwen(QWEN3_PLAIN, behind="<|endoftext|>"), qwen3_config(),
                       template("templates/qwen3.jinja"), {"max_new_tokens": 2048, "transformers_version": "4.51.3"},
                       {"modules.json": modules, "1_Pooling/config.json": pooling,
                        "config_sentence_transformers.json": prompts})
    made["config.json"]["eos_token_id"] = id_of(made["tokenizer.json"], "<|endoftext|>")
    return made


def reranker():
    return qwen_folder("Qwen3", qwen(QWEN3_PLAIN), qwen3_config(), template("templates/qwen3.jinja"),
                       {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "transformers_version": "4.51.3"})


def qwen35():
    tok = qwen(QWEN3_PLAIN)
    text = {"attention_bias": False, "attention_dropout": 0.0, "attn_output_gate": True, "dtype": "bfloat16",
            "eos_token_id": id_of(tok, "<|endoftext|>"), "full_attention_interval": 4, "head_dim": 32,
            "hidden_act": "silu", **SMALL, "num_hidden_layers": 4, "initializer_range": 0.02,
            "layer_types": 3 * ["linear_attention"] + ["full_attention"], "linear_conv_kernel_dim": 4,
            "linear_key_head_dim": 32, "linear_num_key_heads": 2, "linear_num_value_heads": 2,
            "linear_value_head_dim": 32, "max_position_embeddings": 262144, "mlp_only_layers": [],
            "model_type": "qwen3_5_text", "mtp_num_hidden_layers": 0, "mtp_use_dedicated_embeddings": False,
            "rms_norm_eps": 1e-06, "tie_word_embeddings": True, "use_cache": True, "vocab_size": rows(tok),
            "mamba_ssm_dtype": "float32",
            "rope_parameters": {"mrope_interleaved": True, "mrope_section": [2, 1, 1], "rope_type": "default",
                                "rope_theta": 10000000, "partial_rotary_factor": 0.25}}
    vision = {"deepstack_visual_indexes": [], "depth": 12, "hidden_act": "gelu_pytorch_tanh", "hidden_size": 768,
              "in_channels": 3, "initializer_range": 0.02, "intermediate_size": 3072, "model_type": "qwen3_5",
              "num_heads": 12, "num_position_embeddings": 2304, "out_hidden_size": 64, "patch_size": 16,
              "spatial_merge_size": 2, "temporal_patch_size": 2}
    config = {"architectures": ["Qwen3_5ForConditionalGeneration"], "image_token_id": id_of(tok, "<|image_pad|>"),
              "model_type": "qwen3_5", "text_config": text, "tie_word_embeddings": True,
              "transformers_version": "4.57.0.dev0", "video_token_id": id_of(tok, "<|video_pad|>"),
              "vision_config": vision, "vision_end_token_id": id_of(tok, "<|vision_end|>"),
              "vision_start_token_id": id_of(tok, "<|vision_start|>")}
    made = qwen_folder("Qwen3", tok, {}, None, {"temperature": 1.0, "top_k": 20, "top_p": 0.95})
    return {**made, "config.json": config, "chat_template.jinja": template("templates/qwen3-5.jinja"),
            "preprocessor_config.json": {"patch_size": 16, "temporal_patch_size": 2, "merge_size": 2}}


def llama32(heads):
    tok = llama3()
    stops = [id_of(tok, t) for t in ("<|end_of_text|>", "<|eom_id|>", "<|eot_id|>")]
    begin = id_of(tok, "<|begin_of_text|>")
    config = {"architectures": ["LlamaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
              "bos_token_id": begin, "eos_token_id": stops, **COMMON, **SMALL, **heads,
              "max_position_embeddings": 131072, "mlp_bias": False, "model_type": "llama", "pretraining_tp": 1,
              "rms_norm_eps": 1e-05, "rope_scaling": LLAMA3_SCALING, "rope_theta": 500000.0,
              "tie_word_embeddings": True, "transformers_version": "4.45.0.dev0", "vocab_size": rows(tok)}
    tokenizer_config = {"added_tokens_decoder": decoder(tok), "bos_token": "<|begin_of_text|>",
                        "chat_template": template("templates/meta-llama-llama-3.2-3b-instruct.jinja"),
                        "clean_up_tokenization_spaces": True, "eos_token": "<|eot_id|>",
                        "model_input_names": ["input_ids", "attention_mask"], "model_max_length": 131072,
                        "tokenizer_class": "PreTrainedTokenizerFast"}
    return {"config.json": config, "tokenizer.json": tok, "tokenizer_config.json": tokenizer_config,
            "special_tokens_map.json": {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"},
            "generation_config.json": {"bos_token_id": begin, "do_sample": True, "eos_token_id": stops,
                                       "temperature": 0.6, "top_p": 0.9, "transformers_version": "4.45.0.dev0"}}


def sentencepiece_folder(config, chat, extra=(), generation=None, model_max=2048):
    serialized = sentencepiece_model(extra)
    tok = sentencepiece_json(serialized)
    config = {"bos_token_id": 1, "eos_token_id": 2, **COMMON, **SMALL, **config, "rms_norm_eps": 1e-05,
              "tie_word_embeddings": False, "vocab_size": rows(tok)}
    tokenizer_config = {"add_bos_token": True, "add_eos_token": False, "added_tokens_decoder": decoder(tok),
                        "bos_token": "<s>", "chat_template": chat, "clean_up_tokenization_spaces": False,
                        "eos_token": "</s>", "legacy": False, "model_max_length": model_max, "pad_token": "</s>",
                        "padding_side": "right", "sp_model_kwargs": {}, "tokenizer_class": "LlamaTokenizer",
                        "unk_token": "<unk>", "use_default_system_prompt": False}
    special = {k: {"content": v, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
               for k, v in (("bos_token", "<s>"), ("eos_token", "</s>"), ("unk_token", "<unk>"))}
    return {"config.json": config, "tokenizer.json": tok, "tokenizer.model": serialized,
            "tokenizer_config.json": tokenizer_config, "special_tokens_map.json": special,
            "generation_config.json": {"_from_model_config": True, "bos_token_id": 1, "eos_token_id": 2,
                                       **(generation or {})}}


TINYLLAMA_CHAT = (
    "{% for message in messages %}\n{% if message['role'] == 'user' %}\n{{ '<|user|>\n' + message['content'] + "
    "eos_token }}\n{% elif message['role'] == 'system' %}\n{{ '<|system|>\n' + message['content'] + eos_token }}\n"
    "{% elif message['role'] == 'assistant' %}\n{{ '<|assistant|>\n'  + message['content'] + eos_token }}\n"
    "{% endif %}\n{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}")


def tinyllama():
    return sentencepiece_folder({"architectures": ["LlamaForCausalLM"], "attention_bias": False,
                                 "max_position_embeddings": 2048, "model_type": "llama", "pretraining_tp": 1,
                                 "rope_scaling": None, "rope_theta": 10000.0, "transformers_version": "4.35.0"},
                                TINYLLAMA_CHAT, generation={"max_length": 2048, "pad_token_id": 0})


def mistral():
    """v0.1, the one with a window."""
    return sentencepiece_folder({"architectures": ["MistralForCausalLM"], "max_position_embeddings": 32768,
                                 "model_type": "mistral", "rope_theta": 10000.0, "sliding_window": 4096,
                                 "transformers_version": "4.34.0.dev0"},
                                template("templates/mistral-v1.jinja"), model_max=1000000000000000019884624838656)


def smollm2_folder():
    tok = smollm2()
    config = {"architectures": ["LlamaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
              "bos_token_id": 1, "eos_token_id": 2, **COMMON, **SMALL, "num_key_value_heads": 4,
              "max_position_embeddings": 8192, "mlp_bias": False, "model_type": "llama", "pad_token_id": 2,
              "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": None, "rope_theta": 130000,
              "tie_word_embeddings": True,
              "transformers.js_config": {"dtype": "q4", "kv_cache_dtype": {"q4f16": "float16", "fp16": "float16"}},
              "transformers_version": "4.42.3", "vocab_size": rows(tok)}
    tokenizer_config = {"add_prefix_space": False, "added_tokens_decoder": decoder(tok),
                        "additional_special_tokens": ["<|im_start|>", "<|im_end|>"], "bos_token": "<|im_start|>",
                        "chat_template": template("chat/smollm2.jinja"), "clean_up_tokenization_spaces": False,
                        "eos_token": "<|im_end|>", "model_max_length": 8192, "pad_token": "<|im_end|>",
                        "tokenizer_class": "GPT2Tokenizer", "unk_token": "<|endoftext|>", "vocab_size": rows(tok)}
    return {"config.json": config, "tokenizer.json": tok, "tokenizer_config.json": tokenizer_config,
            "special_tokens_map.json": {"additional_special_tokens": ["<|im_start|>", "<|im_end|>"],
                                        "bos_token": "<|im_start|>", "eos_token": "<|im_end|>",
                                        "pad_token": "<|im_end|>", "unk_token": "<|endoftext|>"},
            "generation_config.json": {"_from_model_config": True, "bos_token_id": 1, "eos_token_id": 2,
                                       "pad_token_id": 2, "transformers_version": "4.42.3"}}


# Name of the folder, its files, and what llama.cpp calls its pre-tokenizer where a GGUF file of it is made.
REPOSITORIES = {
    "qwen3": (qwen3, None),
    "qwen2.5": (qwen25, "qwen2"),
    "llama-3.2-1b": (lambda: llama32({"head_dim": 16}), "llama-bpe"),
    "llama-3.2-3b": (lambda: llama32({"hidden_size": 96, "num_attention_heads": 3, "num_key_value_heads": 1,
                                      "head_dim": 32, "intermediate_size": 160}), None),
    "tinyllama": (tinyllama, None),
    "mistral": (mistral, "sentencepiece"),
    "smollm2": (smollm2_folder, None),
    "qwen3-embedding": (embedding, "qwen2"),
    "qwen3-reranker": (reranker, None),
    "qwen3.5": (qwen35, None),
}


def content(value):
    if isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def write(folder, files, packed):
    for name, value in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if packed and name in ("tokenizer.json", "tokenizer.model", "tokenizer_config.json"):
            path = path.with_name(path.name + ".xz")
            path.write_bytes(lzma.compress(content(value), preset=9 | lzma.PRESET_EXTREME))
        else:
            path.write_bytes(content(value))


def whole(files, work, reel):
    """The folder with weights made from its config."""
    folder, config = Path(work) / "model", Path(work) / "config.json"
    config.write_bytes(content(files["config.json"]))
    subprocess.run([reel, "synthesize", folder, config, "--seed", "1"], check=True, stdout=subprocess.DEVNULL)
    write(folder, files, False)
    return folder


TEXT = "The cat sat on 12 mats, and then it went."


def expected(files, reel):
    """What transformers makes of it in float32: of a text the ids, the score and the vector of the last token; of a
    message the prompt and four greedy ids, unless the template says today's date."""
    import tokenizers
    import torch
    import transformers
    with tempfile.TemporaryDirectory() as work:
        folder = whole(files, work, reel)
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        tok = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    said = files["tokenizer_config.json"]
    chat = said.get("chat_template") or files["chat_template.jinja"]
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tok, bos_token=said["bos_token"],
                                                eos_token=said["eos_token"])
    ids = tok.encode(TEXT).ids
    with torch.no_grad():
        out = model(torch.tensor([ids]), output_hidden_states=True)
        nats = torch.nn.functional.cross_entropy(out.logits[0, :-1], torch.tensor(ids[1:])).item()
        vector = torch.nn.functional.normalize(out.hidden_states[-1][0, -1], dim=0)
        result = {"ids": ids, "nats": round(nats, 7), "embedding": [round(x, 6) for x in vector.tolist()]}
        if "strftime_now" not in chat:
            text = fast.apply_chat_template([{"role": "user", "content": "Hello"}], chat_template=chat,
                                            add_generation_prompt=True, tokenize=False)
            prompt = tok.encode(text, add_special_tokens=False).ids
            answer = []
            for _ in range(4):
                answer.append(int(model(torch.tensor([prompt + answer])).logits[0, -1].argmax()))
            result |= {"prompt_ids": prompt, "answer": answer}
    return result


def gguf(files, pre, out, reel, sources):
    """By llama.cpp's own converter."""
    with tempfile.TemporaryDirectory() as work:
        folder, made = whole(files, work, reel), Path(work) / "model.gguf"
        if pre != "sentencepiece":
            (folder / "tokenizer.model").unlink(missing_ok=True)
        code = ("import sys; sys.path[:0] = [sys.argv[1] + '/gguf-py', sys.argv[1]]\n"
                "import convert_hf_to_gguf as c\nfrom conversion.base import TextModel\n"
                "TextModel.get_vocab_base_pre = lambda self, tokenizer, pre=sys.argv[4]: pre\n"
                "sys.argv = ['convert', sys.argv[2], '--outfile', sys.argv[3], '--outtype', 'bf16']\nc.main()")
        subprocess.run([sys.executable, "-c", code, sources, folder, made, pre], check=True)
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_bytes(lzma.compress(made.read_bytes(), preset=9 | lzma.PRESET_EXTREME))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--llama-cpp", help="sources; without them no GGUF file is made")
    parser.add_argument("--reel", default=str(ROOT / "build" / "release" / "reel"))
    parser.add_argument("--only", nargs="*")
    args = parser.parse_args()
    known = Path(args.out) / "expected.json"
    all_expected = json.loads(known.read_text()) if known.exists() else {}
    for name, (make, pre) in REPOSITORIES.items():
        if args.only and name not in args.only:
            continue
        files = make()
        all_expected[name] = expected(files, args.reel)
        write(Path(args.out) / name, files, True)
        if pre and args.llama_cpp:
            gguf(files, pre, Path(args.out) / "gguf" / f"{name}.gguf.xz", args.reel, args.llama_cpp)
    known.write_text("{\n" + ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in all_expected.items()) + "\n}\n")


if __name__ == "__main__":
    main()
