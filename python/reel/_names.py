"""What a user calls a model, as a path that the library opens: the rules of the command `reel`."""
from __future__ import annotations

import importlib.util
import os
import re
import subprocess
from pathlib import Path
from typing import Iterator, List, Optional, Tuple, Union

from ._errors import error_of
from ._library import PACKAGE, lib

_PART = r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,95}"
_REPO = re.compile(rf"{_PART}/{_PART}\Z")
_WHAT = re.compile(r"[A-Za-z0-9_+=@,()\[\]~ .-]{1,200}\Z")
_PARTS = re.compile(r"-\d{5}-of-\d{5}\Z")
_QUANTISATION = re.compile(r"(?:MXFP|NVFP|IQ|TQ|BF|FP|Q|F)\d", re.I)
_DEMOS = {"demo": ("demo", "reel_demo"), "demo-speech": ("speech", "reel_demo_speech")}


def _absolute(variable: str) -> Optional[Path]:
    value = os.environ.get(variable, "")
    return Path(value) if value.startswith("/") else None


def cache_folder() -> Optional[Path]:
    """The folder of reel's cache: $XDG_CACHE_HOME/reel or ~/.cache/reel; None where there is no home."""
    base = _absolute("XDG_CACHE_HOME")
    if base is not None:
        return base / "reel"
    home = _absolute("HOME")
    return home / ".cache" / "reel" if home is not None else None


def _hugging_face_folder() -> Optional[Path]:
    hub = _absolute("HF_HUB_CACHE")
    if hub is not None:
        return hub
    home = _absolute("HF_HOME")
    if home is not None:
        return home / "hub"
    own = cache_folder()
    return own.parent / "huggingface" / "hub" if own is not None else None


def parse_name(name: str) -> Optional[Tuple[str, Optional[str]]]:
    """("OWNER/NAME", what stands behind the colon) of a hub's name; None where it is none."""
    repo, colon, what = name.partition(":")
    if not _REPO.match(repo) or len(repo) >= 200:
        return None
    if not colon:
        return repo, None
    parts = what.split("/")
    good = len(what) <= 800 and all(_WHAT.match(part) and part[0] != "." for part in parts)
    return (repo, what) if good else None


def _stem(path: str) -> str:
    base = path.rsplit("/", 1)[-1]
    return _PARTS.sub("", base[:-5] if base.endswith(".gguf") else base)


def _label(path: str) -> str:
    """ "Q4_K_M" of "sub/Model-Q4_K_M.gguf"; the stem where it ends in no quantisation."""
    stem = _stem(path)
    last = re.split(r"[-.]", stem)[-1]
    return last if _QUANTISATION.match(last) else stem


def _match(path: str, what: str) -> int:
    """How well `what` names a GGUF file; 0: not at all."""
    stem, word = _stem(path).lower(), what.lower()
    if path == what:
        return 5
    if path.rsplit("/", 1)[-1] == what:
        return 4
    if _label(path).lower() == word:
        return 3
    if stem == word:
        return 2
    return int(stem.endswith(word) and stem[: -len(word)][-1:] in ("-", ".", "_"))


def _files(folder: Path, below: str = "", depth: int = 0) -> Iterator[str]:
    if depth >= 8:
        return
    for entry in sorted(os.listdir(folder / below)):
        if entry.startswith("."):
            continue
        path = f"{below}/{entry}" if below else entry
        if (folder / path).is_dir():
            yield from _files(folder, path, depth + 1)
        else:
            yield path


def _is_companion(path: str) -> bool:
    base = path.rsplit("/", 1)[-1]
    return base.lower().startswith("mmproj") or "imatrix" in base


def _argument(text: str) -> Exception:
    return error_of(lib.REEL_E_ARGUMENT, text)


def _pick(folder: Path, repo: str, what: Optional[str]) -> Optional[Path]:
    """What a name means in its repository's folder."""
    if what is None and (folder / "config.json").exists():
        return folder
    if what is not None and (folder / what / "config.json").exists():
        return folder / what
    found = [path for path in _files(folder) if len(path.rsplit("/", 1)[-1]) > 5
             and path.endswith(".gguf") and not _is_companion(path)]
    levels = {path: 1 if what is None else _match(path, what) for path in found}
    best = max(levels.values(), default=0)
    chosen = sorted(path for path, level in levels.items() if level == best and best > 0)
    if len(chosen) > 1:
        labels = ", ".join(_label(path) for path in found)
        raise _argument(f"{repo}: which one? There are {labels}; name it as {repo}:QUANTISATION, "
                        f"or by its path in {folder}")
    return folder / chosen[0] if chosen else None


def _snapshot(cache: Path, repo: str) -> Optional[Path]:
    folder = cache / f"models--{repo.replace('/', '--')}"
    snapshots = folder / "snapshots"
    if not snapshots.is_dir():
        return None
    try:
        commit = (folder / "refs" / "main").read_text().split("\n", 1)[0].rstrip("\r")
    except OSError:
        commit = ""
    if re.fullmatch(r"[0-9a-f]+", commit):
        return snapshots / commit if (snapshots / commit).exists() else None
    names = sorted(name for name in os.listdir(snapshots) if not name.startswith("."))
    if len(names) > 1:
        raise _argument(f"{snapshots}: holds {len(names)} snapshots and no refs/main; name a folder "
                        "inside it")
    return snapshots / names[0] if names else None


def _enter(path: Path) -> Path:
    """A folder that holds one GGUF file and no config.json becomes that file."""
    if not path.is_dir() or (path / "config.json").exists():
        return path
    names = sorted(name for name in os.listdir(path)
                   if not name.startswith(".") and len(name) > 5 and name.endswith(".gguf"))
    if len(names) > 1:
        raise _argument(f"{path}: holds {len(names)} .gguf files; name one, such as {path}/{names[0]}")
    return path / names[0] if names else path


def demo_folder(name: str) -> Path:
    """The folder of "demo" or "demo-speech"."""
    folder, module = _DEMOS[name]
    places = [PACKAGE / "models" / folder, PACKAGE.parent.parent / "models" / folder,
              Path("/usr/share/reel/models") / folder]
    found = importlib.util.find_spec(module)
    if found is not None and found.origin is not None:
        places.insert(0, Path(found.origin).parent)
    for place in places:
        if (place / "model.safetensors").exists():
            return place
    more = "; the wheel reel-demo-speech brings it (make wheel)" if name == "demo-speech" else ""
    raise error_of(lib.REEL_E_NOT_FOUND, f"{name}: this package came without that model{more}")


def command() -> List[str]:
    """The command `reel` to run: $REEL_COMMAND, the package's own, or that of the search path."""
    import shutil

    own = PACKAGE / "bin" / "reel"
    found = os.environ.get("REEL_COMMAND") or (str(own) if own.exists() else shutil.which("reel"))
    if not found:
        raise error_of(lib.REEL_E_NOT_FOUND,
                       "reel: there is no such command in this package nor on the search path")
    return [found]


def _pull(name: str) -> None:
    done = subprocess.run(command() + ["pull", name], stdin=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        text = said[-1] if said else f"reel pull ended with {done.returncode}"
        raise error_of(done.returncode, text[6:] if text.startswith("reel: ") else text)


def find_model(name: Union[str, "os.PathLike[str]"], pull: bool = False) -> str:
    """The path of the model that `name` means.

    A file or folder; ``"OWNER/NAME"`` or ``"OWNER/NAME:QUANTISATION"`` in reel's own cache or in that
    of Hugging Face's programs; ``"demo"``, ``"demo-speech"``. With `pull` what is in neither cache is
    fetched by the command ``reel pull``.
    """
    text = os.fspath(name)
    if not isinstance(text, str):
        raise TypeError(f"a model's name is a str or a path, not {type(name).__name__}")
    if text in _DEMOS and not isinstance(name, os.PathLike):
        return str(demo_folder(text))
    if os.path.exists(text):
        return str(_enter(Path(text)))
    hub = parse_name(text)
    pullable = hub is not None and (hub[1] is not None or not text.endswith((".gguf", ".safetensors")))
    for _ in range(2 if pull and pullable else 1):
        found = _find_in_caches(*hub) if hub is not None else None
        if found is not None:
            return str(found)
        if pull and pullable:
            _pull(text)
    if pullable:
        raise error_of(lib.REEL_E_NOT_FOUND,
                       f"{text}: neither a file nor a folder nor in the local cache; fetch it with "
                       f"pull=True, or with the command: reel pull {text}")
    raise error_of(lib.REEL_E_NOT_FOUND, f"{text}: no such file or folder")


def _find_in_caches(repo: str, what: Optional[str]) -> Optional[Path]:
    own, other = cache_folder(), _hugging_face_folder()
    found = None
    if own is not None and (own / "models" / repo).is_dir():
        found = _pick(own / "models" / repo, repo, what)
    if found is None and other is not None:
        folder = _snapshot(other, repo)
        found = _pick(folder, repo, what) if folder is not None else None
    return found
