"""Batches kept in memory, which the loop gets again and again instead of new ones."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

MOST_BATCHES, MOST_BYTES = 8, 1 << 30
#: Batches that are given as copies before it is known whether the program changes them; a trainer may ask one ahead.
WATCHED = 4


def tensors(value: Any) -> Iterator[Any]:
    """The tensors of a batch, in order, through lists, tuples, mappings and the attributes of objects."""
    parts: Iterable[Any] = ()
    if hasattr(value, "_version") and hasattr(value, "untyped_storage"):  # torch's, which is not imported for this
        yield value
    elif isinstance(value, Mapping):
        parts = value.values()
    elif isinstance(value, list | tuple):
        parts = value
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        parts = vars(value).values()
    for part in parts:
        yield from tensors(part)


def samples_in(batch: Any) -> int | None:
    """Samples of a batch: the length of all of its tensors; 0 of None. None where they differ, or there are none."""
    if batch is None:
        return 0
    length: int | None = None
    try:
        for tensor in tensors(batch):
            if tensor.dim():
                if length not in (None, len(tensor)):
                    return None
                length = len(tensor)
    except Exception:  # a program's own type of batch may raise anything
        return None
    return length


def rebuilt(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """The batch in new containers, so that a program may change them; ``leaf`` gives each tensor."""
    found = list(tensors(value))  # held, so that no other object gets the place of one meanwhile
    return copy.deepcopy(value, {id(tensor): leaf(tensor) for tensor in found})


def copied(tensor: Any) -> Any:
    """A copy of a tensor, in pinned memory if the original is."""
    twin = tensor.detach().clone()
    return twin.pin_memory() if tensor.device.type == "cpu" and tensor.is_pinned() else twin


class Kept:
    """A few batches as the loader gave them.

    The first batches are given as copies. If the program leaves them unchanged, later ones are given without a copy.

    Attributes:
        changes: whether the program changes a batch in place; None until that is known.
    """

    def __init__(self) -> None:
        self.changes: bool | None = None
        self._own: list[Any] = []
        self._given: list[list[tuple[Any, int]]] = []
        self._next = 0

    def __len__(self) -> int:
        return len(self._own)

    @property
    def full(self) -> bool:
        """Whether no more are kept: enough of them, or of bytes."""
        return len(self) >= MOST_BATCHES or len(self) * self.bytes >= MOST_BYTES

    @property
    def bytes(self) -> int:
        """Bytes of a batch's tensors, on average."""
        whole: int = sum(tensor.nbytes for tensor in tensors(self._own))
        return whole // max(1, len(self))

    @property
    def arrays(self) -> int:
        """Tensors of the batch that has most of them."""
        return max(sum(1 for _ in tensors(batch)) for batch in self._own)

    @property
    def length(self) -> int | None:
        """Samples of a batch by its first tensor, the mean of those that are kept; None if they have no length."""
        lengths = []
        for batch in self._own:
            first = next(tensors(batch), None)
            if batch is None:
                lengths.append(0)
            elif first is not None and first.dim():
                lengths.append(len(first))
        return round(sum(lengths) / len(lengths)) if lengths else None

    def keep(self, batch: Any) -> None:
        """Keep a copy: the batch itself is the program's."""
        self._own.append(rebuilt(batch, copied))

    def give(self) -> Any:
        """The next batch in turn, as if the loader had made it."""
        own = self._own[self._next % len(self)]
        self._next += 1
        if self.changes is None and len(self._given) >= WATCHED:
            self.changes = any(tensor._version != version for given in self._given for tensor, version in given)
            self._given.clear()
        if self.changes is False:
            return rebuilt(own, lambda tensor: tensor)
        batch = rebuilt(own, copied)
        if self.changes is None:
            self._given.append([(tensor, tensor._version) for tensor in tensors(batch)])
        return batch
