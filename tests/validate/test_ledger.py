"""The ledger: written and read whole, told, and refused where it is a bad one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from trial_kit import SETTING, ledger, measured, point

from coresim.errors import InputError, NewerFileError
from coresim.report.validation import one_line, trusted, validation_document, validation_text
from coresim.validate.ledger import load_ledger


def test_a_good_ledger_is_trusted_and_is_written_and_read_whole(tmp_path: Path):
    found = ledger(point(SETTING, 0.3, 0.28, 0.3))
    assert trusted(found) and "1.0 points" in one_line(found)
    found.save(tmp_path / "l.json")
    assert load_ledger(tmp_path / "l.json") == found
    document = validation_document(found)
    assert document["trusted"] and document["points"][0]["idle_measured"] == pytest.approx(0.29)


def test_what_a_calibration_warned_of_is_told_once():
    quiet = ledger(point(SETTING, 0.3, 0.28))
    assert "Warnings" not in validation_text(quiet) and validation_document(quiet)["warnings"] == []
    job = replace(quiet.jobs[0], warnings=("the machine was busy while costs were measured: other programs used 0.9",))
    # No point rests on the third one: it was interrupted.
    busy = replace(quiet, jobs=(job, job, replace(job, workload="text")))
    busy = replace(busy, points=(*busy.points, replace(busy.points[0], job=1)))
    told = "images: the machine was busy while costs were measured: other programs used 0.9"
    assert validation_text(busy).count(f"Warnings of the calibrations\n  - {told}") == 1
    assert validation_document(busy)["warnings"] == [told] and "text:" not in validation_text(busy)


def test_a_ledger_without_a_clean_trial_says_so_and_shows_what_there_is():
    assert "No trial was made" in validation_text(ledger())
    disturbed = ledger(replace(point(SETTING, 0.3, 0.9), trials=(measured(0.9, dirty="busy"),)))
    text = validation_text(disturbed)
    assert "No trial was undisturbed" in text and "predicted 30.0 %" in text and "90.0 % (busy)" in text
    assert not trusted(ledger()) and not trusted(disturbed)


@pytest.mark.parametrize(
    ("change", "error", "names"),
    [
        ({"schema_version": 99}, NewerFileError, "newer"),
        ({"schema_version": 5}, InputError, "earlier coresim.*validate again, into another file"),
        ({"format": "else"}, InputError, "coresim-ledger"),
        ({"jobs": [{"costs": []}]}, InputError, "not a whole ledger"),
        ({"points": None}, InputError, "not a whole ledger"),
    ],
)
def test_a_bad_ledger_is_refused(tmp_path: Path, change: dict, error: type, names: str):
    from coresim.files import write_json

    write_json(tmp_path / "l.json", ledger().to_dict() | change)
    with pytest.raises(error, match=names):
        load_ledger(tmp_path / "l.json")
