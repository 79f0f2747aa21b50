"""Models, sessions and generations in one thread."""
import gc
import unittest
from unittest import mock

import numpy as np

import support
from reel import _generation
from support import command, reel

PROMPT = "The morning after the ball, Emma"


def log_softmax(logits):
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


class Generations(support.Case):
    def test_the_tokens_are_those_of_the_command(self):
        import json

        done = command("run", "demo", PROMPT, "-n", "24", "--temp", "0", "--json", "--device", "cpu")
        wanted = json.loads(done.stdout)
        made = self.model.generate(PROMPT, max_tokens=24, temperature=0)
        tokens = list(made)
        self.assertEqual([token.id for token in tokens], wanted["ids"])
        self.assertEqual("".join(token.text for token in tokens), wanted["text"])
        self.assertEqual(made.reason, "max_tokens")
        self.assertEqual(made.finish_reason, "length")
        self.assertEqual(made.usage.prompt_tokens, len(wanted["prompt_ids"]))

    def test_speculation_changes_passes_and_no_token(self):
        prompt = "Emma Woodhouse, handsome, clever, and rich. " * 3
        plain = self.model.generate(prompt, max_tokens=40, temperature=0, speculation="off")
        ids = [token.id for token in plain]
        self.assertEqual((plain.n_passes, plain.n_drafted, plain.n_accepted), (40, 0, 0))
        guessed = self.model.generate(prompt, max_tokens=40, temperature=0, speculation="ngram")
        self.assertEqual([token.id for token in guessed], ids)
        self.assertGreater(guessed.n_accepted, 0)
        self.assertEqual(guessed.n_passes + guessed.n_accepted, 40)
        with self.assertRaisesRegex(ValueError, "speculation: 'eagle'; there are auto, off, ngram, mtp, draft"):
            self.model.generate(prompt, speculation="eagle").text()
        with self.assertRaisesRegex(ValueError, "most_drafts is 9"):
            self.model.generate(prompt, most_drafts=9).text()

    def test_a_draft_model_changes_passes_and_no_token(self):
        options = {"max_tokens": 40, "temperature": 0.8, "seed": 3}
        ids = [token.id for token in self.model.generate(PROMPT, speculation="off", **options)]
        with reel.Model("demo", device="cpu", draft_model=self.model) as model:
            guessed = model.generate(PROMPT, speculation="draft", most_drafts=3, **options)
            self.assertEqual([token.id for token in guessed], ids)
            self.assertGreater(guessed.n_accepted, 20)
            self.assertEqual(guessed.n_passes + guessed.n_accepted, 40)
        with self.assertRaisesRegex(reel.ReelError, "no model guesses for this session"):
            self.model.generate(PROMPT, speculation="draft").text()

    def test_a_draft_model_stays_as_long_as_it_is_needed(self):
        draft = reel.Model("demo", device="cpu")
        session = self.model.session(max_context=200, draft_model=draft)
        draft.close()
        session.sync(self.model.tokenizer.encode(PROMPT))
        guessed = session.generate(max_tokens=9, temperature=0, speculation="draft", most_drafts=2)
        self.assertEqual(len(list(guessed)), 9)
        self.assertGreater(guessed.n_accepted, 0)
        session.close()
        with self.assertRaisesRegex(reel.StateError, "the draft model is closed"):
            self.model.session(max_context=200, draft_model=draft)
        with self.assertRaisesRegex(reel.StateError, "the draft model is closed"):
            reel.Model("demo", device="cpu", draft_model=draft)

    def test_a_draft_model_stays_until_its_models_are_closed_or_dropped(self):
        options = {"max_tokens": 9, "temperature": 0, "speculation": "draft", "most_drafts": 2}
        with reel.Model("demo", device="cpu") as draft:
            models = [reel.Model("demo", device="cpu", draft_model=draft) for _ in range(2)]
        with self.assertRaisesRegex(reel.StateError, "the model is closed"):
            draft.generate(PROMPT).text()
        for model in models:
            guessed = model.generate(PROMPT, **options)
            self.assertEqual(len(list(guessed)), 9)
            self.assertGreater(guessed.n_accepted, 0)
            model.session(max_context=100).close()
        models[0].close()
        self.assertIsNotNone(draft._core.pointer)
        del model, guessed
        models.pop()
        gc.collect()
        self.assertIsNone(draft._core.pointer)

    def test_a_problem_of_the_draft_model_is_told(self):
        self.assertIsNone(self.ended(self.model.generate(PROMPT, max_tokens=2)).draft_problem)
        problem = _generation.ffi.new("char[]", "no memory für it".encode())

        class Failing:  # the library, where each draft model fails
            def __getattr__(self, name):
                return getattr(reel._library.lib, name)

            def reel_generation_finish(self, pointer, result, err):
                status = reel._library.lib.reel_generation_finish(pointer, result, err)
                result.draft_problem = problem
                return status

        with mock.patch.object(_generation, "lib", Failing()):
            made = self.ended(self.model.generate(PROMPT, max_tokens=2))
        self.assertEqual(made.draft_problem, "no memory für it")

    @staticmethod
    def ended(made):
        made.text()
        return made

    def test_a_seed_repeats_and_none_does_not(self):
        def text(seed):
            return self.model.generate(PROMPT, max_tokens=24, temperature=1.0, seed=seed).text()

        self.assertEqual(text(7), text(7))
        self.assertGreater(len({text(None) for _ in range(4)}), 1)

    def test_logprobs_are_those_of_the_logits(self):
        prompt = self.model.tokenizer.encode(PROMPT)
        made = list(self.model.generate(prompt, max_tokens=8, temperature=0, top_logprobs=3))
        logits = self.model.logits(prompt + [token.id for token in made])
        self.assertEqual(logits.shape, (len(prompt) + 8, self.model.info.vocab))
        self.assertEqual(logits.dtype, np.float32)
        wanted = log_softmax(logits)
        for i, token in enumerate(made):
            row = wanted[len(prompt) + i - 1]
            self.assertAlmostEqual(token.logprob, row[token.id], delta=0.02)
            self.assertEqual(len(token.top), 3)
            self.assertEqual(token.top[0].id, token.id)
            for one in token.top:
                self.assertAlmostEqual(one.logprob, row[one.id], delta=0.02)
        self.assertIsNone(next(self.model.generate(prompt, max_tokens=1)).logprob)

    def test_stop_strings_end_it_and_their_text_stays_away(self):
        whole = self.model.generate(PROMPT, max_tokens=24, temperature=0).text()
        stop = whole[10:14]
        made = self.model.generate(PROMPT, max_tokens=24, temperature=0, stop=["never there", stop])
        self.assertEqual(made.text(), whole[:10])
        self.assertEqual((made.reason, made.stop_string, made.finish_reason),
                         ("stop_string", stop, "stop"))

    def test_stop_ids_and_bias(self):
        first = self.model.generate(PROMPT, max_tokens=3, temperature=0).ids()
        made = self.model.generate(PROMPT, max_tokens=9, temperature=0, stop_ids=[first[1]])
        self.assertEqual((made.ids(), made.reason), (first[:2], "stop_id"))
        other = self.model.generate(PROMPT, max_tokens=3, temperature=0,
                                    bias={first[0]: float("-inf")}).ids()
        self.assertNotEqual(other[0], first[0])

    def test_penalties_change_what_comes(self):
        plain = self.model.generate(PROMPT, max_tokens=60, temperature=0).ids()
        for name, value in [("repetition_penalty", 1.5), ("presence_penalty", 2.0),
                            ("frequency_penalty", 2.0)]:
            other = self.model.generate(PROMPT, max_tokens=60, temperature=0, **{name: value}).ids()
            self.assertNotEqual(plain, other, name)

    def test_wrong_options_are_named(self):
        for options, word in [({"max_tokens": 0}, "max_tokens"), ({"top_logprobs": 21}, "21"),
                              ({"temperature": -1.0}, "temperature"), ({"stop": [""]}, "stop")]:
            with self.assertRaisesRegex(reel.ArgumentError, word):
                self.model.generate(PROMPT, **options).ids()
        with self.assertRaisesRegex(TypeError, "temprature"):
            self.model.generate(PROMPT, temprature=1)
        with self.assertRaisesRegex(reel.ArgumentError, "no tokens"):
            self.model.generate("")
        with self.assertRaises(reel.ArgumentError):
            self.model.generate([99999999], max_tokens=1).ids()
        with self.assertRaises(reel.ArgumentError):
            self.model.generate([[1, 2]])

    def test_a_prompt_that_continues_another_is_not_read_again(self):
        first = self.model.generate(PROMPT, max_tokens=8, temperature=0)
        ids = self.model.tokenizer.encode(PROMPT) + first.ids()
        second = self.model.generate(ids + self.model.tokenizer.encode(" and"), max_tokens=1)
        list(second)
        self.assertGreaterEqual(second.usage.cached_tokens, len(ids) - 1)

    def test_an_iterator_left_half_way_gives_its_session_back(self):
        with support.demo(sessions=1) as model:
            for token in model.generate(PROMPT, max_tokens=500):
                break
            made = model.generate(PROMPT, max_tokens=500)
            next(made)
            del made
            with model.generate(PROMPT, max_tokens=500) as made:
                next(made)
            # with one session, this would wait for ever
            self.assertEqual(len(model.generate(PROMPT, max_tokens=3).ids()), 3)

    def test_a_dropped_chat_gives_its_session_back(self):
        with support.demo(sessions=1, chat_template="qwen3") as model:
            for piece in model.chat("Emma?", max_tokens=500, ignore_stop_ids=True):
                break
            self.assertEqual(len(model.generate(PROMPT, max_tokens=3).ids()), 3)


class Sessions(support.Case):
    def test_a_session_holds_what_it_was_given(self):
        ids = self.model.tokenizer.encode(PROMPT)
        with self.model.session(64) as session:
            self.assertEqual((len(session), session.max_context), (0, 64))
            self.assertEqual(session.sync(ids), 0)
            self.assertEqual(session.sync(ids + ids[:2]), len(ids))
            self.assertEqual(session.ids.tolist(), ids + ids[:2])
            session.truncate(3)
            self.assertEqual(session.ids.tolist(), ids[:3])
            made = session.generate(max_tokens=4, temperature=0).ids()
            self.assertEqual(session.ids.tolist(), ids[:3] + made)
        with self.assertRaisesRegex(reel.StateError, "closed"):
            len(session)

    def test_outputs_agree_with_each_other(self):
        ids = self.model.tokenizer.encode(PROMPT)
        with self.model.session(64) as session:
            every = session.eval(ids, "all_logits")
            session.truncate(0)
            last = session.eval(ids, "last_logits")
            np.testing.assert_allclose(every[-1], last, atol=0.05)
            np.testing.assert_allclose(self.model.logits(ids), every, atol=1e-6)
            session.truncate(0)
            self.assertIsNone(session.eval(ids))
            session.truncate(0)
            self.assertEqual(session.eval(ids, "all_hidden").shape, (len(ids), self.model.info.hidden))
            with self.assertRaisesRegex(reel.ArgumentError, "last_logit'"):
                session.eval(ids, "last_logit")
            with self.assertRaises(reel.ArgumentError):
                session.eval()
            with self.assertRaisesRegex(reel.ArgumentError, "embeddings"):
                session.eval(embeddings=np.zeros((2, 3)))
            with self.assertRaises(reel.ContextFullError):
                session.eval(list(range(100)))

    def test_snapshots_and_copies_go_on_alike(self):
        with self.model.session(64) as session:
            session.sync(self.model.tokenizer.encode(PROMPT))
            snapshot, copy = session.snapshot(), session.copy()
            wanted = session.generate(max_tokens=6, temperature=0).ids()
            self.assertEqual(copy.generate(max_tokens=6, temperature=0).ids(), wanted)
            copy.restore(snapshot)
            self.assertEqual(copy.generate(max_tokens=6, temperature=0).ids(), wanted)
            broken = bytearray(snapshot)
            broken[len(broken) // 2] ^= 1
            with self.assertRaises(reel.ReelError):
                copy.restore(broken)
            self.assertEqual(len(copy), 0)
            with self.assertRaisesRegex(reel.StateError, "is empty"):
                next(copy.generate())

    def test_a_session_that_generates_refuses_other_calls(self):
        with self.model.session(64) as session:
            session.sync([5, 6])
            made = session.generate(max_tokens=20)
            next(made)
            with self.assertRaises(reel.StateError):
                session.truncate(0)
            self.assertEqual(len(session), 3)
            made.close()
            session.truncate(0)
            self.assertEqual(list(made), [])

    def test_sessions_of_two_models_are_not_mixed(self):
        with support.demo() as other, other.session(32) as theirs, self.model.session(32) as ours:
            with self.assertRaises(reel.ArgumentError):
                ours.copy_from(theirs)

    def test_progress_may_end_an_evaluation(self):
        seen = []

        def progress(stage, done, total):
            seen.append((stage, done, total))
            return False

        with self.model.session(600, progress=progress) as session:
            with self.assertRaises(reel.Cancelled):
                session.sync(np.arange(500) % 1000)
        self.assertEqual(seen[0][0], "evaluating")

        def fails(*_):
            raise KeyError("from the callback")

        with self.model.session(600, progress=fails) as session:
            with self.assertRaisesRegex(KeyError, "from the callback"):
                session.sync(np.arange(500) % 1000)
            with self.assertRaises(KeyError):
                session.sync(np.arange(500) % 1000)


class Judging(support.Case):
    def test_loglikelihood_is_the_sum_over_the_logits(self):
        context, rest = "Emma Woodhouse, handsome,", " clever, and rich"
        ids = self.model.tokenizer.encode(context + rest)
        n = len(self.model.tokenizer.encode(context))
        wanted = log_softmax(self.model.logits(ids))
        total = sum(wanted[i - 1, ids[i]] for i in range(n, len(ids)))
        got = self.model.loglikelihood(context, rest)
        self.assertAlmostEqual(got.logprob, total, delta=0.02)
        self.assertEqual(got.n_tokens, len(ids) - n)
        best = self.model.generate(context, max_tokens=3, temperature=0).ids()
        self.assertTrue(self.model.loglikelihood(ids[:n], best).greedy)
        self.assertFalse(self.model.loglikelihood(ids[:n], best[:2] + [best[2] + 1]).greedy)

    def test_many_pairs_come_in_their_order(self):
        pairs = [("Emma", " was"), ("Mr. Knightley", " said"), ("Emma", " had"), ("", "Emma")]
        together = self.model.loglikelihoods(pairs)
        for pair, one in zip(pairs, together):
            self.assertAlmostEqual(one.logprob, self.model.loglikelihood(*pair).logprob, delta=0.02)
        with self.assertRaises(reel.ArgumentError):
            self.model.loglikelihood("Emma", "")
        with self.assertRaises(reel.ArgumentError):
            self.model.loglikelihood("Emma", [1])

    def test_white_space_at_the_contexts_end_counts_to_the_continuation(self):
        self.assertEqual(self.model.loglikelihood("Emma ", "was"), self.model.loglikelihood("Emma", " was"))

    def test_vectors_are_those_of_the_last_position(self):
        texts = ["Emma Woodhouse", "a carriage and four horses", "Emma"]
        vectors = self.model.embed(texts)
        self.assertEqual((vectors.shape, vectors.dtype), ((3, self.model.info.hidden), np.float32))
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
        with self.model.session(64) as session:
            hidden = session.eval(self.model.tokenizer.encode(texts[1], special=True), "last_hidden")
        np.testing.assert_allclose(vectors[1], hidden / np.linalg.norm(hidden), atol=0.02)
        raw = self.model.embed([texts[1]], normalise=False)
        np.testing.assert_allclose(raw[0], hidden, atol=0.05 * np.abs(hidden).max())
        self.assertEqual(self.model.embed("Emma", dimensions=16).shape, (1, 16))
        self.assertEqual(self.model.embed([]).shape, (0, self.model.info.hidden))
        with self.assertRaisesRegex(reel.ArgumentError, "no named prompts"):
            self.model.embed("Emma", prompt_name="query")
        with self.assertRaisesRegex(reel.ArgumentError, "text 1"):
            self.model.embed(["Emma", ""])

    def test_long_texts_are_refused_or_cut(self):
        with support.demo(max_context=16) as model:
            text = "Emma " * 40
            with self.assertRaisesRegex(reel.ContextFullError, "truncate=True"):
                model.embed(text)
            ids = model.tokenizer.encode(text)[:16]
            np.testing.assert_array_equal(model.embed(text, truncate=True), model.embed([ids]))

    def test_a_model_that_cannot_rerank_says_so(self):
        with self.assertRaisesRegex(reel.UnsupportedError, "yes"):
            self.model.rerank("Emma", ["a document"])
        self.assertEqual(self.model.rerank("Emma", []), [])


class Text(support.Case):
    def test_a_text_survives_encoding(self):
        tokenizer = self.model.tokenizer
        for text in ["Emma Woodhouse", "naïve 東京 \U0001f600", "", "a\0b"]:
            self.assertEqual(tokenizer.decode(tokenizer.encode(text)), text)
        self.assertEqual(tokenizer.find("Emma"), tokenizer.encode("Emma")[0])
        self.assertIsNone(tokenizer.find("no such token at all"))
        self.assertTrue(all(tokenizer.is_control(i) for i in self.model.info.stop_ids))
        with self.assertRaisesRegex(reel.ArgumentError, "ids are 0 to"):
            tokenizer.token_bytes(len(tokenizer))
        with self.assertRaises(TypeError):
            tokenizer.encode(b"bytes")

    def test_control_tokens_in_a_text_are_characters_unless_asked_for(self):
        tokenizer = self.model.tokenizer
        stop = self.model.info.stop_ids[0]
        text = tokenizer.token_bytes(stop).decode()
        self.assertNotIn(stop, tokenizer.encode(text))
        self.assertEqual(tokenizer.encode(text, control=True), [stop])
        self.assertEqual(tokenizer.decode([stop], control=False), "")

    def test_a_tokenizer_alone_is_the_models(self):
        alone = reel.Tokenizer("demo")
        self.assertEqual(alone.encode("Emma Woodhouse"), self.model.tokenizer.encode("Emma Woodhouse"))
        self.assertEqual(len(alone), len(self.model.tokenizer))

    def test_what_the_files_say(self):
        self.assertEqual(self.model.info.family, "qwen3")
        self.assertEqual(reel.inspect("demo")["config"]["hidden_size"]
                         if "hidden_size" in reel.inspect("demo")["config"]
                         else self.model.info.hidden, self.model.info.hidden)
        self.assertIn("cpu", reel.devices())
        self.assertIn("h200", reel.plan("demo", gpu="h200").lower())

    def test_a_model_from_memory_is_the_same(self):
        folder = support.ROOT / "models/demo"
        names = ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
                 "model.safetensors"]
        files = {name: (folder / name).read_bytes() for name in names}
        with reel.Model.from_memory("mine", files, "cpu") as model:
            self.assertEqual(model.info.name, "mine")
            self.assertEqual(model.generate(PROMPT, max_tokens=5, temperature=0).ids(),
                             self.model.generate(PROMPT, max_tokens=5, temperature=0).ids())

    def test_quantising_writes_a_model_that_opens(self):
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            made = reel.quantize("demo", folder + "/small", "int8")
            self.assertGreater(made["n_matrices"], 0)
            self.assertLess(made["error"], 0.02)
            with reel.Model(folder + "/small", "cpu") as model:
                self.assertEqual(len(model.generate(PROMPT, max_tokens=3).ids()), 3)
            with self.assertRaises(reel.ReelError):
                reel.quantize("demo", folder + "/small", "int8")


if __name__ == "__main__":
    unittest.main()
