"""Speech: spectrograms, and two formats that hold the same samples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from coresim.workloads.audio import RATE, FlacWorkload, WavWorkload, log_mel, mel_filters, speech


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
