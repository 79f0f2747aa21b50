#!/usr/bin/env python3
"""Many generations at once with asyncio: a line of standard input is a prompt, answers come in their order.

    printf 'Emma\\nMr. Knightley\\n' | python many_at_once.py demo

Model.generate waits in line where all sessions are in use, so any number may be started. Where the model's
backend can, those that run share every reading of the weights.
"""
import asyncio
import sys

import reel


async def answer(model, prompt):
    text = await model.generate(prompt, max_tokens=40, temperature=0).atext()
    return f"{prompt}{text}"


async def main():
    prompts = [line.strip() for line in sys.stdin if line.strip()]
    with reel.Model(sys.argv[1] if len(sys.argv) > 1 else "demo", sessions=8) as model:
        for whole in await asyncio.gather(*[answer(model, prompt) for prompt in prompts]):
            print(whole)


if __name__ == "__main__":
    asyncio.run(main())
