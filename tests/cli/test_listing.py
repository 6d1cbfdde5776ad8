"""The verbs that list what is recorded, and the one that tells of this host."""

from __future__ import annotations

import json

from cli_kit import call


def test_doctor_and_catalogue_answer(capsys):
    code, out, _ = call(capsys, "doctor", "--json")
    assert code == 0
    assert json.loads(out)["usable_cores"] > 0
    code, out, _ = call(capsys, "catalogue", "--json")
    assert code == 0
    assert all(row["source"] and row["certainty"] for row in json.loads(out)["rows"])


def test_one_machine_is_one_machine(capsys):
    _, out, _ = call(capsys, "machines", "--name", "p4d.24xlarge", "--provider", "aws")
    assert "\n1 machine. Cores" in out
