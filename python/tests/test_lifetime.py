"""Threads, signals, fork, and objects that go in any order."""
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import unittest
import unittest.mock

import support
from support import reel

LONG = list(range(1, 901))


def slow_demo(**options):
    """The plain reference: slow enough that a test can come in between."""
    return support.demo(cpu_path="reference", n_threads=1, **options)


class Threads(support.Case):
    def test_a_session_used_by_two_threads_raises_and_goes_on(self):
        with slow_demo() as model, model.session() as session:
            failed = []
            thread = threading.Thread(target=session.sync, args=(LONG[:200],))
            thread.start()
            while thread.is_alive():
                try:
                    len(session)
                except reel.StateError as error:
                    failed.append(str(error))
                time.sleep(0.001)
            thread.join()
            self.assertTrue(failed)
            self.assertIn("another thread", failed[0])
            self.assertEqual(len(session), 200)

    def test_many_threads_at_one_iterator_lose_nothing_and_crash_nothing(self):
        made = self.model.generate("Emma", max_tokens=200, temperature=0)
        wanted = self.model.generate("Emma", max_tokens=200, temperature=0).ids()
        got, refused = [], [0]

        def take():
            while True:
                try:
                    got.append(next(made).id)
                except StopIteration:
                    return
                except reel.StateError:
                    refused[0] += 1
                    time.sleep(0.0005)

        next_id = next(made).id
        threads = [threading.Thread(target=take) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(sorted([next_id] + got), sorted(wanted))

    def test_cancel_from_another_thread_stops_a_generation(self):
        with slow_demo() as model:
            made = model.generate("Emma", max_tokens=800)
            next(made)
            timer = threading.Timer(0.05, made.cancel)
            timer.start()
            n = len(list(made))
            self.assertLess(n, 790)
            self.assertEqual((made.reason, made.finish_reason), ("cancelled", "cancelled"))

    def test_cancel_stops_a_prompt_too(self):
        with slow_demo() as model:
            made = model.generate(LONG, max_tokens=1)
            threading.Timer(0.1, made.cancel).start()
            self.assertEqual(list(made), [])
            self.assertEqual(made.reason, "cancelled")
            with model.session() as session:
                threading.Timer(0.1, session.cancel).start()
                with self.assertRaises(reel.Cancelled):
                    session.sync(LONG)

    def test_closing_a_model_ends_what_other_threads_have_running(self):
        model = slow_demo()
        session, ended = model.session(), []

        def run():
            try:
                session.sync(LONG)
            except reel.ReelError as error:
                ended.append(error)

        def generate():
            try:
                model.generate("Emma", max_tokens=800).ids()
            except reel.ReelError as error:
                ended.append(error)

        threads = [threading.Thread(target=run), threading.Thread(target=generate)]
        for thread in threads:
            thread.start()
        time.sleep(0.1)
        began = time.monotonic()
        model.close()
        self.assertLess(time.monotonic() - began, 10)
        for thread in threads:
            thread.join(10)
            self.assertFalse(thread.is_alive())
        self.assertTrue(ended)
        self.assertTrue(session.closed and model.closed)
        for call in [lambda: model.generate("Emma"), model.session, lambda: model.tokenizer.encode("a"),
                     lambda: session.sync([1])]:
            with self.assertRaisesRegex(reel.StateError, "closed"):
                call()
        model.close()

    def test_requests_wait_in_line_for_sessions(self):
        with support.demo(sessions=2) as model:
            opened, open_session = [], model._pool.open_session
            model._pool.open_session = lambda: opened.append(1) or open_session()
            wanted = model.generate("Emma", max_tokens=20, temperature=0).ids()
            got = []
            threads = [threading.Thread(target=lambda: got.append(
                model.generate("Emma", max_tokens=20, temperature=0).ids())) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(30)
            self.assertEqual(got, [wanted] * 8)
            self.assertEqual(len(opened), 2)

    def test_what_ended_one_opening_leaves_room_for_the_next(self):
        with support.demo(sessions=2) as model:
            pool, open_session = model._pool, model._pool.open_session
            first = model.generate("Emma", max_tokens=20, temperature=0)
            next(first)  # holds a session until its end
            for error in (KeyboardInterrupt(), reel.DeviceError("lost"), reel.Cancelled("ended")):
                pool.open_session = unittest.mock.Mock(side_effect=error)
                with self.assertRaises(type(error)):
                    model.generate("Harriet", max_tokens=1).ids()
                self.assertEqual((pool.n_open, pool.limit), (1, 2), error)
            pool.open_session = open_session
            self.assertEqual(len(model.generate("Harriet", max_tokens=1, temperature=0).ids()), 1)
            self.assertEqual((pool.n_open, len(pool.idle)), (2, 1))
            first.close()

    def test_full_memory_lowers_the_limit_of_sessions(self):
        wanted = self.model.generate("Harriet", max_tokens=3, temperature=0).ids()
        for error in (reel.OutOfMemoryError("full"), MemoryError()):
            with support.demo(sessions=3) as model:
                pool = model._pool
                first = model.generate("Emma", max_tokens=20, temperature=0)
                next(first)
                pool.open_session = unittest.mock.Mock(side_effect=error)
                got = []
                waits = threading.Thread(target=lambda: got.append(model.generate("Harriet", max_tokens=3, temperature=0).ids()))
                waits.start()
                until = time.monotonic() + 30
                while pool.limit > 1 and waits.is_alive() and pool.open_session.call_count < 9 and time.monotonic() < until:
                    time.sleep(0.001)
                self.assertEqual((pool.n_open, pool.limit, got), (1, 1, []), error)
                first.close()  # and the one that waits gets its session
                waits.join(30)
                self.assertEqual(got, [wanted], error)
                pool.open_session.assert_called_once()

    def test_a_callback_cannot_close_its_own_session(self):
        caught = []

        def progress(*_):
            for call in (session.close, lambda: len(session)):
                try:
                    call()
                except reel.StateError as error:
                    caught.append(str(error))

        session = self.model.session(600, progress)
        session.sync(LONG[:300])
        self.assertIn("own callback", caught[0])
        self.assertIn("from its callback", caught[1])
        session.close()


class Signals(support.Case):
    def setUp(self):
        # A shell starts what runs in the background with SIGINT ignored, and Python leaves it at that.
        self.addCleanup(signal.signal, signal.SIGINT,
                        signal.signal(signal.SIGINT, signal.default_int_handler))

    def interrupted(self, function, begun=lambda: True):
        def interrupt():
            time.sleep(0.15)
            until = time.monotonic() + 60
            while not begun() and time.monotonic() < until:
                time.sleep(0.005)
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt).start()
        with self.assertRaises(KeyboardInterrupt):
            function()
            time.sleep(20)

    def test_ctrl_c_stops_a_generation_and_a_prompt(self):
        with slow_demo(sessions=1) as model:
            made = model.generate("Emma", max_tokens=1000, ignore_stop_ids=True)
            # A machine with much to do may take longer than that to begin, and what has not begun would go on.
            self.interrupted(made.ids, lambda: made.n_tokens > 0)
            self.assertLess(made.n_tokens, 900)
            self.assertEqual(list(made), [])
            made = model.generate(LONG, max_tokens=1)
            self.interrupted(made.ids)
            self.assertEqual(made.n_tokens, 0)
            with model.session() as session:
                self.interrupted(lambda: session.sync(LONG))
                self.assertLess(len(session), len(LONG))
                session.sync([1, 2])
                self.assertEqual(len(session), 2)
            gc.collect()
            self.assertEqual(len(model.generate("Emma", max_tokens=2).ids()), 2)


class Order(unittest.TestCase):
    def test_objects_go_in_any_order(self):
        model = support.demo()
        session = model.session(32)
        session.sync([1, 2])
        made = session.generate(max_tokens=20)
        next(made)
        del model, session
        gc.collect()
        self.assertIsNotNone(next(made).id)
        del made
        tokenizer = support.demo().tokenizer
        self.assertEqual(tokenizer.decode(tokenizer.encode("Emma")), "Emma")

    def test_cycles_are_collected(self):
        class Node:
            pass

        for i in range(20):
            node = Node()
            node.self, node.model = node, support.demo()
            node.session = node.model.session(32)
            node.session.sync([1, 2])
            node.made = node.session.generate(max_tokens=20)
            node.request = node.model.generate("Emma", max_tokens=20)
            next(node.made), next(node.request)
            if i % 2:
                node.session.node = node
        del node
        gc.collect()

    def test_closing_a_session_ends_its_iterators(self):
        with support.demo() as model:
            session = model.session(32)
            session.sync([1, 2])
            made = session.generate(max_tokens=20)
            next(made)
            session.close()
            with self.assertRaisesRegex(reel.StateError, "closed"):
                next(made)
            self.assertEqual(list(made), [])

    def test_an_interpreter_that_ends_in_the_midst_ends_quietly(self):
        code = """
import support, threading, asyncio
model = support.demo(cpu_path="reference", n_threads=1)
made = model.generate("Emma", max_tokens=800)
next(made)
session = model.session()
threading.Thread(target=lambda: session.sync(list(range(1, 901))), daemon=True).start()
async def main():
    async for token in model.generate("Emma", max_tokens=800):
        break
    steps = model.generate("Emma", max_tokens=800).__aiter__()
    await steps.__anext__()
    globals()["kept"] = steps
asyncio.run(main())
print("done")
"""
        for _ in range(2):
            done = subprocess.run([sys.executable, "-c", code], cwd=support.TESTS, capture_output=True,
                                  text=True, timeout=60)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "done\n", ""))

    def test_after_a_fork_the_child_is_refused(self):
        with support.demo() as model, model.session(64) as session:
            session.sync([1, 2])
            list(model.generate("Emma", max_tokens=2))
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    for call in (lambda: session.sync([1, 2, 3]), model.session,
                                 lambda: model.generate("Emma", max_tokens=2).ids()):
                        try:
                            call()
                            os._exit(2)
                        except reel.StateError:
                            pass
                    code = 0
                finally:
                    os._exit(code)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)
            self.assertEqual(len(model.generate("Emma", max_tokens=2).ids()), 2)

    def test_sessions_leave_no_memory_behind(self):
        def resident():
            with open("/proc/self/statm") as file:
                return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")

        with support.demo() as model:
            def some(n):
                for _ in range(n):
                    with model.session(32) as session:
                        session.sync([1])
                    list(model.generate([1, 2], max_tokens=1))

            some(200)
            before = resident()
            some(300)
            self.assertLess(resident() - before, 1_500_000)


if __name__ == "__main__":
    unittest.main()
