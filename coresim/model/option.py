"""The three ways to organise the input of a training job, by the numbers that files, flags and users give them."""

from __future__ import annotations

from enum import IntEnum

from coresim.errors import InputError

#: What a profile calls the loader that ran where stages in threads were measured, and not the job's own loader.
STAGED_LOADER = "stages in threads of our own"


class Option(IntEnum):
    """How the work before a training step is organised; `coresim.model.build` says what each one is made of."""

    NO_OVERLAP = 1
    OVERLAPPED = 2
    STAGED = 3

    # The number alone: error messages and the hashes of grids are made from it.
    __repr__ = int.__repr__

    @property
    def label(self) -> str:
        """The name for people: ``no overlap``."""
        return self.name.replace("_", " ").lower()


def read_option(value: object, where: str = "option") -> Option:
    """The option with this number.

    Raises:
        InputError: no option has it; ``where`` says whose number it is.
    """
    try:
        return Option(value)  # type: ignore[arg-type]
    except ValueError:
        known = [f"{option} ({option.label})" for option in Option]
        raise InputError(f"{where} {value!r}: use {', '.join(known[:-1])} or {known[-1]}") from None
