"""Forks of the process that has the data set: what is done in them leaves no trace in it.

A process that has prepared samples prepares later ones faster, and so do the workers that are forked from it. After
twenty batches of JPEG pictures in the parent, a sample took its workers 3 to 6 % less CPU time
(`calibration/probe_forked.py`). A training's workers are forked from a trainer that has prepared nothing.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from coresim.errors import CoresimError, InputError
from coresim.measure.processes import DeathError, single_threaded
from coresim.measure.subject import PATIENCE
from coresim.measure.worker import leave_inherited
from coresim.workloads.base import describe

#: How long a fork may take to end, s.
STOP_S = 10.0


def run_forked(calls: Sequence[Callable[[], Any]], name: str) -> list[Any]:
    """Make each call in a fork of its own, all at once, and return the results; only in a process that may fork.

    ``name``: what errors call one of them.

    Raises:
        InputError: what a call raised.
        CoresimError: a call raised another error, died or hangs.
    """
    fork = multiprocessing.get_context("fork")
    links, processes = [], []
    try:
        for call in calls:
            mine, theirs = fork.Pipe(duplex=False)
            process = fork.Process(target=_live, args=(theirs, call, name))
            process.start()
            theirs.close()
            links.append(mine)
            processes.append(process)
        told = [_received(link, process, name) for link, process in zip(links, processes, strict=True)]
        for process in processes:
            process.join(STOP_S)
    finally:
        for process in processes:
            process.kill()
            process.join(STOP_S)
    # Where one fails, those that wait for it fail too: what began it is told.
    for kind in (InputError, DeathError, CoresimError):
        for one in told:
            if isinstance(one, kind):
                raise one
    return told


def _live(link: Connection, call: Callable[[], Any], name: str) -> None:
    single_threaded()
    leave_inherited()
    try:
        link.send(call())
    except CoresimError as error:
        link.send(type(error)(str(error)))
    except Exception as error:
        link.send(CoresimError(f"{name} raised {describe(error)}"))


def _received(link: Connection, process: BaseProcess, name: str) -> Any:
    if not link.poll(PATIENCE):
        return CoresimError(f"{name} said nothing for {PATIENCE:g} s, so it was stopped")
    try:
        return link.recv()
    except EOFError:
        process.join(STOP_S)
        return DeathError(f"{name} ended with exit code {process.exitcode}; is memory short?")
