"""Steps of tools/gpu_check.py: families other than the main one, at their published sizes."""
import shutil

from gpu_check_base import MINIATURES, ROOT, only_gpu
from gpu_check_models import synthesized
from gpu_check_prefill import Reference, read_lengths
from gpu_check_steps import logits_case, one_shape

SIZES = {
    "full": {"qwen2": "qwen2.5-0.5b", "windows": [(0, 160), (1000, 1032)], "lengths": (1, 2, 7, 16, 64, 300),
             "others": ("llama-3.2-1b", "tinyllama-1.1b", "qwen2.5-1.5b")},
    "tiny": {"qwen2": MINIATURES / "qw2-a.json", "windows": [(0, 40)], "lengths": (1, 16), "others": ()},
    "sim": {"qwen2": ROOT / "tests/sim/models/qw2-p.json", "windows": [(0, 6)], "lengths": (2, 17), "others": ()},
}


def qwen2_quick(check):
    """Biases of q, k and v: logits of decoded positions, and prompts with their keys and values."""
    size = SIZES[check.args.size]
    name = str(size["qwen2"])
    folder = synthesized(check.args.reel, check.models / name.rsplit("/", 1)[-1].removesuffix(".json"),
                         size["qwen2"], 1)
    logits_case(check, "decoded", folder, size["windows"])
    if only_gpu(check):
        read_lengths(check, Reference(check, folder, max(size["lengths"])), "prompts", size["lengths"], "")


def families(check):
    """Logits of the first positions of other shapes."""
    others = SIZES[check.args.size]["others"]
    if not others:
        check.row("", "skipped", "only in full size")
    for shape in others:
        one_shape(check, shape, shape, 0, [(0, 128)])
        if shape != "llama-3.2-1b":  # bench/gpu/families.sh has it too
            shutil.rmtree(check.models / shape, ignore_errors=True)
