"""Workloads and functions by their names: ``package.module:name``, or ``path/to/train-file.py:name``.

A name may stand for a data set, a DataLoader, a LightningDataModule, or a callable that gives one. If the call turns
out to train, coresim stops it at its first loader.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coresim.errors import InputError
from coresim.workloads.base import DatasetWorkload, Workload, blamed, describe

_LOADER = "torch.utils.data.dataloader"


class TrainsError(InputError):
    """A call that should give a data set iterates a DataLoader: it is a program that trains."""


class _Iterated(BaseException):
    """Raised where a loader is iterated; no ``except Exception`` of the user's code stops it."""


@dataclass(frozen=True)
class WorkloadSpec:
    """How a fresh process builds the workload: plain data, so that it can be sent to one."""

    target: str  # a `Workload` class, a data set, loader or data module, or what gives one of these when it is called
    folder: str = "."  # where a workload keeps the data that it makes
    batch_size: int | None = None  # the workload's own where None
    collate: str | None = None  # the user's collate function
    worker_init: str | None = None  # what each worker calls when it starts

    @property
    def is_own(self) -> bool:
        """Whether it is the user's, and not one of ours, which trains nothing and may do without torch."""
        return not self.target.startswith("coresim.")

    def load(self) -> Any:
        """Import what ``target`` names.

        Raises:
            InputError: it cannot be imported, or is of no use; TrainsError: it trains while it is imported.
        """
        with _not_training(self.target) if self.is_own else nullcontext():
            return load_name(self.target, "dataset")

    def build(self) -> Workload:
        """Import and build the workload.

        Raises:
            InputError: something cannot be imported or called, is no workload, or is empty.
            TrainsError: it iterates a DataLoader.
        """
        found = self.load()
        for flag, value in {"--collate": self.collate, "--worker-init": self.worker_init}.items():
            if value is not None and _is_workload(found):
                raise InputError(
                    f"{flag} {value}: it goes with a data set, and {found.__name__} is a workload; leave it out"
                )
        workload = found(Path(self.folder)) if _is_workload(found) else self._dataset(found)
        if self.is_own and _is_workload(found):
            _guarded(workload.make, self.target, "its make is called to write its data")
        if self.batch_size is not None:
            if self.batch_size < 1:
                raise InputError(f"batch size = {self.batch_size}: at least 1 is needed")
            workload.batch_size = self.batch_size
        if len(workload) == 0:
            raise InputError(f"{self.target}: the dataset is empty (len 0); point it at at least one sample")
        return workload

    def make(self) -> None:
        """Let a built-in workload write its data into ``folder``; a user's own writes it when it is built."""
        self.load()(Path(self.folder)).make()

    def _dataset(self, found: Any) -> Workload:
        collate = load_object(self.collate, "collate function") if self.collate else None
        worker_init = load_object(self.worker_init, "worker init function") if self.worker_init else None
        made = _made(found, self.target)
        if not _is_loader(made):
            return DatasetWorkload(made, self.target, collate, worker_init)
        size = getattr(made.batch_sampler, "batch_size", None) or made.batch_size
        if made.batch_sampler is not None and not (size or self.batch_size):
            raise InputError(
                f"{self.target}: its batch sampler names no batch_size; say --batch-size, or name one there"
            )
        own = (collate, worker_init) == (None, None) and self.batch_size in (None, size)
        workload = DatasetWorkload(
            made.dataset,
            self.target,
            collate or made.collate_fn,
            worker_init or made.worker_init_fn,
            made if own else None,
        )
        workload.batch_size, workload.settings = int(size or 1), _settings(made)
        workload.context = made.multiprocessing_context
        return workload


def _is_workload(found: Any) -> bool:
    return isinstance(found, type) and issubclass(found, Workload)


def _made(found: Any, target: str) -> Any:
    """The data set or loader that a name gives."""
    data = any(hasattr(found, name) for name in ("__getitem__", "__iter__", "train_dataloader"))
    if data and not isinstance(found, type):
        made = found
    elif not callable(found):
        kind = type(found).__name__
        raise InputError(f"dataset {target!r}: of type {kind}; name a data set, or a function or class that gives one")
    else:
        made = _guarded(found, target, "it is called without arguments and must return a dataset")
    if not hasattr(made, "train_dataloader"):
        return made
    loader = _guarded(lambda: _loader_of(made), target, "prepare_data, setup and train_dataloader are called")
    if not _is_loader(loader):
        raise InputError(f"{target}: train_dataloader gives a {type(loader).__name__}; name what gives one DataLoader")
    return loader


def _loader_of(module: Any) -> Any:
    """The training loader of a LightningDataModule, or of anything with its methods."""
    if hasattr(module, "prepare_data"):
        module.prepare_data()
    if hasattr(module, "setup"):
        module.setup("fit")
    return module.train_dataloader()


def _is_loader(made: Any) -> bool:
    data = sys.modules.get("torch.utils.data")
    return data is not None and isinstance(made, data.DataLoader)


def _settings(loader: Any) -> dict[str, Any]:
    """The settings of a loader as it is today."""
    context, torch = loader.multiprocessing_context, sys.modules["torch"]
    devices = getattr(torch, "accelerator", torch.cuda)  # before torch 2.6 it pinned for CUDA alone
    return {
        "workers": loader.num_workers,
        "prefetch_factor": loader.prefetch_factor,
        "pin_memory": bool(loader.pin_memory),
        "can_pin": bool(devices.is_available()),
        "persistent_workers": bool(loader.persistent_workers),
        "in_order": bool(getattr(loader, "in_order", True)),
        "context": None if context is None else context.get_start_method(),
    }


def _guarded(call: Callable[[], Any], target: str, remedy: str) -> Any:
    with blamed(target, remedy), _not_training(target):
        return call()


@contextmanager
def _not_training(target: str) -> Iterator[None]:
    """Stop what iterates a loader meanwhile."""
    if importlib.util.find_spec("torch") is None:
        yield
        return
    base: Any = importlib.import_module(_LOADER)._BaseDataLoaderIter
    begin = base.__init__

    def stop(iterator: Any, *_: Any, **__: Any) -> None:
        iterator._shutdown = True  # it has no workers to end
        raise _Iterated

    base.__init__ = stop
    try:
        yield
    except _Iterated:
        raise TrainsError(
            f"{target} iterates a DataLoader: it trains; give your program after --, such as -- python train.py"
        ) from None
    finally:
        base.__init__ = begin


def load_object(spec: str, what: str) -> Callable[..., Any]:
    """The callable that a name stands for; see `load_name`.

    Raises:
        InputError: as `load_name`, or not callable.
    """
    found = load_name(spec, what)
    if not callable(found):
        kind = type(found).__name__
        raise InputError(f"{what} {spec!r}: of type {kind}, which cannot be called; name a function or a class")
    return found  # type: ignore[no-any-return]


def load_name(spec: str, what: str) -> Any:
    """What ``package.module:name`` or ``path/to/file.py:name`` names; the current folder, or the file's, is searched.

    Raises:
        InputError: no colon, no such module, file or name, or an import that raises.
    """
    module_name, colon, attribute = spec.rpartition(":")
    if not (module_name and colon and attribute):
        raise InputError(
            f"{what} {spec!r}: not of the form package.module:name; write for example my_data:make, or train.py:make"
        )
    is_file = module_name.endswith(".py")
    folder = str(Path(module_name).resolve().parent) if is_file else os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    module = (_from_file if is_file else _import)(module_name, f"{what} {spec!r}")
    found = getattr(module, attribute, None)
    if found is None:
        raise InputError(f"{what} {spec!r}: {module_name} has no {attribute!r}; check the name after the colon")
    return found


def _import(module_name: str, where: str) -> Any:
    try:
        return importlib.import_module(module_name)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}."):
            raise InputError(f"{where}: no module {error.name!r} here; run from the folder that holds it") from None
        raise InputError(f"{where}: importing {module_name} raised {describe(error)}; fix that first") from error


def _from_file(path: str, where: str) -> Any:
    """A script as a module; its name need not be one that Python can import."""
    name = Path(path).stem
    place = str(Path(path).resolve())
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) == place:
        return known
    if not Path(path).is_file():
        raise InputError(f"{where}: no file {path!r} here; check the path before the colon")
    spec = importlib.util.spec_from_file_location(name, place)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if not isinstance(error, Exception):
            raise
        raise InputError(f"{where}: running {path} raised {describe(error)}; fix that first") from error
    return module
