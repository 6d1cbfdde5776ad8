"""Every failure that a user can meet, as one class per meaning.

A message is one line: what is wrong, where, the value seen, and the remedy. The CLI prints it and exits
with the class's code; nothing below the CLI prints or exits.
"""

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class CoresimError(Exception):
    """A failure that is not the user's input: exit code 1."""

    exit_code = 1


class InputError(CoresimError):
    """Bad usage or bad input (arguments, files, a user's dataset): exit code 2."""

    exit_code = 2


class MissingPartError(CoresimError):
    """An optional part (torch, CUDA, ...) that the request needs is absent: exit code 3."""

    exit_code = 3


class UnknownKeyError(InputError):
    """A file or an override holds a key that this version does not know."""


class NewerFileError(InputError):
    """A file was written by a newer version of coresim."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a message for a name that is not known: the known one that is most like it, or nothing."""
    near = difflib.get_close_matches(name, known, 1)
    return f"; did you mean {near[0]!r}?" if near else ""


@contextmanager
def said_of(source: str) -> Iterator[None]:
    """Begin the message of every `InputError` from the block with ``source``, such as a path."""
    try:
        yield
    except InputError as error:
        raise type(error)(f"{source}: {error}") from None


EXIT_ANSWERED = 0
EXIT_NO_CORE_COUNT = 4
EXIT_NOT_TRUSTED = 5
EXIT_WORSE = 6
EXIT_UNTOLD = 7
EXIT_INTERRUPTED = 130
