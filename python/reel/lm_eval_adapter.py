"""lm-evaluation-harness over the package, in one process and without a server: the model "reel".

    pip install lm_eval
    python -m reel.lm_eval_adapter run --model reel --model_args pretrained=Qwen/Qwen3-0.6B --tasks ...

is lm_eval's own command with that model added; from Python, lm_eval.simple_evaluate(model=ReelLM(...), ...).

Texts become ids as lm_eval's other models make them: a context and its continuation are encoded together, without what the
model puts around a text unless add_bos_token says so, and an empty context is prefix_token_id.
"""
from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

import numpy as np

try:
    from lm_eval import utils
    from lm_eval.api.model import TemplateLM
    from lm_eval.api.registry import register_model
except ImportError as missing:
    raise ImportError(f"reel.lm_eval_adapter needs lm_eval ({missing}): pip install lm_eval") from missing

from ._model import Model

# Ids that are evaluated at once, as many as the server takes (src/server/prompt_scores.c): how rows are rounded depends on how many
# there are, on processors with AMX. The last id of a text, whose row nobody reads, counts.
PIECE = 32
GENERATED = 256  # tokens of an answer where the task does not say how many
PASSED_ON = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "seed")


def _flag(value: Union[bool, str]) -> bool:
    return value if isinstance(value, bool) else value.lower() in ("1", "true", "yes")


@register_model("reel")
class ReelLM(TemplateLM):  # type: ignore[misc, unused-ignore]
    """Arguments: `pretrained` is what reel.Model takes, and so are other options; max_length bounds context and answer together.

    Each text is evaluated whole, as the server does it, and the sums are those of its log-probabilities. With share_prefixes what
    texts have in common at their beginning is evaluated once. That is faster, and other roundings: bf16 is stored where
    one call ends and the next begins.
    """

    def __init__(self, pretrained: str, device: str = "auto", max_length: Union[int, str, None] = None,
                 prefix_token_id: Union[int, str, None] = None, add_bos_token: Union[bool, str] = False,
                 share_prefixes: Union[bool, str] = False, batch_size: Any = None, max_batch_size: Any = None, **options: Any) -> None:
        super().__init__()
        self.model = Model(pretrained, device, max_context=int(max_length or 0), sessions=1, **options)
        self.name = pretrained
        self._add_bos = _flag(add_bos_token)
        self._share = _flag(share_prefixes)
        self._prefix = int(prefix_token_id) if prefix_token_id is not None else None

    # ---- what lm_eval asks about a model ----

    @property
    def max_length(self) -> int:
        return self.model._context

    @property
    def eot_token_id(self) -> int:
        stops = self.model.info.stop_ids
        if not stops:
            raise ValueError(f"{self.name} has no token that ends a text; say prefix_token_id")
        return stops[0]

    @property
    def prefix_token_id(self) -> int:
        return self._prefix if self._prefix is not None else self.model._beginning()

    @property
    def tokenizer_name(self) -> str:
        return self.name

    def tok_encode(self, string: str, add_special_tokens: Optional[bool] = None, **kwargs: Any) -> List[int]:
        special = self._add_bos if add_special_tokens is None else add_special_tokens
        # Control tokens that a chat template wrote are tokens, as in lm_eval's other models.
        return self.model.tokenizer.encode(string, special=special, control=True)

    def apply_chat_template(self, chat_history: List[Dict[str, str]], add_generation_prompt: bool = True) -> str:
        # A history that ends with the assistant's words is one that is to go on.
        return self.model.chat_text(chat_history, generation_prompt=add_generation_prompt,
                                    continue_final_message=not add_generation_prompt)

    def chat_template(self, chat_template: Union[bool, str] = False) -> Optional[str]:
        """Named for lm_eval's records; the model's own is used whatever this says."""
        return self.model.info.chat_template_sha256 or self.model.info.chat_template

    # ---- scores ----

    def _loglikelihood_tokens(self, requests: Sequence[Tuple[Any, List[int], List[int]]],
                              disable_tqdm: bool = False, **kwargs: Any) -> List[Tuple[float, bool]]:
        pairs = []
        for _, context, continuation in requests:
            keep = self.max_length - len(continuation)
            if keep < 1:
                raise ValueError(f"a continuation of {len(continuation)} tokens does not fit in max_length {self.max_length}")
            pairs.append((context[-keep:], continuation))
        if self._share:
            found = [(one.logprob, one.greedy) for one in self.model.loglikelihoods(pairs)]
        else:
            found = self._whole(pairs)
        for (text, _, _), answer in zip(requests, found):
            if text is not None:
                self.cache_hook.add_partial("loglikelihood", text, answer)
        return found

    def _whole(self, pairs: Sequence[Tuple[List[int], List[int]]]) -> List[Tuple[float, bool]]:
        found = []
        with self.model.session(self.max_length) as session:
            for context, continuation in pairs:
                ids = np.asarray(context + continuation, np.int32)
                session.truncate(0)
                pieces = []
                for at in range(0, len(ids), PIECE):
                    logits = session.eval(ids[at: at + PIECE], "all_logits")
                    assert logits is not None
                    pieces.append(logits[max(0, len(context) - 1 - at):].astype(np.float64))
                rows, wanted = np.concatenate(pieces)[:-1], ids[len(context):]
                most = rows.max(axis=1)
                sums = np.log(np.exp(rows - most[:, None]).sum(axis=1)) + most
                chosen = rows[np.arange(len(wanted)), wanted]
                found.append((float((chosen - sums).sum()), bool((rows.argmax(axis=1) == wanted).all())))
        return found

    def loglikelihood_rolling(self, requests: List[Any], disable_tqdm: bool = False) -> List[float]:
        sums = []
        for (text,) in (request.args for request in requests):
            windows = [utils.make_disjoint_window(window) for window in utils.get_rolling_token_windows(
                token_list=self.tok_encode(text), prefix_token=self.prefix_token_id,
                max_seq_len=self.max_length - 1, context_len=1)]
            sums.append(sum(one for one, _ in self._loglikelihood_tokens([(None, *window) for window in windows])))
            self.cache_hook.add_partial("loglikelihood_rolling", (text,), sums[-1])
        return sums

    # ---- answers ----

    def generate_until(self, requests: List[Any], disable_tqdm: bool = False) -> List[str]:
        answers = []
        for context, given in (request.args for request in requests):
            answers.append(self._generate(context, dict(given)))
            self.cache_hook.add_partial("generate_until", (context, given), answers[-1])
        return answers

    def _generate(self, context: str, given: Dict[str, Any]) -> str:
        until = given.pop("until", None) or []
        until = [until] if isinstance(until, str) else [text for text in until if text]
        n = int(given.pop("max_gen_toks", given.pop("max_tokens", GENERATED)))
        sample = given.pop("do_sample", given.get("temperature", 0) > 0)
        options = {name: given[name] for name in PASSED_ON if name in given}
        if not sample:
            options["temperature"] = 0
        ids = self.tok_encode(context)[-(self.max_length - n):]
        if self._share:
            with self.model.generate(ids, max_tokens=n, stop=until[:16], **options) as answer:
                text = "".join(token.text for token in answer)
        else:
            with self.model.session(self.max_length) as session:
                session.sync(ids)
                with session.generate(max_tokens=n, stop=until[:16], **options) as answer:
                    text = "".join(token.text for token in answer)
        for stop in until[16:]:  # more than reel takes at once
            text = text.split(stop)[0]
        return text


def main() -> None:
    """lm_eval's own command, with the model "reel"."""
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()


if __name__ == "__main__":
    main()
