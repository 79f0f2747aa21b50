"""reel.lm_eval_adapter without lm_eval: what it takes from there stands here as a stub of our own, and the numbers are those of
`Model.logits`. tools/eval.sh runs it under lm_eval itself."""
import importlib
import sys
import types
import unittest
import unittest.mock

import numpy as np

import support
from support import reel

TEXT = "The morning after the ball, Emma thought of Harriet and of Mr. Knightley. "
WINDOW = 64  # positions of the model that the adapter opens: several windows of a long text
# Of log-probabilities: keys and values are bf16, rounded otherwise where one call reads more rows than another.
ROUNDING = 0.02


class Hook:
    """lm_eval's cache of answers; this one remembers what it was told."""

    def __init__(self):
        self.told = []

    def add_partial(self, what, request, answer):
        self.told.append((what, request, answer))


class TemplateLM:
    """What lm_eval's class of that name does for its heirs: texts become ids, and those are handed to _loglikelihood_tokens."""

    def __init__(self):
        self.cache_hook = Hook()

    def loglikelihood(self, requests, disable_tqdm=False):
        pairs = []
        for context, continuation in (request.args for request in requests):
            kept = context.rstrip()
            wanted = context[len(kept):] + continuation
            whole = self.tok_encode(kept + wanted)
            n = len(self.tok_encode(kept)) if kept else 0
            pairs.append(((context, continuation), whole[:n] or [self.prefix_token_id], whole[n:]))
        return self._loglikelihood_tokens(pairs, disable_tqdm=disable_tqdm)


def rolling_windows(token_list, prefix_token, max_seq_len, context_len):
    """(ids that are read, ids that are judged): at most max_seq_len of each; the judged ones end one behind those that are read."""
    ids, step = [prefix_token, *token_list], max_seq_len - context_len + 1
    for begin in range(0, len(token_list), step):
        end = min(begin + step, len(token_list))
        yield ids[max(0, end - max_seq_len): end], ids[begin + 1: end + 1]


def stub():
    """The modules by their names, and what was registered or called."""
    seen = types.SimpleNamespace(models={}, commands=0)

    def register_model(name):
        return lambda made: seen.models.setdefault(name, made)

    def cli_evaluate():
        seen.commands += 1

    utils = dict(get_rolling_token_windows=rolling_windows, make_disjoint_window=lambda pair: (pair[0][: len(pair[0]) - len(pair[1]) + 1], pair[1]))
    parts = {"lm_eval": {}, "lm_eval.api": {}, "lm_eval.utils": utils, "lm_eval.api.model": {"TemplateLM": TemplateLM},
             "lm_eval.api.registry": {"register_model": register_model}, "lm_eval.__main__": {"cli_evaluate": cli_evaluate}}
    modules = {}
    for name, held in parts.items():
        modules[name] = types.ModuleType(name)
        vars(modules[name]).update(held)
        if "." in name:
            parent, _, last = name.rpartition(".")
            setattr(modules[parent], last, modules[name])
    return modules, seen


def asked(*args):
    return types.SimpleNamespace(args=args)


class Adapter(support.Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        modules, cls.seen = stub()
        patch = unittest.mock.patch.dict(sys.modules, modules)
        patch.start()
        cls.addClassCleanup(patch.stop)  # reel.lm_eval_adapter goes with it
        sys.modules.pop("reel.lm_eval_adapter", None)
        cls.adapter = importlib.import_module("reel.lm_eval_adapter")

    def open(self, **options):
        made = self.adapter.ReelLM("demo", "cpu", **options)
        self.addCleanup(made.model.close)
        return made

    def judged(self, context, continuation):
        """(sum of the continuation's log-probabilities, whether each is the likeliest), from logits of the whole."""
        rows = self.model.logits(context + continuation).astype(np.float64)[len(context) - 1: -1]
        every = rows - np.log(np.exp(rows - rows.max(axis=1, keepdims=True)).sum(axis=1, keepdims=True)) - rows.max(axis=1, keepdims=True)
        return (sum(float(every[i, id]) for i, id in enumerate(continuation)),
                all(int(rows[i].argmax()) == id for i, id in enumerate(continuation)))

    def followed(self, ids, n, stop=()):
        """The likeliest text behind ids, a token at a time, each from the logits of all before it."""
        made = []
        for _ in range(n):
            row = self.model.logits(ids + made)[-1]
            second, first = np.sort(row)[-2:]
            self.assertGreater(first - second, 4 * ROUNDING, "which is the likeliest is left to rounding: another text is wanted")
            id = int(row.argmax())
            if id in self.model.info.stop_ids:
                break
            made.append(id)
            text = self.model.tokenizer.decode(made)
            ends = [text.index(one) for one in stop if one in text]
            if ends:
                return text[: min(ends)]
        return self.model.tokenizer.decode(made)

    def likely(self, ids):
        return int(self.model.logits(ids)[-1].argmax())

    # ---- what lm_eval asks about a model ----

    def test_it_is_the_model_reel_of_lm_evals_command(self):
        self.assertEqual(self.seen.models, {"reel": self.adapter.ReelLM})
        before = self.seen.commands
        self.adapter.main()
        self.assertEqual(self.seen.commands, before + 1)

    def test_without_lm_eval_it_says_what_to_install(self):
        with unittest.mock.patch.dict(sys.modules, {"lm_eval": None}):
            del sys.modules["reel.lm_eval_adapter"]
            with self.assertRaisesRegex(ImportError, "pip install lm_eval"):
                importlib.import_module("reel.lm_eval_adapter")

    def test_arguments_are_texts_on_a_command_line(self):
        lm = self.open(max_length=str(WINDOW), prefix_token_id="7", add_bos_token="True", share_prefixes="no", batch_size="auto")
        self.assertEqual((lm.max_length, lm.prefix_token_id, lm._add_bos, lm._share), (WINDOW, 7, True, False))
        lm = self.open()
        self.assertEqual(lm.prefix_token_id, self.model.info.stop_ids[0])
        self.assertEqual((lm.eot_token_id, lm.tokenizer_name), (self.model.info.stop_ids[0], "demo"))

    def test_what_a_template_wrote_is_control_tokens(self):
        lm = self.open(chat_template="chatml")
        messages = [{"role": "user", "content": "Emma"}]
        self.assertEqual(lm.apply_chat_template(messages), "<|im_start|>user\nEmma<|im_end|>\n<|im_start|>assistant\n")
        messages.append({"role": "assistant", "content": "She"})
        self.assertTrue(lm.apply_chat_template(messages, add_generation_prompt=False).endswith("assistant\nShe"))
        self.assertEqual(lm.chat_template(), lm.model.info.chat_template_sha256 or "chatml")
        stop = self.model.tokenizer.decode([self.model.info.stop_ids[0]])
        self.assertEqual(lm.tok_encode(stop), [self.model.info.stop_ids[0]])

    # ---- scores ----

    def test_loglikelihood(self):
        ids = self.model.tokenizer.encode(TEXT)
        next_word = self.model.tokenizer.decode([self.likely(ids)])
        pairs = [(TEXT.rstrip(), " She"), (TEXT, "Harriet was pleased."), ("", "Emma thought"), (TEXT, next_word),
                 ("Emma", " " + TEXT[:-1]), (TEXT.rstrip(), " x")]
        lm = self.open(max_length=WINDOW)
        answers = lm.loglikelihood([asked(*pair) for pair in pairs])
        for (context, continuation), (logprob, greedy) in zip(pairs, answers):
            with self.subTest(context=context, continuation=continuation):
                whole = self.model.tokenizer.encode(context + continuation)
                first = self.model.tokenizer.encode(context.rstrip()) if context else []
                self.assertEqual(whole[: len(first)], first)
                wanted, likeliest = self.judged(first or [lm.prefix_token_id], whole[len(first):])
                self.assertAlmostEqual(logprob, wanted, delta=1e-5)
                self.assertEqual(greedy, likeliest)
        self.assertIn(True, [greedy for _, greedy in answers])
        self.assertEqual(lm.cache_hook.told, [("loglikelihood", pair, answer) for pair, answer in zip(pairs, answers)])

    def test_a_context_loses_its_beginning_where_the_window_is_short(self):
        lm = self.open(max_length=WINDOW)
        ids = self.model.tokenizer.encode(TEXT * 6)
        self.assertGreater(len(ids), WINDOW)
        wanted, greedy = self.judged(ids[-WINDOW:-4], ids[-4:])
        ((logprob, said),) = lm._loglikelihood_tokens([(None, ids[:-4], ids[-4:])])
        self.assertAlmostEqual(logprob, wanted, delta=ROUNDING)
        self.assertEqual(said, greedy)
        self.assertEqual(lm.cache_hook.told, [])  # a part of another request is no answer
        with self.assertRaisesRegex(ValueError, f"continuation of {WINDOW} tokens does not fit in max_length {WINDOW}"):
            lm._loglikelihood_tokens([(None, ids[:1], ids[:WINDOW])])

    def test_shared_prefixes_give_the_same_sums_but_for_roundings(self):
        lm, apart = self.open(share_prefixes=True), self.open()
        requests = [asked(TEXT.rstrip(), f" {word}") for word in ("Emma", "She", "Harriet was", "The")]
        for (one, greedy), (other, same) in zip(lm.loglikelihood(requests), apart.loglikelihood(requests)):
            self.assertAlmostEqual(one, other, delta=ROUNDING)
            self.assertEqual(greedy, same)

    def test_loglikelihood_rolling(self):
        texts = ["Emma thought of Harriet.", TEXT * 9, TEXT]
        for share in (False, True):
            lm = self.open(max_length=WINDOW, share_prefixes=share)
            sums = lm.loglikelihood_rolling([asked(text) for text in texts])
            for text, found in zip(texts, sums):
                with self.subTest(text=text, share=share):
                    ids = [lm.prefix_token_id, *self.model.tokenizer.encode(text)]
                    # Each token once: WINDOW - 1 at a time, behind the one before them; the last ones behind as many as fit.
                    total, at = 0.0, 1
                    while at < len(ids):
                        end = min(at + WINDOW - 1, len(ids))
                        total += self.judged(ids[max(0, end - WINDOW): at], ids[at:end])[0]
                        at = end
                    self.assertAlmostEqual(found, total, delta=ROUNDING * (len(ids) // WINDOW + 1))
            self.assertEqual(lm.cache_hook.told, [("loglikelihood_rolling", (text,), one) for text, one in zip(texts, sums)])
        self.assertGreater(len(self.model.tokenizer.encode(texts[1])), 2 * WINDOW)

    # ---- answers ----

    def test_generate_until(self):
        ids = self.model.tokenizer.encode(TEXT)
        text = self.followed(ids, 24)
        stop = text[len(text) // 2:][:3]
        many = [f"~{i}~" for i in range(20)] + [stop]  # more stop strings than reel takes
        lm = self.open()
        cases = [({"max_gen_toks": 24}, text), ({"max_gen_toks": 24, "until": [stop]}, self.followed(ids, 24, [stop])),
                 ({"max_gen_toks": 24, "until": stop, "do_sample": False, "temperature": 1.0}, self.followed(ids, 24, [stop])),
                 ({"max_tokens": 24, "until": ["", *many]}, self.followed(ids, 24, [stop])), ({"max_gen_toks": 3}, self.followed(ids, 3))]
        answers = lm.generate_until([asked(TEXT, given) for given, _ in cases])
        self.assertEqual(answers, [wanted for _, wanted in cases])
        self.assertLess(len(answers[1]), len(text))
        self.assertEqual(lm.cache_hook.told, [("generate_until", (TEXT, given), one) for (given, _), one in zip(cases, answers)])
        self.assertEqual(self.open(share_prefixes=True).generate_until([asked(TEXT, given) for given, _ in cases]), answers)

    def test_generate_until_samples_where_it_is_told_to(self):
        lm, options = self.open(), dict(temperature=0.9, top_p=0.8, seed=3)
        wanted = self.model.generate(TEXT, special=False, max_tokens=16, **options).text()
        (answer,) = lm.generate_until([asked(TEXT, dict(options, max_gen_toks=16, until=[], do_sample=True))])
        self.assertEqual(answer, wanted)
        self.assertNotEqual(answer, self.followed(self.model.tokenizer.encode(TEXT), 16))

    def test_a_long_context_leaves_room_for_the_answer(self):
        lm = self.open(max_length=WINDOW)
        ids = self.model.tokenizer.encode(TEXT * 6)
        (answer,) = lm.generate_until([asked(TEXT * 6, {"max_gen_toks": 8})])
        self.assertEqual(answer, self.followed(ids[-(WINDOW - 8):], 8))


if __name__ == "__main__":
    unittest.main()
