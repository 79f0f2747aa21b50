"""asyncio: many generations, cancelling, consumers that leave or are slow."""
import asyncio
import gc
import threading
import time
import unittest

import support
from reel._feed import Feed, _Shared
from support import reel


def reel_threads():
    return [thread for thread in threading.enumerate() if thread.name == "reel-generation"]


async def no_threads():
    for _ in range(500):
        if not reel_threads():
            return True
        await asyncio.sleep(0.01)
    return False


class Many(support.Case):
    model_options = {"chat_template": "qwen3"}

    def test_sixty_four_at_once_are_right_and_whole(self):
        prompts = [f"Emma {'and Harriet ' * (i % 5)}{i}" for i in range(64)]
        wanted = [self.model.generate(p, max_tokens=12, temperature=0).ids() for p in prompts]

        async def one(prompt):
            return [t.id async for t in self.model.generate(prompt, max_tokens=12, temperature=0)]

        async def run():
            return await asyncio.gather(*[one(prompt) for prompt in prompts])

        self.assertEqual(asyncio.run(run()), wanted)
        self.assertLessEqual(self.model._pool.n_open, 4)

    def test_texts_and_chats(self):
        async def run():
            text = await self.model.generate("Emma", max_tokens=8, temperature=0).atext()
            stream = self.model.chat("Emma", max_tokens=8, temperature=0, ignore_stop_ids=True)
            pieces = [piece async for piece in stream]
            return text, stream, pieces

        text, stream, pieces = asyncio.run(run())
        self.assertEqual(text, self.model.generate("Emma", max_tokens=8, temperature=0).text())
        self.assertEqual(stream.content, "".join(piece.content for piece in pieces))
        self.assertEqual(stream.content, self.model.chat("Emma", max_tokens=8, temperature=0,
                                                         ignore_stop_ids=True).text())

    def test_an_error_reaches_who_awaits(self):
        async def run():
            async for _ in self.model.generate([99999999]):
                pass

        with self.assertRaises(reel.ArgumentError):
            asyncio.run(run())

    def test_leaving_a_loop_frees_the_session(self):
        async def run():
            with support.demo(sessions=1) as model:
                async for _ in model.generate("Emma", max_tokens=900):
                    break
                steps = model.generate("Emma", max_tokens=900).__aiter__()
                await steps.__anext__()
                await steps.aclose()
                never = model.generate("Emma", max_tokens=900).__aiter__()
                del never
                return len(await asyncio.wait_for(self.ids(model), 20))

        self.assertEqual(asyncio.run(run()), 3)

    @staticmethod
    async def ids(model):
        return [token.id async for token in model.generate("Emma", max_tokens=3)]

    def test_cancelling_stops_within_a_token(self):
        async def run():
            with support.demo(sessions=1, cpu_path="reference", n_threads=1) as model:
                made = model.generate("Emma", max_tokens=900)

                async def consume():
                    async for _ in made:
                        pass

                task = asyncio.create_task(consume())
                while made.n_tokens < 2:
                    await asyncio.sleep(0.005)
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
                at = made.n_tokens
                self.assertTrue(await no_threads())
                self.assertLessEqual(made.n_tokens - at, 2)
                # while a prompt is read, and while it waits in line
                for ids in ([1], list(range(1, 901))):
                    first = asyncio.create_task(self.consume(model, list(range(1, 901))))
                    second = asyncio.create_task(self.consume(model, ids))
                    await asyncio.sleep(0.1)
                    for task in (second, first):
                        task.cancel()
                        with self.assertRaises(asyncio.CancelledError):
                            await task
                began = time.monotonic()
                self.assertEqual(len(await self.ids(model)), 3)
                self.assertLess(time.monotonic() - began, 5)

        asyncio.run(run())

    @staticmethod
    async def consume(model, ids):
        async for _ in model.generate(ids, max_tokens=900):
            pass

    def test_a_slow_consumer_holds_the_thread_up(self):
        async def run():
            made = self.model.generate("Emma", max_tokens=900, ignore_stop_ids=True)
            steps = made.__aiter__()
            await steps.__anext__()
            await asyncio.sleep(0.6)
            ahead = made.n_tokens
            n = 1
            async for _ in steps:
                n += 1
            return ahead, n, made.n_tokens

        ahead, n, n_tokens = asyncio.run(run())
        self.assertLess(ahead, 100)
        self.assertEqual(n, n_tokens)

    def test_other_tasks_get_their_turn(self):
        """Also where the next tokens are always there already."""
        async def run():
            turns = 0

            async def other():
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            task = asyncio.create_task(other())
            feed = Feed(None)
            feed._shared = _Shared(asyncio.get_running_loop())
            feed._shared.items.extend(range(200))
            feed._shared.end(None)
            items = [item async for item in feed]
            task.cancel()
            return items, turns

        items, turns = asyncio.run(run())
        self.assertEqual(items, list(range(200)))
        self.assertGreater(turns, 3)

    def test_a_loop_that_ends_leaves_no_thread(self):
        async def run():
            steps = self.model.generate("Emma", max_tokens=900, ignore_stop_ids=True).__aiter__()
            await steps.__anext__()

        asyncio.run(run())
        gc.collect()
        self.assertTrue(asyncio.run(no_threads()))


if __name__ == "__main__":
    unittest.main()
