"""Text, worked on in pure Python: it holds the interpreter's lock from the first character to the last."""

from __future__ import annotations

import re
from functools import cached_property

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
    count = 200
    buckets = 4096

    def write(self) -> None:
        """Write files of 30 to 110 lines."""
        rng = np.random.default_rng(11)
        words = make_words(2000, rng)
        for index in range(self.count):
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


class TokenWorkload(FolderWorkload):
    """Documents to 512 token ids by WordPiece, the longest matching piece first, with 15 % masked, as for BERT.

    Sources: Wu et al. 2016, doi:10.48550/arXiv.1609.08144; Devlin et al. 2019, doi:10.18653/v1/N19-1423. In pure
    Python, as the authors' own tokeniser is; the compiled ones are many times faster.
    """

    name = "documents, WordPiece, 512 tokens"
    batch_size = 32
    patterns = ("*.txt",)
    count = 200
    length, masked = 512, 0.15
    PAD, UNKNOWN, FIRST, LAST, MASK = range(5)

    @cached_property
    def _words(self) -> list[str]:
        return make_words(6000, np.random.default_rng(13))

    @cached_property
    def _vocabulary(self) -> dict[str, int]:
        """A third of the words whole, and pieces of all of them, so that rare words are split."""
        pieces = {f"##{word[i : i + size]}" for word in self._words[::3] for i in range(1, 12) for size in (1, 2, 3)}
        starts = {word[:size] for word in self._words for size in (1, 2, 3)}
        known = sorted({*self._words[::3], *pieces, *starts, *".,"} - {"##"})
        return {piece: number for number, piece in enumerate(known, start=self.MASK + 1)}

    def write(self) -> None:
        """Write documents of 150 to 600 words."""
        rng = np.random.default_rng(17)
        for index in range(self.count):
            words = zipf(self._words, int(rng.integers(150, 601)), rng)
            marks = rng.choice(["", "", "", "", ",", "."], len(words))
            text = " ".join(map("".join, zip(words, marks, strict=True)))
            (self.folder / f"{index:04d}.txt").write_text(text.capitalize())

    def decode(self, raw: bytes) -> list[str]:
        """Lower-case words and punctuation marks."""
        return re.findall(r"\w+|[^\w\s]", raw.decode().lower())

    def transform(self, x: list[str], rng: np.random.Generator) -> np.ndarray:
        """Token ids, masked and padded: int64, 512 of them."""
        ids = [number for word in x for number in self.pieces(word)]
        ids = [self.FIRST, *ids[: self.length - 2], self.LAST]
        values = np.full(self.length, self.PAD, dtype=np.int64)
        values[: len(ids)] = np.where(rng.random(len(ids)) < self.masked, self.MASK, ids)
        return values

    def pieces(self, word: str) -> list[int]:
        """The ids of a word's pieces, the longest match first; `UNKNOWN` for a word that cannot be split so."""
        found, begin = [], 0
        while begin < len(word):
            prefix = "##" if begin else ""
            for end in range(len(word), begin, -1):
                number = self._vocabulary.get(prefix + word[begin:end])
                if number is not None:
                    break
            else:
                return [self.UNKNOWN]
            found.append(number)
            begin = end
        return found


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
