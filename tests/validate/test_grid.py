"""The grid: its blocks, the built-in ones and the declared ones, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coresim.errors import InputError, UnknownKeyError
from coresim.validate.grid import Setting, fixed_step, job_grid, load_grid, quick_grid
from coresim.workloads.registry import target_of


def test_a_grid_is_all_combinations_of_its_blocks(tmp_path: Path):
    path = tmp_path / "g.toml"
    path.write_text(
        '[[block]]\nworkload = "images"\nbatch_size = 16\nworkers = [1, 2]\nratio = [0.5, 1]\nrepeats = 2\n'
    )
    grid = load_grid(path)
    assert [(s.workers, s.ratio) for s in grid.settings] == [(1, 0.5), (1, 1), (2, 0.5), (2, 1)]
    assert {s.repeats for s in grid.settings} == {2} and len(grid.sha256) == 64


@pytest.mark.parametrize(
    ("text", "error", "names"),
    [
        ("[[block]]\nworkload = 'a'\nbatch_size = 1\nratio = 1\nspeed = 2\n", UnknownKeyError, "block.speed"),
        ("[[block]]\nworkload = 'a'\nratio = 1\n", InputError, "block.batch_size: missing"),
        ("[[block]]\nworkload = 'a'\nbatch_size = 1\nratio = 'x'\n", InputError, "block.ratio"),
        ("[[block]]\nworkload = 'a'\nbatch_size = 1\nratio = 0\n", InputError, "ratio"),
        ("[[block]]\nworkload = 'a'\nbatch_size = 1\nratio = 1\nworkers = 0\n", InputError, "at least one worker"),
        ("block = 3\n", UnknownKeyError, "block"),
    ],
)
def test_a_bad_grid_is_refused_with_file_and_key(tmp_path: Path, text: str, error: type, names: str):
    (tmp_path / "g.toml").write_text(text)
    with pytest.raises(error, match=names):
        load_grid(tmp_path / "g.toml")


def test_built_in_grids():
    assert 2 <= len(quick_grid("images", 16, 2).settings) <= 3
    grid = job_grid("images", 16, 4)
    assert {s.workers for s in grid.settings} == {0, 1, 2, 4, 5}
    fixed = fixed_step(grid, 0.1)
    assert {s.step_s for s in fixed.settings} == {0.1} and len(fixed.settings) == 5


def test_the_declared_grid_has_the_eight_jobs_and_most_points_near_the_knee():
    grid = load_grid(Path(__file__).parents[2] / "calibration" / "grid.toml")
    assert len(grid.settings) >= 250
    assert len({setting.workload for setting in grid.settings}) == 8
    near = sum(0.8 <= setting.ratio <= 1.25 for setting in grid.settings)
    assert near > len(grid.settings) / 2


CALIBRATION = Path(__file__).parents[2] / "calibration"
RANKED = Setting("slow-reads", 4, 2, 2, 2, 2, 1.0, ranks=4)


@pytest.mark.parametrize("name", ["rank", "worker"])
def test_the_declared_grids_are_of_known_jobs_and_large_enough(name: str) -> None:
    grid = load_grid(CALIBRATION / f"{name}_grid.toml")
    assert sum(setting.repeats for setting in grid.settings) >= 40 and len(set(grid.settings)) == len(grid.settings)
    assert all(target_of(setting.workload) for setting in grid.settings)
    ranks, workers = ({getattr(setting, key) for setting in grid.settings} for key in ("ranks", "workers"))
    assert (ranks == {2, 4, 8}) if name == "rank" else (workers == {8, 16, 32, 64} and ranks == {1})
    assert {setting.ordered for setting in grid.settings} == {True, False}


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"option": 1}, "4 ranks"),
        ({"model": "resnet50"}, "4 ranks"),
        ({"limit": "quota"}, "4 ranks"),
        ({"ranks": 1, "straggler": 2.0}, "add ranks"),
        ({"straggler": 0.5}, "straggler = 0.5"),
        ({"ranks": 0}, "ranks = 0"),
    ],
)
def test_what_ranks_cannot_be_is_refused(change: dict[str, Any], names: str) -> None:
    with pytest.raises(InputError, match=names):
        replace(RANKED, **change)
