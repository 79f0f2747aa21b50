"""tool_model.py FROM TO: the demo model with a tokenizer in which three tokens are the pieces of a tool call.

The demo model calls no tools. A request that makes those tokens likely, one after the other (CALL of trials.py), gets a call
all the same, written by the model's own loop in the syntax that the template of Qwen3 has.
"""
import json
import os
import shutil
import sys

source, target = sys.argv[1:]
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "call_pieces.json"), encoding="utf-8") as f:
    pieces = json.load(f)
os.makedirs(target, exist_ok=True)
shutil.copy(os.path.join(source, "model.safetensors"), target)
with open(os.path.join(source, "config.json"), encoding="utf-8") as f:
    config = json.load(f)
with open(os.path.join(target, "config.json"), "w", encoding="utf-8") as f:
    json.dump({**config, "eos_token_id": 0}, f)  # the demo's own is one of the three
with open(os.path.join(source, "tokenizer.json"), encoding="utf-8") as f:
    tokenizer = json.load(f)
for token in tokenizer["added_tokens"]:
    if str(token["id"]) in pieces:
        token.update(content=pieces[str(token["id"])], special=False)
with open(os.path.join(target, "tokenizer.json"), "w", encoding="utf-8") as f:
    json.dump(tokenizer, f)
