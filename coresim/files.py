"""Versioned files: written whole or not at all, read with errors that name file, key and remedy."""

from __future__ import annotations

import errno
import json
import os
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coresim.errors import CoresimError, InputError, NewerFileError


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write ``text`` to ``path``, whole or not at all; raises what `write_bytes` does."""
    write_bytes(path, text.encode())


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Write to ``path`` through a temporary file beside it, so that a full disk or Ctrl-C leaves no half.

    Raises:
        InputError: the path cannot be written.
        CoresimError: the disk is full.
    """
    target = Path(path)
    if target.exists() and not target.is_file():
        raise InputError(f"cannot write {target}: it is no regular file; name another")
    try:
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
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
        Path(temporary).unlink(missing_ok=True)
        kind = InputError if isinstance(error, PermissionError | IsADirectoryError) else CoresimError
        raise kind(f"cannot write {target}: {error.strerror}; nothing was written") from None
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_json(path: str | os.PathLike[str], document: Mapping[str, Any]) -> None:
    """Write a JSON document; NaN is refused, because it is not JSON."""
    write_text(path, json.dumps(document, indent=1, allow_nan=False) + "\n")


def read_text(path: str | os.PathLike[str]) -> str:
    """The text of a file.

    Raises:
        InputError: missing, unreadable, a folder, or not text.
    """
    try:
        return Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; check the path") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: not a text file; coresim reads JSON profiles and TOML scenarios") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None


def read_json(path: str | os.PathLike[str], text: str | None = None) -> dict[str, Any]:
    """A JSON object from a file (or from its ``text``, already read); a truncated one is named as such.

    Raises:
        InputError: unreadable, truncated, or not a JSON object.
    """
    text = read_text(path) if text is None else text
    try:
        document = json.loads(text, parse_constant=lambda name: _refuse_constant(path, name))
    except json.JSONDecodeError as error:
        what = "truncated" if error.pos >= len(text.rstrip()) else "not valid JSON"
        raise InputError(
            f"{path}: {what} at line {error.lineno}: {error.msg}; undo the last edit, or write it again"
        ) from None
    except RecursionError:
        raise InputError(f"{path}: not valid JSON: nested too deeply; write it again") from None
    if not isinstance(document, dict):
        raise InputError(f"{path}: holds a JSON {type(document).__name__}, not an object; is it a coresim file?")
    return document


def _refuse_constant(path: object, name: str) -> None:
    raise InputError(f"{path}: holds {name}, which is not a number; measure again")


def read_toml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """A TOML document from a file.

    Raises:
        InputError: unreadable or not valid TOML.
    """
    try:
        return tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: not valid TOML: {error}") from None


def check_version(path: object, document: Mapping[str, Any], format_name: str, version: int) -> None:
    """Refuse a document of another format or of a newer version.

    Raises:
        InputError: another format, or no version.
        NewerFileError: a newer version than this coresim reads.
    """
    found = document.get("format")
    if found != format_name:
        raise InputError(f"{path}: format is {found!r}, not {format_name!r}; is it the right file?")
    number = document.get("schema_version")
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise InputError(f"{path}: schema_version is {number!r}; a positive integer is needed; write it again")
    if number > version:
        raise NewerFileError(
            f"{path}: schema_version {number} is newer than this coresim reads ({version}); upgrade coresim"
        )
