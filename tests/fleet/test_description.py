"""Fleet files: what is wrong is named, and machines are all or one's own."""

from __future__ import annotations

from pathlib import Path

import pytest
from fleet_kit import FLEET

from coresim.errors import InputError, UnknownKeyError
from coresim.fleet.description import fleet_schema, load_fleet


@pytest.mark.parametrize(
    ("old", "new", "kind", "words"),
    [
        ("gpu_hours = 100", "gpu_hours = -1", InputError, ["workload[0].gpu_hours = -1", "above 0"]),
        ("gpu_hours = 100", "gpu_hour = 1", UnknownKeyError, ["workload[0].gpu_hour", "did you mean 'gpu_hours'"]),
        ('"aws:p4d.24xlarge"', '"p4d.24xlrge"', InputError, ["p4d.24xlrge", "nearest known: aws:p4d.24xlarge"]),
        ("machines =", "machine =", UnknownKeyError, ["machine: unknown key", "machines"]),
        ('"job.toml"', '"none.toml"', InputError, ["none.toml: no such file"]),
        ('name = "text"', 'name = "vision"', InputError, ["workload 'vision' is there twice"]),
        ("most_cores_per_gpu = 8", "most_cores_per_gpu = 8\ncores_per_gpu = 4", InputError, ["'site'", "give one"]),
        ("gpus = [1, 2]", "gpus = [0]", InputError, ["site[0].gpus[0] = 0"]),
        ("[[site]]", "options = [4]\n[[site]]", UnknownKeyError, ["options"]),
    ],
)  # fmt: skip
def test_a_bad_fleet_says_where(path: Path, old: str, new: str, kind: type[Exception], words: list[str]) -> None:
    path.write_text(FLEET.replace(old, new, 1))
    with pytest.raises(kind) as caught:
        load_fleet(path)
    assert str(caught.value).startswith(str(path)) and all(word in str(caught.value) for word in words), caught.value


def test_all_machines_and_own_ones(path: Path) -> None:
    (path.parent / "own.csv").write_text("id,gpu,gpu_count,physical_cores\nbox,A100,1,8\n")
    start = FLEET.index("[[workload]]")
    path.write_text('machines = ["all"]\nmachine_file = "own.csv"\noptions = [1, 2]\n' + FLEET[start:])
    fleet = load_fleet(path)
    assert len(fleet.candidates) == 144 + 1 + 2 and fleet.candidates[0].name == "box" and fleet.options == (1, 2)
    known = fleet_schema()["properties"]
    assert {"machines", "options", "workload", "site", "cpu_speed"} <= set(known)
