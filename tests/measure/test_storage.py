"""Cold reads for real, in their quickest mode: shapes and names, never seconds; or a warning."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from kit import by_name

from coresim.errors import InputError
from coresim.measure import storage
from coresim.measure.protocol import Context
from coresim.model.warning import HostWarning
from coresim.workloads.named import WorkloadSpec

pytestmark = pytest.mark.usefixtures("no_child_is_left")

IMAGES = "coresim.workloads.images:ImageWorkload"


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> WorkloadSpec:
    spec = WorkloadSpec(IMAGES, str(tmp_path_factory.mktemp("images")), batch_size=8)
    spec.make()
    return spec


@pytest.fixture
def once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "PROCESSES", 1)


def test_cold_storage_or_an_honest_warning(images: WorkloadSpec, once: None) -> None:
    files = sorted(Path(images.folder).glob("*.jpg"))[:16]
    warnings: list[HostWarning] = []
    named = by_name(storage.measure_storage(files, Context(0.2, warnings=warnings)))
    if warnings:
        assert named == {} and "cannot be emptied" in warnings[0].what
        return
    assert {name: m.unit for name, m in named.items()} == {
        "storage.cold.read": "s/sample",
        "storage.cold.bandwidth": "B/s",
    }
    [seconds], [rates] = named["storage.cold.read"].values, named["storage.cold.bandwidth"].values
    assert len(seconds) == 16 * len(rates) and min(seconds) > 0 and min(rates) > 0


def test_memory_is_never_reported_as_cold_storage(images: WorkloadSpec, once: None) -> None:
    folder = Path("/dev/shm")
    if not os.access(folder, os.W_OK):
        pytest.skip("no /dev/shm here")
    path = folder / f"coresim-test-{os.getpid()}"
    path.write_bytes(b"x" * 100_000)
    try:
        warnings: list[HostWarning] = []
        named = by_name(storage.measure_storage([path], Context(0.1, warnings=warnings)))
    finally:
        path.unlink()
    assert named == {}
    assert [warning.value for warning in warnings] == ["100% left"]


def test_pages_in_and_out_of_the_cache_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"x" * 1_000_000)
    assert storage.resident_fraction(path) == 1.0
    if storage.drop([path]) == 1.0:
        pytest.skip("this file system lives in memory")
    assert storage.resident_fraction(path) == 0.0
    assert path.read_bytes() and storage.resident_fraction(path) == 1.0


def test_a_missing_file_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone.*cannot be read"):
        storage.measure_storage([tmp_path / "gone"], Context(0.1))
