"""The built-in workloads: same data and same work each time, the kind of work that each says it is."""

from __future__ import annotations

import json
import pickle
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import picture_formats
import pytest
from PIL import Image

import coresim.workloads
from coresim.cli.main import main
from coresim.errors import InputError, MissingPartError
from coresim.measure.campaign import Request
from coresim.workloads import pictures
from coresim.workloads.arrays import MIB, MemoryBoundWorkload
from coresim.workloads.audio import RATE, FlacWorkload, WavWorkload, log_mel, mel_filters, speech
from coresim.workloads.augmented import OPERATIONS, DetectionWorkload, Scene, erase
from coresim.workloads.base import Workload, batch_facts, padded, seed_everything
from coresim.workloads.folder import FolderWorkload
from coresim.workloads.named import WorkloadSpec, load_object
from coresim.workloads.pictures import Painter
from coresim.workloads.registry import DEFAULT, WORKLOADS, listing, target_of
from coresim.workloads.small_images import HeavyTailedWorkload, WaitingWorkload
from coresim.workloads.text import PythonBoundWorkload, TokenWorkload, fnv1a
from coresim.workloads.volumes import Hdf5VolumeWorkload, NpyVolumeWorkload, NpzVolumeWorkload

FEW = 2


#: Their data or their samples take longest; CI tries them.
LONG = {"detection", "images-encoded", "images-heavy", "memory-bound", "tabular", "tensors", "volumes-npz"}


@pytest.fixture(
    scope="module", params=[pytest.param(name, marks=[pytest.mark.slow] * (name in LONG)) for name in WORKLOADS]
)
def spec(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkloadSpec]:
    """The workload with its data made; a few files will do."""
    entry = WORKLOADS[request.param]
    if entry.needs:
        pytest.importorskip(entry.needs)
    kind = load_object(target_of(request.param), "workload")
    with pytest.MonkeyPatch.context() as patch:
        if isinstance(kind, type) and issubclass(kind, FolderWorkload):
            # One scan serves for many samples.
            patch.setattr(kind, "count", 1 if issubclass(kind, NpyVolumeWorkload) else FEW)
        spec = WorkloadSpec(target_of(request.param), str(tmp_path_factory.mktemp("data")))
        with pytest.MonkeyPatch.context() as drawing:
            drawing.setattr(pictures, "_texture", texture_of)
            spec.make()
        yield spec


TEXTURES: dict[tuple[str, int], tuple[np.ndarray, Any]] = {}
DRAWN = pictures._texture


def texture_of(rng: np.random.Generator, side: int) -> np.ndarray:
    """Drawn once for all workloads that begin with the same seed: it takes longer than their pictures."""
    key = repr(rng.bit_generator.state), side
    if key not in TEXTURES:
        TEXTURES[key] = DRAWN(rng, side), rng.bit_generator.state
    found, rng.bit_generator.state = TEXTURES[key]
    return found


def prepare(workload: Workload, index: int, seed: int) -> Any:
    rng, value = seed_everything(seed), index
    for step in workload.steps():
        value = step.call(value, rng)
    return value


def arrays_in(value: Any) -> Iterator[np.ndarray]:
    if isinstance(value, tuple | list):
        for part in value:
            yield from arrays_in(part)
    else:
        yield np.asarray(value)


def same(one: Any, other: Any) -> bool:
    pairs = zip(arrays_in(one), arrays_in(other), strict=True)
    return all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in pairs)


def test_a_workload_repeats_exactly_and_makes_a_batch(spec: WorkloadSpec, tmp_path: Path) -> None:
    again = WorkloadSpec(spec.target, str(tmp_path))
    again.make()
    one, other = spec.build(), pickle.loads(pickle.dumps(again)).build()
    assert len(one) == len(other) >= FEW
    for index in (0, len(one) - 1):
        assert same(prepare(one, index, 5), prepare(other, index, 5))
    assert not same(prepare(one, 0, 5), prepare(one, len(one) - 1, 5))
    batch = one.collate([prepare(one, index, index) for index in range(FEW)])
    size, count = batch_facts(batch)
    assert size > 0 and count > 0
    if spec.target.endswith(":EncodedImageWorkload"):  # files in a row, and the length of each
        row, lengths = arrays_in(batch)
        assert len(lengths) == FEW and lengths.sum() == len(row)
    else:
        assert [len(array) for array in arrays_in(batch)] == [FEW] * count
    assert {array.dtype.kind for array in arrays_in(batch)} <= {"f", "i", "u"}
    read = one.bytes_per_sample()
    assert read is not None and read > 0


def test_data_that_is_there_is_kept(spec: WorkloadSpec) -> None:
    def stamps() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in Path(spec.folder).iterdir()}

    before = stamps()
    spec.make()
    assert stamps() == before != {}


def test_the_names_are_those_that_recommend_takes() -> None:
    assert [entry.name for entry in listing()] == list(WORKLOADS) and DEFAULT in WORKLOADS
    assert Request().workload == DEFAULT
    with pytest.raises(InputError, match=r"workload 'speech' is not known; use one of images, .*tiny"):
        Request(workload="speech")
    with pytest.raises(InputError, match=r"'imges' is not known; .*, or a dataset; did you mean 'images'\?$"):
        Request(workload="imges")


def test_the_command_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["workloads"]) == 0
    table = capsys.readouterr().out
    assert [line.split()[0] for line in table.splitlines()[1 : len(WORKLOADS) + 1]] == list(WORKLOADS)
    assert all(entry.purpose in table for entry in WORKLOADS.values())
    assert main(["workloads", "--json"]) == 0
    found = {row["name"]: row for row in json.loads(capsys.readouterr().out)["workloads"]}
    assert found["images"]["batch_size"] == 256
    assert found["images"]["steps"] == ["fetch", "decode", "transform", "collate"]
    assert found["volumes-hdf5"]["needs"] == "h5py" and found["images"]["needs"] == ""


def test_the_example_of_adding_one_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = str(coresim.workloads.__doc__)
    code = textwrap.dedent(text[text.index("    import numpy") : text.index("then ``coresim")])
    assert len([line for line in code.splitlines() if line]) <= 20
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spectra.py").write_text(code)
    spec = WorkloadSpec("spectra:Spectra", str(tmp_path))
    spec.make()
    made = spec.build()
    assert (made.name, len(made), [step.name for step in made.steps()]) == (
        "spectra from CSV",
        64,
        ["fetch", "decode", "transform"],
    )
    batch = made.collate([prepare(made, index % 64, index) for index in range(made.batch_size)])
    assert batch_facts(batch)[0] == 128 * 200 * 4 and len(made.files()) == 64


# What each says of itself


def test_one_in_25_is_10_to_30_times_dearer() -> None:
    pixels = np.array(HeavyTailedWorkload(Path()).pixels())
    assert np.mean(pixels > np.median(pixels)) == 1 / 25
    # Measured CPU time follows pixels plus a part per sample, which makes 10 to 30 of these.
    assert 30 < pixels[0] / pixels[-1] < pixels.max() / pixels[-1] < 110


def test_waiting_outweighs_the_work_and_is_the_same_each_time() -> None:
    workload = WaitingWorkload(Path())
    waits = [workload.latency(index) for index in range(256)]
    assert waits == [workload.latency(index) for index in range(256)]
    assert np.median(waits) == pytest.approx(8e-3, rel=0.15) and max(waits) <= 0.1
    assert len(set(waits)) > 200


@pytest.mark.slow
def test_slabs_are_far_beyond_the_private_caches_and_stay_inside_the_table(tmp_path: Path) -> None:
    workload = MemoryBoundWorkload(tmp_path)
    workload.make()
    assert workload.slab >= 32 * MIB and workload.table >= 8 * workload.slab
    [path] = tmp_path.iterdir()
    table = np.load(path, mmap_mode="r")
    assert table.nbytes == workload.table
    assert np.array_equal(workload.fetch(len(workload) - 1)[-1], table[-1])
    assert np.array_equal(workload.fetch(1)[0], table[4 * MIB // table[0].nbytes])


@pytest.mark.parametrize(
    ("text", "value"),
    [("", 0x811C9DC5), ("a", 0xE40C292C), ("foobar", 0xBF9CF968)],  # the authors' published test vectors
)
def test_the_hash_is_fnv1a(text: str, value: int) -> None:
    assert fnv1a(text) == value


# Pictures


def test_operations_keep_size_and_mode_and_do_nothing_at_magnitude_zero() -> None:
    picture = Painter(np.random.default_rng(0), 64).draw(48, 40)
    for operation in OPERATIONS:
        for magnitude in (-0.9, 0.9):
            changed = operation(picture, magnitude)
            assert (changed.size, changed.mode) == (picture.size, "RGB")
    changed_at_zero = [not same(operation(picture, 0.0), picture) for operation in OPERATIONS]
    # Two of the fourteen, contrast and equalisation, have no magnitude.
    assert sum(changed_at_zero) == 2 and len(OPERATIONS) == 14


def test_erasing_covers_2_to_33_percent() -> None:
    shares = []
    for seed in range(50):
        values = np.full((3, 100, 100), 9.0, dtype=np.float32)
        erase(values, np.random.default_rng(seed))
        shares.append(np.mean(values != 9.0))
    assert 0.02 <= min(shares) < 0.1 and 0.25 < max(shares) <= 0.34


@pytest.mark.parametrize("seed", range(4))
def test_boxes_follow_their_picture(seed: int) -> None:
    pixels = np.zeros((480, 640, 3), dtype=np.uint8)
    pixels[100:200, 50:150] = 255
    boxes = np.array([[50, 100, 150, 200]], dtype=np.float32)
    scene = DetectionWorkload(Path()).transform(Scene(Image.fromarray(pixels), boxes), np.random.default_rng(seed))
    left, top, right, bottom = scene.boxes[0].round().astype(int)
    assert scene.picture.shape[1:] == (800, 1067)
    assert scene.boxes[0, 2:] - scene.boxes[0, :2] == pytest.approx([500 / 3, 500 / 3], rel=1e-5)
    inside = scene.picture[:, top + 2 : bottom - 2, left + 2 : right - 2]
    assert inside.min() > 2.0 > -1.0 > scene.picture[:, :, : left - 2].max()


def test_padding_keeps_values_and_adds_zeros() -> None:
    joined = padded([np.ones((2, 3)), np.full((3, 1), 2.0)])
    assert joined.tolist() == [[[1, 1, 1], [1, 1, 1], [0, 0, 0]], [[2, 0, 0], [2, 0, 0], [2, 0, 0]]]


# Speech


def test_a_tone_is_loudest_in_its_band() -> None:
    times = np.arange(RATE) / RATE
    for hertz in (300.0, 1000.0, 4000.0):
        mels = 2595 * np.log10(1 + np.array([hertz, RATE / 2]) / 700)
        values = log_mel(np.sin(2 * np.pi * hertz * times).astype(np.float32), mel_filters())
        assert values.shape == (98, 80)  # (16000 - 400) // 160 + 1 windows
        assert np.all(np.abs(values.argmax(axis=1) + 1 - 81 * mels[0] / mels[1]) <= 1)
    assert log_mel(np.zeros(10, dtype=np.float32), mel_filters()).shape == (1, 80)


def test_wav_keeps_the_samples(tmp_path: Path) -> None:
    signal, workload = speech(1.0, np.random.default_rng(1)), WavWorkload(tmp_path)
    workload.write_one(tmp_path / "a.wav", signal)
    assert np.array_equal(workload.decode(workload.fetch(0)) * 32768, signal)
    assert 2000 < np.abs(signal).max() < 32767


def test_flac_holds_what_wav_holds(tmp_path: Path) -> None:
    pytest.importorskip("soundfile")
    signal = speech(1.0, np.random.default_rng(1))
    for kind in (WavWorkload, FlacWorkload):
        kind(tmp_path).write_one(tmp_path / f"a{kind.patterns[0][1:]}", signal)
    wav, flac = WavWorkload(tmp_path), FlacWorkload(tmp_path)
    assert np.array_equal(wav.decode(wav.fetch(0)), flac.decode(flac.fetch(0)))
    assert flac.files()[0].stat().st_size < 0.9 * wav.files()[0].stat().st_size


# Text


def test_pieces_spell_the_word_and_the_longest_comes_first() -> None:
    workload = TokenWorkload(Path())
    spelt = {number: piece.removeprefix("##") for piece, number in workload._vocabulary.items()}
    words = workload._words
    assert all("".join(spelt[number] for number in workload.pieces(word)) == word for word in words[::50])
    assert len(workload.pieces(words[0])) == 1
    assert max(len(workload.pieces(word)) for word in words) >= 3
    assert workload.pieces("naïve") == [workload.UNKNOWN]


def test_tokens_are_framed_masked_and_padded() -> None:
    workload, rng = TokenWorkload(Path()), np.random.default_rng(0)
    words = workload._words[:300]
    ids = workload.transform(words, rng)
    kept = ids[ids != workload.PAD]
    assert ids.shape == (512,) and workload.PAD in ids
    assert 0.10 < np.mean(kept == workload.MASK) < 0.20
    assert workload.transform(workload._words, rng).min() > workload.PAD


def test_every_field_is_counted_once() -> None:
    workload = PythonBoundWorkload(Path())
    counts = workload.transform(workload.decode(b"a\tb\tc\nd\te"), np.random.default_rng(0))
    assert counts.sum() == 5 and counts.shape == (workload.buckets,)


# Volumes


def test_the_three_formats_hold_the_same_patches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("h5py")
    monkeypatch.setattr(NpyVolumeWorkload, "count", 1)
    workloads = [kind(tmp_path) for kind in (NpyVolumeWorkload, NpzVolumeWorkload, Hdf5VolumeWorkload)]
    for workload in workloads:
        workload.make()
    patches = [workload.decode(workload.fetch(3)) for workload in workloads]
    assert patches[0].shape == (96, 96, 96) and patches[0].std() > 100
    assert same(patches[0], patches[1]) and same(patches[0], patches[2])


@pytest.mark.parametrize("name", [name for name, entry in WORKLOADS.items() if entry.needs])
def test_a_missing_package_is_named_with_what_installs_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = WORKLOADS[name]
    monkeypatch.setitem(sys.modules, entry.needs, None)
    with pytest.raises(MissingPartError, match=rf"{entry.needs} is not installed; pip install {entry.needs}$"):
        WorkloadSpec(target_of(name), str(tmp_path)).make()
    assert name in [found.name for found in listing()]


def test_the_formats_hold_the_same_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("h5py")
    monkeypatch.setattr(picture_formats.JpegImages, "count", 1)
    kinds = [picture_formats.JpegImages, picture_formats.PngImages, picture_formats.BmpImages]
    kinds += [picture_formats.NpyImages, picture_formats.NpzImages, picture_formats.Hdf5Images]
    workloads = [kind(tmp_path) for kind in kinds]
    for workload in workloads:
        workload.make()
    pictures = [np.asarray(workload.decode(workload.fetch(0))) for workload in workloads]
    sizes = [float(workload.bytes_per_sample() or 0) for workload in workloads]
    assert all(same(picture, pictures[0]) for picture in pictures)
    # JPEG loses something for its few bytes, PNG and deflating lose nothing, and the others are pixels and a header.
    assert 2 * sizes[0] < sizes[1] < sizes[4] < pictures[0].nbytes < min(sizes[2], sizes[3], sizes[5])
    assert max(sizes) < 1.02 * pictures[0].nbytes
