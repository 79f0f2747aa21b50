"""What this machine has, what is in a model file, how work would be shared."""
from __future__ import annotations

import json
import os
from typing import Any, Dict, Optional, Union

from ._library import NULL, Keeper, call, ffi, lib, sized, taken_text
from ._model import Model
from ._names import find_model
from ._session import Progress

Name = Union[str, "os.PathLike[str]"]


def _path(value: Optional[Name]) -> Optional[str]:
    return None if value is None else os.fspath(value)


def devices(*, cuda_dir: Optional[Name] = None, nvrtc_dir: Optional[Name] = None) -> Dict[str, Any]:
    """What this machine has: "cpu" (cores, paths, memory), "gpus" (name, memory, versions, whether reel
    can use it) and "notes" (what is missing, what to do)."""
    keeper, options = Keeper(), sized("reel_devices_options")
    options.cuda_dir = keeper.text(_path(cuda_dir), "path")
    options.nvrtc_dir = keeper.text(_path(nvrtc_dir), "path")
    out = ffi.new("char **")
    call(lib.reel_devices, options, out)
    made: Dict[str, Any] = json.loads(taken_text(out[0]))
    return made


def inspect(name: Name, *, pull: bool = False) -> Dict[str, Any]:
    """What is in a model file, without reading its weights: "config", "tensors", "tokenizer", "memory"."""
    keeper, out = Keeper(), ffi.new("char **")
    call(lib.reel_model_inspect, keeper.text(find_model(name, pull), "path"), out)
    made: Dict[str, Any] = json.loads(taken_text(out[0]))
    return made


def plan(name: Name, *, gpu: Optional[str] = None, gpu_options: Optional[str] = None,
         kv: Optional[str] = None, n_gpus: int = 1, pull: bool = False) -> str:
    """How the model's work would be split over a GPU's multiprocessors, as text for people.

    Args:
        gpu: None for the first GPU of this machine, or a name such as "h200" or "rtx4090".
        kv: "bf16", "int8" or "fp8": how sessions would keep keys and values. None: bf16.
        n_gpus: how many such GPUs share the model.
    """
    keeper, out, options = Keeper(), ffi.new("char **"), sized("reel_plan_options")
    options.gpu = keeper.text(gpu, "gpu")
    options.gpu_options = keeper.text(gpu_options, "gpu_options")
    options.kv = keeper.text(kv, "kv")
    options.n_gpus = n_gpus
    call(lib.reel_model_plan_with, keeper.text(find_model(name, pull), "path"), options, out)
    return taken_text(out[0])


def quantize(name: Name, folder: Name, weights: str = "int8", *, pull: bool = False, n_threads: int = 0,
             shard_bytes: int = 0, progress: Optional[Progress] = None) -> Dict[str, Any]:
    """Opens a model on the CPU and writes it quantised into a new folder; see `Model.quantize`."""
    with Model(name, "cpu", pull=pull, n_threads=n_threads) as model:
        return model.quantize(folder, weights, n_threads=n_threads, shard_bytes=shard_bytes,
                              progress=progress)


def synthesize(folder: Name, shape: str, *, seed: int = 0, progress: Optional[Progress] = None) -> None:
    """Writes a model folder of synthetic weights in a named shape, or that of a config.json."""
    from ._library import Listener, check, on_progress

    keeper, listener = Keeper(), Listener()
    listener.progress = progress
    err = ffi.new("struct reel_error *")
    status = lib.reel_synthesize(keeper.text(os.fspath(folder), "path"), keeper.text(shape, "shape"),
                                 seed, on_progress, listener.handle, err)
    listener.raise_caught()
    check(status, err)
