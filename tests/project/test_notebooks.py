"""The notebooks: kept with the outputs of a whole run, in order, small, and the first one runs as it stands."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
NAMES = sorted(path.name for path in NOTEBOOKS.glob("*.ipynb"))
LARGEST = 400_000


def code_cells(book: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in book["cells"] if cell["cell_type"] == "code"]


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def printed(cell: dict[str, Any]) -> str:
    return "".join("".join(output["text"]) for output in cell["outputs"] if output["output_type"] == "stream")


def load(name: str) -> dict[str, Any]:
    book: dict[str, Any] = json.loads((NOTEBOOKS / name).read_text())
    return book


def test_they_are_there():
    assert NAMES[:3] == ["01_quickstart.ipynb", "02_what_if.ipynb", "03_claims.ipynb"]


@pytest.mark.parametrize("name", NAMES)
def test_outputs_are_of_one_run_from_top_to_bottom(name):
    cells = code_cells(load(name))
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert not [output for output in outputs if output["output_type"] == "error" or output.get("name") == "stderr"]
    assert len(outputs) > 5
    assert (NOTEBOOKS / name).stat().st_size < LARGEST


@pytest.mark.parametrize("name", NAMES)
def test_they_define_almost_nothing_and_name_no_place_of_their_author(name):
    text = (NOTEBOOKS / name).read_text()
    definitions = [line for cell in code_cells(load(name)) for line in source(cell).splitlines() if "def " in line]
    assert len(definitions) <= 3
    assert str(Path.home()) not in text
    assert str(NOTEBOOKS.parent) not in text


def test_every_claim_ends_in_a_computed_conclusion():
    drawn = [
        cell for cell in code_cells(load("03_claims.ipynb")) if re.search(r"^conclude\(", source(cell), re.MULTILINE)
    ]
    assert len(drawn) >= 10
    for cell in drawn:
        said = re.search(r"^(Holds|Does not hold): (.*)", printed(cell), re.MULTILINE)
        # The numbers of the conclusion are not typed: none of its sentences stands in the source as it was printed.
        assert said
        assert said[2] not in source(cell)


def test_the_first_runs_as_it_stands(tmp_path):
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    for name in ("01_quickstart.ipynb", "profile.json"):
        shutil.copy(NOTEBOOKS / name, tmp_path)
    book = nbformat.read(tmp_path / "01_quickstart.ipynb", as_version=4)
    client = nbclient.NotebookClient(
        book, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    root = str(NOTEBOOKS.parent)
    client.execute(env={**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])})
    assert (tmp_path / "plan.html").read_text().startswith("<!DOCTYPE html>")
    shown = [
        output for cell in book.cells for output in cell.get("outputs", []) if "text/html" in output.get("data", {})
    ]
    assert len(shown) >= 4
    assert sum("image/png" in output.get("data", {}) for cell in book.cells for output in cell.get("outputs", [])) >= 4
