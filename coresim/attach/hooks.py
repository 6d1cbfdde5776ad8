"""What is changed in the user's process: the loader's iterator, and a hook that torch's optimizers call.

The iterator's ``__next__`` is wrapped and nothing else of it: no type, no start method, no signal is changed.
``_BaseDataLoaderIter.__next__`` sees every loader that is built on torch's, whoever iterates it.
"""

from __future__ import annotations

import functools
import sys
from types import ModuleType
from typing import Any

from coresim.attach.phases import Rank
from coresim.attach.session import Folder


def install(folder: str, module: ModuleType) -> None:
    """Hook the loader's module, just imported; everything else is found when a loop begins."""
    session = Folder(folder)
    hook_iterators(module, Rank(session, session.read_plan()))


def hook_iterators(module: ModuleType, rank: Rank) -> None:
    """Tell the rank of every iterator that begins and of every batch that is asked for."""
    base = module._BaseDataLoaderIter
    begin, inner = base.__init__, base.__next__

    @functools.wraps(begin)
    def __init__(self: Any, loader: Any, *args: Any, **options: Any) -> None:
        # A copy, because an iterator that holds its loader may hold itself, and would then never end its workers.
        self._coresim_loader = twin(loader)
        begin(self, loader, *args, **options)

    @functools.wraps(inner)
    def __next__(self: Any) -> Any:
        if not rank.hooked:
            rank.hooked = hook_optimizers(rank)
        return rank.fetch(self, inner)

    base.__init__, base.__next__ = __init__, __next__


def twin(loader: Any) -> Any:
    """A loader of the same class with the same attributes and no iterator."""
    copy = object.__new__(type(loader))
    copy.__dict__.update(loader.__dict__)
    copy.__dict__["_iterator"] = None
    return copy


def hook_optimizers(rank: Rank) -> bool:
    """Count the steps of all optimizers of the process; whether torch's optimizers are there to be hooked."""
    optimizers = sys.modules.get("torch.optim.optimizer")
    if optimizers is None:
        return False

    def stepped(*_: Any) -> None:
        rank.steps += 1

    optimizers.register_optimizer_step_post_hook(stepped)
    return True
