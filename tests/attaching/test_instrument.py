"""The calibration of a program's own loader: parts that contradict its batches, and a stream of few files."""

from __future__ import annotations

from typing import Any

import pytest

from coresim.attaching.instrument import calibrate
from coresim.errors import CoresimError, InputError

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")


class OneReader(torch.utils.data.IterableDataset[Any]):
    """A stream of one file: a second worker has none."""

    def __iter__(self) -> Any:
        worker = torch.utils.data.get_worker_info()
        if worker is not None and worker.num_workers > 1:
            raise ValueError("fewer files than workers")
        return iter(range(10**6))


def test_a_program_s_loader_whose_parts_contradict_its_batches_is_run_again_and_then_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from coresim.measure import calibrate as measuring
    from coresim.measure import costs, trust

    ran, kept, usual = [], [], measuring.calibrate
    loader = torch.utils.data.DataLoader(torch.zeros(512, 4), 4)

    def calibrated(*given: Any, **named: Any) -> Any:
        ran.append(usual(*given, **named))
        return ran[-1]

    monkeypatch.setattr(measuring, "calibrate", calibrated)
    monkeypatch.setattr(costs, "measurements", lambda found: kept.append(found) or [])
    for missed, times in ((0.2, 1), (0.9, 2), (-0.3, 2)):
        ran.clear()
        monkeypatch.setattr(trust, "contradiction", lambda found, missed=missed: missed if found is ran[0] else 0.1)
        calibrate(loader, workers=1, pin_memory=False, budget_s=0.3)
        assert len(ran) == times and kept[-1] is ran[-1]
    ran.clear()
    monkeypatch.setattr(trust, "contradiction", lambda found: 0.9)
    with pytest.raises(CoresimError, match="90% longer than the sum of their parts"):
        calibrate(loader, workers=1, pin_memory=False, budget_s=0.3)
    assert len(ran) == trust.TIMES


def test_a_stream_that_takes_no_more_workers_is_run_with_those_that_it_has() -> None:
    loader = torch.utils.data.DataLoader(OneReader(), 4)
    found = calibrate(loader, workers=1, pin_memory=False, budget_s=0.5)
    assert {measured["name"] for measured in found["measurements"]} >= {"prepare.sample", "scaling.1"}
    what, value, _ = found["warnings"][0]
    assert what == "the loader failed with more workers than the program's 1" and "fewer files than workers" in value
    with pytest.raises(InputError, match="fewer files than workers"):
        calibrate(loader, workers=0, pin_memory=False, budget_s=0.5)
