"""The latest ledger of a host and a workload: found, and shown by a recommendation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from made_up import profile
from trial_kit import COSTS, SETTING, ledger, point

from coresim.cli.latest import keep, latest
from coresim.validate.ledger import RecordedJob


def test_the_latest_ledger_is_found_by_host_and_workload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    found = ledger(point(SETTING, 0.3, 0.3))
    assert latest("abc", "imagenet-like") is None
    keep(found)
    assert latest("abc", "imagenet-like") == found
    assert latest("other", "imagenet-like") is None
    keep(ledger())  # says nothing, so it does not replace what does
    assert latest("abc", "imagenet-like") == found
    jobs = tuple(RecordedJob(*named, COSTS) for named in (("images", "imagenet-like"), ("tiny", "mine")))
    other = replace(ledger(point(SETTING, 0.3, 0.3), replace(point(SETTING, 0.9, 0.3), job=1)), jobs=jobs)
    keep(other)
    kept = [latest("abc", title) for title in ("imagenet-like", "mine")]
    assert [[p.prediction.idle for p in one.points] for one in kept if one] == [[0.3], [0.9]]
    for path in tmp_path.rglob("abc-*.json"):
        text, older = path.read_text(), {'"schema_version": 7': '"schema_version": 6', '"slowdown"': '"pace"'}
        for new, old in ({'"warnings"': '"cautions"'} | older).items():
            text = text.replace(new, old)
        path.write_text(text)
    assert latest("abc", "imagenet-like") == kept[0]  # the keys of version 6 had other names
    for path in tmp_path.rglob("abc-*.json"):
        path.write_text(path.read_text().replace('"schema_version": 6', '"schema_version": 4'))
    assert latest("abc", "imagenet-like") is None  # recorded by an earlier coresim


def test_recommend_shows_the_latest_ledger_of_its_host_and_workload(
    profile_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    import json

    from coresim.cli.main import main

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    main(["recommend", str(profile_path), "--max-cores", "2", "--options", "2", "--verbose"])
    assert "not validated here" in capsys.readouterr().out
    known = replace(
        ledger(point(SETTING, 0.3, 0.28, 0.3)),
        host_fingerprint=profile().host.fingerprint,
        jobs=(RecordedJob("images", profile().workload, COSTS),),
    )
    keep(known)
    main(["recommend", str(profile_path), "--max-cores", "2", "--options", "2", "--verbose"])
    assert "1.0 points on average over 1 settings" in capsys.readouterr().out.replace("\n    ", " ")
    main(["recommend", str(profile_path), "--max-cores", "2", "--options", "2", "--json"])
    assert "1.0 points" in json.loads(capsys.readouterr().out)["metadata"]["validation"]
