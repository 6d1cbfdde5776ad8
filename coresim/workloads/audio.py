"""Speech to log-mel spectrograms: WAV with the standard library; FLAC where the package ``soundfile`` is."""

from __future__ import annotations

import wave
from functools import cache
from io import BytesIO
from pathlib import Path

import numpy as np

from coresim.workloads.base import padded
from coresim.workloads.folder import FolderWorkload
from coresim.workloads.packages import load_package

RATE = 16_000
WINDOW, HOP, POINTS, BANDS = 400, 160, 512, 80
LOUDEST = 32767


class WavWorkload(FolderWorkload):
    """Read a WAV file, decode it, log-mel spectrogram, two masks in time and two in frequency.

    Like LibriSpeech: 16 kHz, 281,241 utterances in 960.9 hours, 12.3 s each (Panayotov et al. 2015,
    doi:10.1109/ICASSP.2015.7178964). Windows of 25 ms every 10 ms, 80 bands; masks as SpecAugment's (Park et al.
    2019, doi:10.21437/Interspeech.2019-2680).
    """

    name = "speech, WAV to log-mel"
    batch_size = 16
    patterns = ("*.wav",)
    bands_masked, frames_masked = 27, 100

    def write(self) -> None:
        """Write utterances of 2 to 17 s."""
        rng = np.random.default_rng(960)
        for index in range(self.count):
            seconds = float(np.clip(rng.normal(12.3, 3.8), 2.0, 17.0))
            self.write_one(self.folder / f"{index:04d}{self.patterns[0][1:]}", speech(seconds, rng))

    def write_one(self, path: Path, signal: np.ndarray) -> None:
        """Write 16-bit samples to a file."""
        with wave.open(str(path), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(RATE)
            file.writeframes(signal.tobytes())

    def decode(self, raw: bytes) -> np.ndarray:
        """The samples as float32, from -1 to 1."""
        with wave.open(BytesIO(raw)) as file:
            stored = np.frombuffer(file.readframes(file.getnframes()), dtype=np.int16)
        return np.asarray(stored.astype(np.float32) / np.float32(LOUDEST + 1))

    def transform(self, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Log-mel spectrogram of mean 0 and deviation 1, masked: float32, (frames, 80)."""
        values = log_mel(x, mel_filters())
        values -= values.mean()
        values /= values.std() + np.float32(1e-6)
        for _ in range(2):
            mask(values, self.frames_masked, rng)
            mask(values.T, self.bands_masked, rng)
        return values

    def collate(self, samples: list[np.ndarray]) -> np.ndarray:
        """Spectrograms padded with zeros to the longest."""
        return padded(samples)


class FlacWorkload(WavWorkload):
    """The same from FLAC files, as LibriSpeech is distributed; needs the package ``soundfile``."""

    name = "speech, FLAC to log-mel"
    patterns = ("*.flac",)

    def write_one(self, path: Path, signal: np.ndarray) -> None:
        """Write 16-bit samples to a file."""
        load_package("soundfile", "FLAC").write(path, signal, RATE, subtype="PCM_16")

    def decode(self, raw: bytes) -> np.ndarray:
        """The samples as float32, from -1 to 1."""
        return np.asarray(load_package("soundfile", "FLAC").read(BytesIO(raw), dtype="float32")[0])


def log_mel(signal: np.ndarray, filters: np.ndarray) -> np.ndarray:
    """The logarithm of the power in each band and frame; a signal shorter than a window is padded to one."""
    signal = np.pad(signal, (0, max(0, WINDOW - len(signal))))
    frames = np.lib.stride_tricks.sliding_window_view(signal, WINDOW)[::HOP]
    spectrum = np.fft.rfft(frames * np.hanning(WINDOW).astype(np.float32), POINTS)
    power = spectrum.real**2 + spectrum.imag**2
    return np.asarray(np.log(power.astype(np.float32) @ filters + np.float32(1e-10)))


@cache
def mel_filters() -> np.ndarray:
    """Triangles of equal width on the mel scale, from 0 Hz to half the rate: (frequencies, bands).

    The scale is 2595 log10(1 + f / 700 Hz), after O'Shaughnessy 1987, Speech Communication.
    """
    top = 2595 * np.log10(1 + RATE / 2 / 700)
    edges = 700 * (10 ** (np.linspace(0, top, BANDS + 2) / 2595) - 1)
    frequencies = np.fft.rfftfreq(POINTS, 1 / RATE)[:, None]
    rising = (frequencies - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - frequencies) / (edges[2:] - edges[1:-1])
    return np.clip(np.minimum(rising, falling), 0, None).astype(np.float32)


def mask(values: np.ndarray, most: int, rng: np.random.Generator) -> None:
    """Set up to ``most`` neighbouring rows to zero, in place."""
    count = int(rng.integers(min(most, len(values)) + 1))
    begin = int(rng.integers(len(values) - count + 1))
    values[begin : begin + count] = 0.0


def speech(seconds: float, rng: np.random.Generator) -> np.ndarray:
    """16-bit samples with speech's coarse features: a buzz of 120 Hz, in four syllables a second, and breath."""
    times = np.arange(round(seconds * RATE)) / RATE
    pitch = 120 * (times + 0.01 * np.sin(2 * np.pi * 0.7 * times))
    syllables = np.clip(np.sin(2 * np.pi * 4 * times + rng.uniform(0, 2 * np.pi)), 0.02, None)
    signal = 0.3 * (pitch % 1.0 - 0.5) * syllables + 0.003 * rng.standard_normal(len(times))
    return np.asarray(signal * LOUDEST, dtype=np.int16)
