"""Workloads: the default one is like ImageNet, and a user's bad dataset gives one clear line."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from kit import needs_torch
from PIL import Image

from coresim.errors import InputError
from coresim.workloads.base import (
    PAGE,
    DatasetWorkload,
    batch_facts,
    default_collate,
    seed_everything,
    touch,
)
from coresim.workloads.images import ImageWorkload, crop_box
from coresim.workloads.named import WorkloadSpec, load_object

DATASETS = """
import numpy as np

def good(): return [(np.full(3, index, dtype=np.float32), index) for index in range(10)]
def empty(): return []
def no_dataset(): return 42
def needs_argument(path): return good()
def fails(): raise ValueError("bad folder")
constant = 3
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a module of datasets in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "user_data", raising=False)
    (tmp_path / "user_data.py").write_text(DATASETS)
    (tmp_path / "broken.py").write_text("import not_installed_at_all\n")
    (tmp_path / "explodes.py").write_text("raise ValueError('at import')\n")
    return tmp_path


def test_generated_images_are_like_imagenet(tmp_path: Path) -> None:
    workload = ImageWorkload(tmp_path)
    workload.make()
    sizes = np.array([path.stat().st_size for path in workload.files()])
    pixels = np.array([np.prod(Image.open(path).size) for path in workload.files()])
    assert len(workload) == 96
    assert sizes.mean() == pytest.approx(108e3, rel=0.15) and workload.bytes_per_sample() == sizes.mean()
    assert pixels.mean() == pytest.approx(182e3, rel=0.15)
    assert 0.4 < sizes.std() / sizes.mean() < 1.2
    first = workload.files()[0].stat().st_mtime_ns
    workload.make()
    assert workload.files()[0].stat().st_mtime_ns == first


def test_an_image_becomes_a_normalised_array_and_repeats_exactly(tmp_path: Path) -> None:
    Image.fromarray(np.full((300, 400, 3), 255, dtype=np.uint8)).save(tmp_path / "white.JPEG", quality=100)
    workload = ImageWorkload(tmp_path)
    picture = workload.decode(workload.fetch(0))
    prepared = workload.transform(picture, seed_everything(1))
    assert prepared.shape == (3, 224, 224) and prepared.dtype == np.float32 and prepared.flags.c_contiguous
    assert prepared[:, 0, 0] == pytest.approx((1 - np.array([0.485, 0.456, 0.406])) / [0.229, 0.224, 0.225], abs=1e-5)
    assert np.array_equal(prepared, workload.transform(picture, seed_everything(1)))
    assert batch_facts(workload.collate([prepared] * 4)) == (4 * 3 * 224 * 224 * 4, 1)


def test_crops_stay_inside_and_have_the_areas_asked_for() -> None:
    rng = np.random.default_rng(0)
    areas = []
    for _ in range(500):
        left, top, width, height = crop_box(500, 375, rng)
        assert 0 <= left <= 500 - width and 0 <= top <= 375 - height
        areas.append(width * height / (500 * 375))
    assert 0.07 < min(areas) < 0.12 and 0.9 < max(areas) <= 1.0
    assert crop_box(1000, 2, rng)[2:] == (2, 2)


def test_collate_stacks_recursively_into_new_memory() -> None:
    image = np.zeros((2, 2), dtype=np.float32)
    batch = default_collate([{"x": image, "y": (1, "a")}, {"x": image + 1, "y": (2, "b")}])
    assert batch["x"].shape == (2, 2, 2) and batch["x"][1, 0, 0] == 1
    assert batch["y"][0].tolist() == [1, 2] and batch["y"][1] == ["a", "b"]
    assert batch_facts(batch) == (2 * 2 * 2 * 4 + 2 * 8 + 2, 2)


@pytest.mark.torch
def test_torch_datasets_are_collated_by_torch() -> None:
    torch = pytest.importorskip("torch")
    data = torch.utils.data.TensorDataset(torch.zeros(5, 3), torch.arange(5))
    workload = DatasetWorkload(data, "tensors")
    batch = workload.collate([data[i] for i in range(4)])
    assert batch[0].shape == (4, 3) and batch[1].tolist() == [0, 1, 2, 3]
    assert batch_facts(batch) == (4 * 3 * 4 + 4 * 8, 2)
    assert default_collate([torch.zeros(2), torch.ones(2)]).tolist() == [[0, 0], [1, 1]]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("user_data", ["package.module:name", "'user_data'"]),
        (":good", ["package.module:name"]),
        ("nowhere.at_all:make", ["no module 'nowhere'", "run from the folder"]),
        ("broken:make", ["ModuleNotFoundError", "not_installed_at_all"]),
        ("explodes:make", ["ValueError: at import"]),
        ("user_data:missing", ["has no 'missing'", "check the name"]),
        ("user_data:constant", ["of type int, which cannot be called; name a function"]),
    ],
)
def test_a_name_that_cannot_be_loaded_gives_one_line(here: Path, spec: str, words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        load_object(spec, "dataset")
    assert_one_line(caught.value, [spec, *words])


def test_a_good_dataset_is_a_workload(here: Path) -> None:
    made = WorkloadSpec("user_data:good", batch_size=5).build()
    assert (made.name, made.batch_size, len(made)) == ("user_data:good", 5, 10)
    assert made.bytes_per_sample() is None and made.files() == ()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("empty", ["empty", "len 0"]),
        ("no_dataset", ["gives an object of type int", "__getitem__"]),
        ("needs_argument", ["TypeError", "without arguments"]),
        ("fails", ["ValueError: bad folder"]),
    ],
)
def test_a_dataset_that_cannot_be_built_gives_one_line(here: Path, name: str, words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        WorkloadSpec(f"user_data:{name}").build()
    assert_one_line(caught.value, [f"user_data:{name}", *words])


def test_a_batch_size_below_one_is_refused(here: Path) -> None:
    with pytest.raises(InputError, match="batch size = 0"):
        WorkloadSpec("user_data:good", batch_size=0).build()


def assert_one_line(error: BaseException, words: list[str]) -> None:
    text = str(error)
    assert "\n" not in text
    assert [word for word in words if word not in text] == [], text


def test_touching_reads_every_page_of_an_array_where_it_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = np.zeros(3 * PAGE, dtype=np.uint8)
    assert touch({"images": [whole, "a text"], "labels": (np.zeros((0, 2)), 3)}) == 3
    assert touch(np.zeros((PAGE, 2), dtype=np.float32).T) == 8  # in another order, and in one piece
    assert touch(np.zeros((2, 2 * PAGE), dtype=np.uint8)[:, ::2]) == 0  # in pieces: reading it would copy it
    assert touch(np.array([None, "objects"], dtype=object)) == 0


@needs_torch
def test_touching_reads_every_page_of_a_tensor_whatever_it_is() -> None:
    import torch

    images = torch.zeros(2, 3, 64, 64)
    pages = 2 * 3 * 64 * 64 * 4 // PAGE
    assert touch([images, torch.tensor([1, 2])]) == pages + 1
    assert touch(images.to(memory_format=torch.channels_last)) == pages
    assert touch(images.to(torch.bfloat16)) == pages // 2
    assert touch(images.requires_grad_()) == touch(images[:, :1]) == pages
    assert touch(torch.eye(3).to_sparse()) == touch(torch.zeros(0)) == 0
