"""Loaders that are not torch's: the user names the call that gives a batch, which counts as ``__next__``."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import ModuleType
from typing import Any

from coresim.attaching.rank import AttachedRank
from coresim.errors import InputError


class Foreign:
    """What the phases need to know of an iterator; here almost nothing is known.

    ``owner`` is the object whose method is called, or the function; ``call`` gives the next batch.
    """

    _num_workers: int | None = None
    _prefetch_factor = None
    _pin_memory = _persistent_workers = False
    batch_size = batch_sampler = None
    _coresim_loop: Any = None

    def __init__(self, owner: Any, call: Callable[[], Any] = lambda: None) -> None:
        self._dataset = self._index_sampler = owner
        self._coresim_loader = self
        self.call = call


def parts_of(name: str) -> tuple[str, str]:
    """The module and the path of a hook ``pkg.mod:Class.method``.

    Raises:
        InputError: not of that form.
    """
    module, colon, path = name.partition(":")
    if not (module and colon and path):
        raise InputError(f"--loader-hook {name}: write pkg.mod:Class.method, the call that gives a batch")
    return module, path


def hook_call(module: ModuleType, path: str, rank: AttachedRank) -> None:
    """Replace the named call by ours; InputError if the module has no such call."""
    *outer, name = path.split(".")
    try:
        holder = functools.reduce(getattr, outer, module)
        own = getattr(holder, name)
    except AttributeError:
        raise InputError(f"--loader-hook: {module.__name__} has no {path}; check the name after the colon") from None
    setattr(holder, name, (_each if inspect.isgeneratorfunction(own) else _call)(own, rank))


def _call(own: Callable[..., Any], rank: AttachedRank) -> Callable[..., Any]:
    sources: dict[int, Foreign] = {}

    @functools.wraps(own)
    def call(*args: Any, **options: Any) -> Any:
        owner = args[0] if args else own
        source = sources.setdefault(id(owner), Foreign(owner))
        source.call = functools.partial(own, *args, **options)
        _stepped(rank)
        return rank.fetch(source)

    return call


def _each(own: Callable[..., Iterator[Any]], rank: AttachedRank) -> Callable[..., Iterator[Any]]:
    @functools.wraps(own)
    def each(*args: Any, **options: Any) -> Iterator[Any]:
        batches = own(*args, **options)
        source = Foreign(args[0] if args else own, functools.partial(next, batches))
        _stepped(rank)
        with suppress(StopIteration):
            while True:
                yield rank.fetch(source)

    return each


def _stepped(rank: AttachedRank) -> None:
    """Count optimizer steps where torch's are there; without them every named call is the training's."""
    if "torch.optim.optimizer" not in sys.modules:
        rank.steps += 1
    elif not rank.counted:
        rank.count_steps()
