"""Steps of tools/gpu_check.py: families other than the main one, at their published sizes, and repositories
in the layouts of published ones."""
import json
import lzma
import shutil
import subprocess

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


REPOSITORIES = ROOT / "tests" / "fixtures" / "repositories"
TEXT = "The cat sat on 12 mats, and then it went."


def laid_out(check, name):
    """A repository of the tests with its weights, as tests/cli/test_repositories.c makes it; or a GGUF file."""
    packed = REPOSITORIES / "gguf" / f"{name}.xz"
    folder = check.models / f"repository-{name}"
    if packed.exists():
        folder = folder.with_suffix(".gguf")
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.write_bytes(lzma.decompress(packed.read_bytes()))
        return folder
    made = synthesized(check.args.reel, folder, REPOSITORIES / name / "config.json", 1)
    for path in sorted((REPOSITORIES / name).rglob("*")):
        to = made / path.relative_to(REPOSITORIES / name)
        if path.is_dir():
            to.mkdir(exist_ok=True)
        elif path.suffix == ".xz":
            to.with_suffix("").write_bytes(lzma.decompress(path.read_bytes()))
        else:
            shutil.copyfile(path, to)
    return made


def repositories(check):
    """Logits within the bound of rounding, and the vector of a text as transformers has it in float32."""
    wanted = json.loads((REPOSITORIES / "expected.json").read_text())
    names = [*wanted, *(path.name.removesuffix(".xz") for path in sorted((REPOSITORIES / "gguf").iterdir()))]
    device = ["--device", check.args.device]
    for name in names if check.args.size == "full" else names[1:2]:
        model = laid_out(check, name)
        done = subprocess.run([check.args.reel, "verify", model, "-n", "4", *device], capture_output=True, text=True)
        words = next((line for line in done.stdout.splitlines() if line.startswith("reference")), done.stderr.strip())
        check.row(f"{name}: logits", done.returncode == 0, " ".join(words.split())[-200:])
        done = subprocess.run([check.args.reel, "embed", model, TEXT, "-c", "512", *device], capture_output=True,
                              text=True)
        if done.returncode != 0:
            check.row(f"{name}: embed", False, done.stderr.strip()[-200:])
            continue
        made = json.loads(done.stdout)["embeddings"][0]["embedding"]
        cosine = sum(a * b for a, b in zip(made, wanted[name.removesuffix(".gguf")]["embedding"]))
        least = 0.999 if name == "qwen3.5" else 0.9999  # bf16 moves DeltaNets of random weights further
        check.row(f"{name}: embed", cosine >= least, f"cosine {cosine:.6f} to transformers in float32")
