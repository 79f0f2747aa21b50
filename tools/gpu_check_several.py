"""Steps of tools/gpu_check.py: what a model makes on several GPUs (--device gpu:0,1) beside what one of them makes."""
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import reel_ctypes as reel
from gpu_check_base import digest, first_difference, gpus_of, last_logits
from gpu_check_models import token_ids

# The same groups of SMs on several GPUs and on one: sums are formed in the same order. Prompts are decoded, because
# those that are read otherwise add up parts of each GPU.
SAME_GROUPS = {
    "full": "n_groups=8,group_sms=16,prefill_from=0",
    "sim": "n_groups=2,group_sms=2,warps=4,prefill_from=0",
}
FORMS = {
    "full": ({}, {"kv": "int8"}, {"kv": "fp8"}, {"weights": "int8"}, {"weights": "int4"}, {"weights": "fp8"}),
    "sim": ({}, {"kv": "int8"}),
}
TEMPERATURES = (0, 0.9)
SPECULATION_OFF, SPECULATION_NGRAM = 1, 2


def several_gpus(check):
    """False, said in a row, on one GPU."""
    fine = len(gpus_of(check)) > 1 and check.args.size in FORMS
    if not fine:
        check.row("", "skipped", "only on several GPUs, of --size full or sim")
    return fine


def form_name(form):
    return " ".join(f"{key} {value}" for key, value in form.items()) or "as stored"


def opened(check, device, form):
    return check.library.open(check.main_model(), device=device, gpu_options=SAME_GROUPS[check.args.size],
                              cache_dir=str(check.cache), **form)


def together(model, prompts, n):
    """A session for each prompt, each in a thread of its own: their tokens share passes."""
    made = [None] * len(prompts)

    def run(i):
        with model.session(len(prompts[i]) + n + 1) as session:
            session.sync(prompts[i])
            made[i] = session.generate(n, speculation=SPECULATION_OFF)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(prompts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return made


def results(model, n, long):
    """What is made on one kind of device: ids and logits that must be the same on all."""
    found, prompt = {}, token_ids(20, model.vocab)
    with model.session(long + n + 2) as session:
        session.sync(token_ids(long, model.vocab))
        for temperature in TEMPERATURES:
            session.truncate(long)
            found[f"ids at temperature {temperature}"] = session.generate(
                n, temperature=temperature, seed=3, speculation=SPECULATION_OFF)
        found["last logits"] = digest(last_logits(session))
        found["snapshot"] = digest(bytearray(session.snapshot()))
        again = np.resize(prompt, long)
        session.sync(again)
        session.truncate(long)
        result = []
        found["ids with guesses"] = session.generate(n, result=result, speculation=SPECULATION_NGRAM)
        session.truncate(long)
        found["ids without"] = session.generate(n, speculation=SPECULATION_OFF)
    prompts = [token_ids(7 + i, model.vocab, 100 * i) for i in range(4)]
    found["ids alone"] = [together(model, [p], n)[0] for p in prompts]
    found["ids together"] = together(model, prompts, n)
    return found, result[1]


def moved(check, case, source, target, n, long):
    """A session that is saved here and goes on there."""
    with source.session(long + n + 1) as session, target.session(long + n + 1) as other:
        session.sync(token_ids(long, source.vocab))
        session.generate(3)
        snapshot = session.snapshot()
        whole = session.generate(n - 3)
        other.restore(snapshot)
        made = other.generate(n - 3)
        check.row(case, made == whole, first_difference(made, whole))


def one_form(check, form, one, n, long):
    name = form_name(form)
    with opened(check, check.args.device, form) as several, opened(check, one, form) as alone:
        ours, accepted = results(several, n, long)
        theirs, _ = results(alone, n, long)
        for case, wanted in theirs.items():
            words = first_difference(ours[case], wanted) if isinstance(wanted, list) else (
                "the same" if ours[case] == wanted else "they differ")
            check.row(f"{name}: {case}", ours[case] == wanted, words)
        check.row(f"{name}: guesses", ours["ids with guesses"] == ours["ids without"],
                  f"{first_difference(ours['ids with guesses'], ours['ids without'])}, {accepted} were right")
        check.row(f"{name}: four at once", ours["ids together"] == ours["ids alone"],
                  first_difference(ours["ids together"], ours["ids alone"]))
        moved(check, f"{name}: from several to one", several, alone, n, long)
        moved(check, f"{name}: from one to several", alone, several, n, long)


def several(check):
    if not several_gpus(check):
        return
    n, long = check.size["tokens"], min(check.size["long"], 200)
    one = f"gpu:{gpus_of(check)[0]}"
    forms = FORMS[check.args.size]
    check.main_model()
    with ThreadPoolExecutor(12) as pool:  # kernels are compiled here, side by side
        list(pool.map(lambda case: opened(check, *case).close(),
                      [(device, form) for form in forms for device in (check.args.device, one)]))
    for form in forms:
        try:
            one_form(check, form, one, n, long)
        except reel.ReelError as e:
            check.row(form_name(form), "refused" if e.status == reel.UNSUPPORTED else False, str(e))
