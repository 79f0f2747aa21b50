#!/usr/bin/env python3
"""A conversation in a terminal: answers as they are written, Ctrl-C ends one, Ctrl-D the program.

    python chat.py [MODEL]
"""
import sys

import reel


def main():
    with reel.Model(sys.argv[1] if len(sys.argv) > 1 else "Qwen/Qwen3-0.6B", pull=True) as model:
        messages = []
        while True:
            try:
                text = input("> ")
            except (EOFError, KeyboardInterrupt):
                print()
                return
            messages.append({"role": "user", "content": text})
            with model.chat(messages, max_tokens=2000) as stream:
                try:
                    for piece in stream:
                        print(piece.content, end="", flush=True)
                except KeyboardInterrupt:
                    pass
                except reel.ContextFullError as error:  # the conversation is longer than the model's context
                    print(f"[{error}: a new conversation begins]")
                    messages.clear()
                    continue
            print(f"\n[{stream.usage.completion_tokens} tokens, {stream.usage.cached_tokens} of "
                  f"{stream.usage.prompt_tokens} read before]")
            messages.append(stream.message)


if __name__ == "__main__":
    main()
