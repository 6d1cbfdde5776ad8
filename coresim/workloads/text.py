"""Text, worked on in pure Python: it holds the interpreter's lock from the first character to the last."""

from __future__ import annotations

import numpy as np

from coresim.workloads.folder import FolderWorkload

FNV_OFFSET, FNV_PRIME, MASK = 2166136261, 16777619, 0xFFFFFFFF


class PythonBoundWorkload(FolderWorkload):
    """Log lines to hashed word counts: split each line, hash each word with FNV-1a, count, all in pure Python.

    The hash: github.com/lcn2/fnv. About one microsecond per handful of characters, never without the lock.
    """

    name = "log lines, hashed in pure Python"
    batch_size = 64
    patterns = ("*.log",)
    buckets = 4096

    def write(self) -> None:
        """Write 200 files of 30 to 110 lines."""
        rng = np.random.default_rng(11)
        words = make_words(2000, rng)
        for index in range(200):
            text = "\n".join(_line(words, rng) for _ in range(int(rng.integers(30, 111))))
            (self.folder / f"{index:04d}.log").write_text(text)

    def decode(self, raw: bytes) -> list[list[str]]:
        """The fields of each line."""
        return [line.split("\t") for line in raw.decode().splitlines()]

    def transform(self, x: list[list[str]], rng: np.random.Generator) -> np.ndarray:
        """Counts of the hashed words: float32, one value per bucket."""
        counts = [0.0] * self.buckets
        for fields in x:
            for number, field in enumerate(fields):
                counts[fnv1a(field, FNV_OFFSET ^ number) % self.buckets] += 1.0
        return np.array(counts, dtype=np.float32)


def fnv1a(text: str, value: int = FNV_OFFSET) -> int:
    """The 32-bit FNV-1a hash of the characters' code points, from the start ``value`` on."""
    for char in text:
        value = (value ^ ord(char)) * FNV_PRIME & MASK
    return value


def make_words(count: int, rng: np.random.Generator) -> list[str]:
    """Different lower-case words of 2 to 12 letters, the more frequent the shorter."""
    letters = np.array(list("eeeetttaaooiinnsshhrrdlucmfwygpbvkxqjz"))
    found: dict[str, None] = {}
    while len(found) < count:
        found["".join(rng.choice(letters, int(rng.integers(2, 13))))] = None
    return sorted(found, key=len)


def zipf(words: list[str], count: int, rng: np.random.Generator) -> list[str]:
    """``count`` words drawn with a frequency in inverse proportion to their rank, as words have in text."""
    ranks = np.exp(rng.random(count) * np.log(len(words))).astype(int)
    return [words[rank - 1] for rank in ranks]


def _line(words: list[str], rng: np.random.Generator) -> str:
    return "\t".join([f"{rng.integers(2**32):08x}", str(rng.integers(10**6)), *zipf(words, 10, rng)])
