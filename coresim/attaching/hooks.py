"""The changes in the user's process: hooks in the loader's iterator, and one that torch's optimizers call.

Only the iterator's ``__init__`` and ``__next__`` are wrapped: no type, no start method, no signal is changed.
``_BaseDataLoaderIter.__next__`` sees every loader that is built on torch's, in every framework. Sockets that
multiprocessing opens lie in the session's folder.
"""

from __future__ import annotations

import atexit
import functools
import multiprocessing.process
import os
from collections.abc import Callable
from operator import methodcaller
from types import ModuleType
from typing import Any

from coresim.attaching.foreign import hook_call, parts_of
from coresim.attaching.rank import AttachedRank
from coresim.attaching.session import Folder
from coresim.attaching.trials import twin

#: The longest path of a Unix socket, bytes (sun_path in linux/un.h, less its end).
SOCKET_PATH = 107


def install(folder: str, module: ModuleType) -> None:
    """Hook the loader's module, just imported; everything else is found when a loop begins."""
    session = Folder(folder)
    keep_sockets(session)
    plan = session.read_plan()
    if plan.hook is None:
        base = module._BaseDataLoaderIter
        rank = AttachedRank(session, plan, base.__next__)
        hook(base, rank)
    else:
        name, path = parts_of(plan.hook)
        if module.__name__ != name:
            return
        rank = AttachedRank(session, plan, methodcaller("call"))
        hook_call(module, path, rank)
    atexit.register(rank.end)


def keep_sockets(session: Folder) -> None:
    """Let multiprocessing open its sockets in the session's folder: workers that are ended would leave theirs."""
    room = session.path / "sockets"
    if len(os.fsencode(room)) + len("/listener-12345678") <= SOCKET_PATH:
        room.mkdir(mode=0o700, exist_ok=True)
        multiprocessing.process.current_process()._config.setdefault("tempdir", str(room))  # type: ignore[attr-defined]


def hook(base: Any, rank: AttachedRank) -> Callable[[], None]:
    """Report every new iterator and every request for a batch to the rank; return what undoes the hook."""
    begin, inner = base.__init__, base.__next__

    @functools.wraps(begin)
    def __init__(self: Any, loader: Any, *args: Any, **options: Any) -> None:
        # A copy, because an iterator that holds its loader may hold itself, and would then never end its workers.
        if not rank.aside:
            self._coresim_loader = twin(loader)
        began = rank.clock()
        begin(self, loader, *args, **options)
        self._coresim_made_s = rank.clock() - began

    @functools.wraps(inner)
    def __next__(self: Any) -> Any:
        if rank.aside:
            return inner(self)
        if not rank.counted:
            rank.count_steps()
        return rank.fetch(self)

    def undo() -> None:
        # Another tool may have wrapped what we did; then it is left, and does nothing more.
        if base.__next__ is __next__:
            base.__init__, base.__next__ = begin, inner
        for handle in rank.counted:
            handle.remove()

    base.__init__, base.__next__ = __init__, __next__
    return undo
