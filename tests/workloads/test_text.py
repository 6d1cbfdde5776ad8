"""Text in pure Python: the hash, the pieces of words, tokens and fields."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from coresim.workloads.text import PythonBoundWorkload, TokenWorkload, fnv1a


@pytest.mark.parametrize(
    ("text", "value"),
    [("", 0x811C9DC5), ("a", 0xE40C292C), ("foobar", 0xBF9CF968)],  # the authors' published test vectors
)
def test_the_hash_is_fnv1a(text: str, value: int) -> None:
    assert fnv1a(text) == value


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
