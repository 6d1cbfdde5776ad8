"""The loop of one's own process: measured in a notebook, and watched by trainers' callbacks in a script."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from attach_kit import ENVIRON, PROGRAMS, STEP_S

from coresim.attaching.here import Attached
from coresim.errors import CoresimError

pytestmark = pytest.mark.torch
pytest.importorskip("torch")

LOOP = """
import torch, coresim
from torch.utils.data import DataLoader
from work import BATCH, Data, Net
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
attached = coresim.attach(watch_s=0.5, kept_s=0.5, budget_s=2.0)
seen, after = 0, 0
while after < 3:
    for images, labels in DataLoader(Data(), BATCH, num_workers=1):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        seen, after = seen + 1, after + attached.done
        if after == 3:
            break
"""
ANSWER = "print(seen > 40, attached, coresim.recommend(attached.profile), sep='\\n')"
LIGHTNING = """
import lightning as L
from lit import Images, Module
from coresim.callbacks import for_lightning
L.Trainer(
    max_epochs=1, limit_train_batches=12, val_check_interval=5, accelerator="cpu", logger=False,
    enable_checkpointing=False, enable_progress_bar=False, callbacks=[for_lightning()],
).fit(Module(), Images())
"""
TRANSFORMERS = """
from transformers import Trainer, TrainingArguments
from trainer import Model, Texts
from coresim.callbacks import for_transformers
arguments = TrainingArguments(
    "out", max_steps=12, per_device_train_batch_size=32, dataloader_num_workers=2, use_cpu=True, save_strategy="no",
    report_to=[], disable_tqdm=True,
)
Trainer(Model(), arguments, train_dataset=Texts(), callbacks=[for_transformers()]).train()
"""


def python(source: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A script's run."""
    path = folder / "script.py"
    path.write_text(source)
    environ = {**os.environ, **ENVIRON, "PYTHONPATH": str(PROGRAMS)}
    return subprocess.run(
        [sys.executable, str(path)], env=environ, cwd=folder, capture_output=True, text=True, timeout=200, check=False
    )


def test_a_notebook_measures_its_next_loop_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    for name, value in {**ENVIRON, "SAMPLE_S": "0.0005", "STEP_S": "0.005", "PYTHONPATH": str(PROGRAMS)}.items():
        monkeypatch.setenv(name, value)
    cells = [nbformat.v4.new_code_cell(source) for source in (LOOP, ANSWER)]
    book = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(book, timeout=200, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs: list[Any] = book.cells[1]["outputs"]
    text = "".join(found["text"] for found in outputs if found.get("name") == "stdout")
    enough, state, first = text.strip().splitlines()[:3]
    assert (enough, state) == ("True", "<Attached: measured>")
    assert first.startswith("Today: GPU idle observed")
    assert "1 worker," in first


@pytest.mark.parametrize(("package", "source"), [("lightning", LIGHTNING), ("transformers", TRANSFORMERS)])
def test_a_callback_prints_what_the_loop_waited(package: str, source: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    done = python(source, tmp_path)
    assert done.returncode == 0, done.stderr
    line = " ".join(done.stdout[done.stdout.find("Today: ") :].split())
    found = re.fullmatch(
        r"Today: the loop waited (?P<share>[\d.]+) % of its time for the loader; \d+ samples/s;"
        r" (?P<workers>\d) workers, \d+ hardware threads? allowed; a batch is waited for [\d.]+ ms and worked on"
        r" (?P<step>[\d.]+) ms\.",
        line,
    )
    assert found is not None, line
    assert int(found["workers"]) == 2
    assert float(found["share"]) > 10  # two workers feed no such step
    assert float(found["step"]) >= 1e3 * STEP_S


def test_what_is_not_measured_yet_is_told() -> None:
    from coresim import attach

    attached: Attached = attach()
    try:
        with pytest.raises(CoresimError, match=r"^attach: not measured yet: 0 batches so far; let the loop go on"):
            _ = attached.profile
        assert repr(attached) == "<Attached: watch, 0 batches so far>"
    finally:
        attached.detach()


def test_the_hooks_are_gone_when_they_are_detached() -> None:
    from torch.utils.data.dataloader import _BaseDataLoaderIter as Base

    from coresim import attach

    own = Base.__next__, Base.__init__
    attached = attach()
    assert Base.__next__ is not own[0]
    attached.detach()
    assert (Base.__next__, Base.__init__) == own
