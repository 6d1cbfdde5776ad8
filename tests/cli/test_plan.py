"""``coresim plan``: a process that is killed and a cluster that cannot run tasks are told."""

from __future__ import annotations

import os
import sys
from concurrent.futures import Executor, Future
from types import SimpleNamespace
from typing import Any

import pytest
from faulty import told

from coresim.cli.plan import _processes
from coresim.errors import CoresimError

pytestmark = pytest.mark.usefixtures("folder")


def test_a_process_of_a_plan_that_is_killed_is_told() -> None:
    words = "a process that simulates was killed; is memory short"
    with pytest.raises(CoresimError, match=words), _processes(1) as own:
        own.submit(os._exit, 9).result()


class Failing(Executor):
    """A cluster on which every task fails."""

    def submit(self, *_: Any, **__: Any) -> Future[Any]:  # type: ignore[override]
        found: Future[Any] = Future()
        found.set_exception(ModuleNotFoundError("No module named 'coresim'"))
        return found


class Client:
    """What is used of ``distributed.Client``."""

    def __init__(self, address: str, timeout: str) -> None:
        self.get_executor = Failing

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def test_a_cluster_that_cannot_run_tasks_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", SimpleNamespace(Client=Client))  # type: ignore[arg-type]
    code, out, last = told(capsys, "plan", "F", "--scheduler", "tcp://there:1", "--results", "rows.csv")
    assert (code, out) == (1, "")
    assert last.startswith("coresim: --scheduler tcp://there:1: the cluster failed: ModuleNotFoundError: No module")
