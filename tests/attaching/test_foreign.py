"""A loader that is not torch's, by the call that gives a batch."""

from __future__ import annotations

import json

import pytest
from attach_kit import BATCH, TIMES, left_behind, script
from cli_kit import run as coresim

from coresim.attaching.phases import LEAST_PERIODS
from coresim.cli import attach as cli
from coresim.cli.main import main

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("quick_programs")]
pytest.importorskip("torch")


@pytest.mark.parametrize("name", ["batch", "stream"])
def test_a_loader_of_ones_own_by_the_call_that_gives_a_batch(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Short samples: a slow machine, too, comes to the fewest batches that count before a phase is given up.
    sample_s = 0.002
    monkeypatch.setenv("SAMPLE_S", str(sample_s))
    monkeypatch.setenv("STEP_S", "0.02")
    monkeypatch.setattr(cli, "_QUICK", TIMES)
    flags = ("recommend", "--quick", "--json", "--loader-hook", f"feeder:Feeder.{name}")
    assert main([*flags, "--", *script("own_loader.py", name)]) == 0
    told = json.loads(capsys.readouterr().out)
    # One thread prepares, so that a batch takes its CPU time, but for three that may be ready when the watch begins.
    assert told["wait_s"] + told["step_s"] >= (1 - 3 / LEAST_PERIODS) * BATCH * sample_s
    assert told["loader_cpu_s"] == pytest.approx(BATCH * sample_s, rel=0.3)
    share = told["wait_s"] / (told["wait_s"] + told["step_s"])
    assert told["gpu_idle_observed"] == pytest.approx(share, abs=0.02) and share > 0.0
    assert not left_behind("own_loader.py")


def test_a_hook_that_names_nothing_is_told() -> None:
    flags = ("recommend", "--loader-hook", "feeder:Feeder.no_such")
    done = coresim(*flags, "--", *script("own_loader.py", "batch"))
    assert done.returncode == 1
    said = "--loader-hook: feeder has no Feeder.no_such; check the name after the colon"
    assert done.stderr.strip().splitlines()[-1].endswith(said)
