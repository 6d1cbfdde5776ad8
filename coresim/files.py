"""Versioned files: written whole or not at all, read with errors that name file, key and remedy."""

from __future__ import annotations

import errno
import fcntl
import functools
import json
import os
import stat
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from coresim.errors import CoresimError, InputError, NewerFileError
from coresim.units import LARGEST, SMALLEST, format_bytes, in_bounds, short

#: Tables that come with the package.
DATA = Path(__file__).parent / "data"
#: The largest file that is read: a hundred times what a long measurement or validation writes.
MOST_BYTES = 64_000_000
#: How deep lists and tables of a file may be nested.
MOST_DEPTH = 50


def utc_now() -> str:
    """The time as files hold it: ISO 8601, in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write ``text`` to ``path``, whole or not at all; raises what `write_bytes` does.

    A character that is no text (half of a surrogate pair, as from a file name of other bytes) is written as ``?``.
    """
    write_bytes(path, text.encode(errors="replace"))


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Write to ``path`` through a temporary file beside it, so that a full disk or Ctrl-C leaves no half a file.

    Raises:
        InputError: the path cannot be written.
        CoresimError: the disk is full.
    """
    target = Path(path)
    try:
        if target.exists() and not target.is_file():
            raise InputError(f"cannot write {target}: it is no regular file; name another")
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    except ValueError:  # a NUL in it
        raise InputError(f"cannot write {short(str(path))}: not a possible path; name another") from None
    except OSError as error:
        kind = CoresimError if error.errno == errno.ENOSPC else InputError
        raise kind(f"cannot write {target}: {error.strerror}; choose a folder that you can write to") from None
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, target)
    except OSError as error:
        kind = InputError if isinstance(error, PermissionError | IsADirectoryError) else CoresimError
        raise kind(f"cannot write {target}: {error.strerror}; nothing was written") from None
    finally:
        Path(temporary).unlink(missing_ok=True)


def write_json(path: str | os.PathLike[str], document: Mapping[str, Any]) -> None:
    """Write a JSON document; NaN is refused, because it is not JSON."""
    write_text(path, json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False) + "\n")


@contextmanager
def locked(path: str | os.PathLike[str]) -> Iterator[None]:
    """Lock ``path`` for this process within the block; the lock also ends with the process, however that ends.

    The lock is on the file ``.NAME.lock`` beside it, because the file itself is replaced as a whole. If the file system
    has no locks, none is held.

    Raises:
        InputError: another process holds it, or the folder cannot be written.
    """
    target = Path(path)
    beside = target.with_name(f".{target.name}.lock")
    while True:
        try:
            handle = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise InputError(f"cannot write {target}: {error.strerror}; choose another folder") from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise InputError(f"{target}: another coresim writes it now; wait, or name another file") from None
        except OSError:  # no locks here
            pass
        # Who held it before may have taken the file away since it was opened.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), os.stat(beside)):
                break
        os.close(handle)
    try:
        yield
    finally:
        beside.unlink(missing_ok=True)
        os.close(handle)


def read_text(path: str | os.PathLike[str]) -> str:
    """The text of a file.

    Raises:
        InputError: missing, unreadable, no regular file, larger than `MOST_BYTES`, or not text.
    """
    if not os.fspath(path):
        raise InputError("'': an empty name, and a file is needed; name one")
    try:
        # Never waits: a pipe without a writer is opened at once, and refused.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as stream:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise InputError(f"{path}: not a regular file, and one is needed; write it to a file first")
            content = stream.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; check the path") from None
    except ValueError:  # a NUL in it
        raise InputError(f"{short(str(path))}: not a possible path; name a file") from None
    except IsADirectoryError:
        raise InputError(f"{path}: a folder, and a file is needed; name a file in it") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}; check the path and its permissions") from None
    if len(content) > MOST_BYTES:
        raise InputError(f"{path}: larger than {format_bytes(MOST_BYTES)}, which no file of coresim's is; name another")
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n")  # some editors put a mark of the encoding first
    except UnicodeDecodeError:
        raise InputError(f"{path}: not a text file; coresim reads JSON profiles and TOML scenarios") from None


def read_json(path: str | os.PathLike[str], text: str | None = None) -> dict[str, Any]:
    """A JSON object from a file (or from its ``text``, already read); a truncated one is named as such.

    Raises:
        InputError: unreadable, truncated, not a JSON object, or a value that `check_values` refuses.
    """
    text = read_text(path) if text is None else text
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        what = "truncated" if error.pos >= len(text.rstrip()) else "not valid JSON"
        raise InputError(
            f"{path}: {what} at line {error.lineno}: {error.msg}; undo the last edit, or write it again"
        ) from None
    except ValueError:  # Python reads no integer of more than 4300 digits
        raise InputError(f"{path}: holds an integer of thousands of digits; write it again") from None
    except RecursionError:
        raise InputError(f"{path}: not valid JSON: nested too deeply; write it again") from None
    if not isinstance(document, dict):
        raise InputError(f"{path}: holds a JSON {type(document).__name__}, not an object; is it a coresim file?")
    check_values(document, str(path))
    return document


def read_toml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """A TOML document from a file.

    Raises:
        InputError: unreadable, not valid TOML, or a value that `check_values` refuses.
    """
    try:
        document = tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: not valid TOML: {error}") from None
    except RecursionError:
        raise InputError(f"{path}: not valid TOML: nested too deeply; write it again") from None
    except ValueError:  # Python reads no integer of more than 4300 digits, and TOML knows dates that are none
        raise InputError(f"{path}: not valid TOML: a number or a date that is none; write it again") from None
    check_values(document, str(path))
    return document


def check_values(document: Any, source: str) -> None:
    """Refuse values that coresim cannot compute with or print, anywhere in a document.

    Raises:
        InputError: a number that is not finite or out of bounds (`coresim.units.in_bounds`), half of a surrogate pair
            in a text, or more than `MOST_DEPTH` lists and tables within each other.
    """
    level: list[Any] = [document]
    for _ in range(MOST_DEPTH):
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                below += [*value, *value.values()]
            elif isinstance(value, list):
                below += value
            else:
                _check_value(value, source)
        if not below:
            return
        level = below
    raise InputError(f"{source}: nested too deeply; write it again")


def _check_value(value: Any, source: str) -> None:
    if isinstance(value, str):
        if not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
            raise InputError(f"{source}: {short(value)} is no text: half of a surrogate pair; write it again")
    elif isinstance(value, int | float) and not in_bounds(value):
        bounds = f"0 or from {SMALLEST:g} to {LARGEST:g}"
        raise InputError(f"{source}: holds {short(value)}; a number is {bounds} in size; write it again")


def check_version(path: object, document: Mapping[str, Any], format_name: str, version: int) -> None:
    """Refuse a document of another format or of a newer version.

    Raises:
        InputError: another format, or no version.
        NewerFileError: a newer version than this coresim reads.
    """
    found = document.get("format")
    if found != format_name:
        raise InputError(f"{path}: format is {short(found)}, not {format_name!r}; is it the right file?")
    number = document.get("schema_version")
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise InputError(f"{path}: schema_version is {short(number)}; a positive integer is needed; write it again")
    if number > version:
        raise NewerFileError(
            f"{path}: schema_version {short(number)} is newer than this coresim reads ({version}); upgrade coresim"
        )


def renamed(value: Any, names: Mapping[str, str]) -> Any:
    """A document of an older version with its keys as they are called today; ``names``: today's by the old ones."""
    if isinstance(value, dict):
        return {names.get(key, key): renamed(item, names) for key, item in value.items()}
    plain = not isinstance(value, list) or not value or not isinstance(value[0], dict)
    return value if plain else [renamed(item, names) for item in value]


def as_record(kind: Any, value: Any) -> Any:
    """A value of that kind, restored from `dataclasses.asdict` and JSON: tables to dataclasses, lists to tuples.

    Raises:
        AttributeError, KeyError, TypeError: ``value`` is not of that kind.
    """
    inner = get_args(kind)
    if hasattr(kind, "__dataclass_fields__"):
        hints = _hints(kind)
        return kind(**{name: as_record(hints[name], item) for name, item in value.items()})
    if isinstance(kind, UnionType):
        return None if value is None else as_record(inner[0], value)
    if get_origin(kind) is tuple:
        plain = inner[0] in (int, float, str)
        return tuple(value) if plain else tuple(as_record(inner[0], item) for item in value)
    return value


_hints = functools.cache(get_type_hints)
