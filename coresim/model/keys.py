"""Keys of a hand-written file: each is declared once, with how it is read and written, what it means and its schema."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, TypeVar

from coresim.errors import InputError, UnknownKeyError, did_you_mean
from coresim.units import LARGEST, in_bounds, parse_duration, short, visible

Section = TypeVar("Section")
#: The largest whole number: more samples than anyone has, and still exact as a float.
MOST = 10**12
#: The largest number of anything that a host has or a loader runs, because each is simulated.
MOST_PARTS = 10**4
#: Largest relative standard uncertainty: what is less certain is not known at all.
MOST_UNCERTAIN = 10.0
#: Words that people use for a key of another section.
ELSEWHERE = dict.fromkeys(("gpus", "gpu", "gpu_count", "num_gpus", "n_gpus", "ngpus"), "accelerator.count")


@dataclass(frozen=True)
class Kind:
    """How a value is read from a file, its JSON schema, and how it is written."""

    read: Callable[[object, str], Any]
    schema: Mapping[str, Any]
    write: Callable[[Any], Any] = lambda value: value


def _whole(least: int, most: int = MOST) -> Kind:
    def read(value: object, where: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise InputError(f"{where} = {short(value)}: a whole number from {least} to {most:g} is needed")
        return value

    return Kind(read, {"type": "integer", "minimum": least, "maximum": most})


def real(low: float, high: float = LARGEST, above: bool = False) -> Kind:
    """A number from ``low`` (or above it) to ``high``."""

    def read(value: object, where: str) -> float:
        number = value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
        if not (low < number if above else low <= number) or number > high or not in_bounds(number):
            bounds = f"{'above' if above else 'at least'} {low:g} and at most {high:g}"
            raise InputError(f"{where} = {short(value)}: a number {bounds} is needed")
        return float(number)

    return Kind(read, {"type": "number", "exclusiveMinimum" if above else "minimum": low, "maximum": high})


def choice(*names: str) -> Kind:
    """One of a few words."""

    def read(value: object, where: str) -> str:
        if value not in names:
            hint = did_you_mean(short(value).strip("'"), names)
            raise InputError(f"{where} = {short(value)}: use one of {', '.join(names)}{hint}")
        return str(value)

    return Kind(read, {"enum": list(names)})


def list_of(kind: Kind, what: str = "a list of at least one value", least: int = 1) -> Kind:
    """A list, of at least one value unless ``least`` is 0."""

    def read(value: object, where: str) -> tuple[Any, ...]:
        if not isinstance(value, list) or len(value) < least:
            example = "[1.0]" if kind.schema.get("type") == "number" else "[...]"
            example = f"[{short(value)}]" if isinstance(value, str) and kind is TEXT else example
            raise InputError(f"{where} = {short(value)}: {what} is needed; write {example}")
        return tuple(kind.read(item, f"{where}[{index}]") for index, item in enumerate(value))

    schema = {"type": "array", "items": kind.schema, "minItems": least}
    return Kind(read, schema, lambda values: [kind.write(value) for value in values])


def table_of(kind: Kind) -> Kind:
    """A table of any names."""

    def read(value: object, where: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise InputError(f"{where} = {short(value)}: a table of names and values is needed")
        return {name: kind.read(item, f"{where}.{name}") for name, item in value.items()}

    return Kind(read, {"type": "object", "additionalProperties": kind.schema})


def _read_flag(value: object, where: str) -> bool:
    if not isinstance(value, bool):
        raise InputError(f"{where} = {short(value)}: true or false is needed")
    return value


def _read_text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise InputError(f"{where} = {short(value)}: a text is needed")
    if visible(value) != value or "\n" in value:
        raise InputError(f"{where} = {short(value)}: holds a control character; write it without")
    return value


def _read_uncertainties(value: object, where: str) -> tuple[float, ...]:
    return _UNCERTAINTY_LIST.read(value, where) if isinstance(value, list) else (UNCERTAINTY.read(value, where),)


COUNT, COUNT_OR_NONE = _whole(1), _whole(0)
#: Bytes and hertz of a machine.
LARGE = _whole(0, int(LARGEST))
PARTS, PARTS_OR_NONE = _whole(1, MOST_PARTS), _whole(0, MOST_PARTS)
POSITIVE, NOT_NEGATIVE, FRACTION = real(0, above=True), real(0), real(0, 1)
#: The largest share of several cores' time that may be lost: two cores still do more than one and a half without loss.
MOST_LOST = 0.25
LOST = real(0, MOST_LOST)
#: Relative standard uncertainty.
UNCERTAINTY = real(0, MOST_UNCERTAIN)
#: What a time or a speed is multiplied by.
FACTOR = real(1e-6, 1e6)
FLAG, TEXT = Kind(_read_flag, {"type": "boolean"}), Kind(_read_text, {"type": "string"})
TABLE = list_of(FACTOR, "a list of positive numbers")
_UNCERTAINTY_LIST = list_of(UNCERTAINTY, "a number, or a list of them,")
UNCERTAINTIES = Kind(_read_uncertainties, {"anyOf": [UNCERTAINTY.schema, _UNCERTAINTY_LIST.schema]}, list)
DURATION = Kind(
    parse_duration, {"type": "string", "pattern": "^[0-9.eE+-]+ *(ns|us|µs|ms|s|min|h)$"}, lambda value: f"{value!r} s"
)


def key(kind: Kind, doc: str, default: Any = MISSING) -> Any:
    """Declare a key of a section (a dataclass field); without a default it is required."""
    metadata = {"kind": kind, "doc": doc}
    return field(metadata=metadata) if default is MISSING else field(default=default, metadata=metadata)


def read_section(section: type[Section], table: object, where: str) -> Section:
    """A section from its table.

    Raises:
        UnknownKeyError: a key that the section does not have; the nearest known one is named.
        InputError: a missing or bad value.
    """
    if not isinstance(table, dict):
        raise InputError(f"{where} = {short(table)}: a table is needed, such as [{where}]")
    known = _known(section, table, where)
    missing = [name for name, item in known.items() if item.default is MISSING and name not in table]
    if missing:
        raise InputError(f"{where}.{missing[0]}: missing; {known[missing[0]].metadata['doc']}")
    return section(
        **{name: known[name].metadata["kind"].read(value, f"{where}.{name}") for name, value in table.items()}
    )


def check_part(section: type[Any], table: Mapping[str, Any], where: str) -> None:
    """Refuse, as `read_section` does, unknown keys and bad values of a table that is only a part of a section.

    A key that is a table of its own may be a part, too, and its entries are not looked at.
    """
    known = _known(section, table, where)
    for name, value in table.items():
        if not isinstance(value, dict):
            known[name].metadata["kind"].read(value, f"{where}.{name}")


def check_section(section: Any, where: str) -> None:
    """InputError unless every value of the section is one that a file may give."""
    read_section(type(section), write_section(section), where)


def _keys(section: Any) -> dict[str, Field[Any]]:
    """The keys of a section or of its kind, by name."""
    return {item.name: item for item in fields(section) if "kind" in item.metadata}


def _known(section: type[Any], table: Mapping[str, Any], where: str) -> dict[str, Field[Any]]:
    """The keys of a section, when the table has no others."""
    known = _keys(section)
    for name in table:
        if name not in known:
            raise UnknownKeyError(unknown_key(f"{where}.{name}", name, known))
    return known


def section(kind: type[Any]) -> Kind:
    """A table of its own within a section."""
    return Kind(lambda value, where: read_section(kind, value, where), section_schema(kind), write_section)


def unknown_key(where: str, name: str, known: Mapping[str, Any]) -> str:
    """The message for a key that is not known."""
    near = difflib.get_close_matches(name, known, 1) or ([ELSEWHERE[name]] if name in ELSEWHERE else [])
    remedy = f"did you mean {near[0]!r}?" if near else f"use {', '.join(known)}"
    return f"{where}: unknown key; {remedy}"


def write_section(section: Any, defaults: bool = False) -> dict[str, Any]:
    """The table that `read_section` reads back to an equal section; without ``defaults`` it leaves these out."""
    table: dict[str, Any] = {}
    for name, item in _keys(section).items():
        value = getattr(section, name)
        if value is not None and (defaults or item.default is MISSING or value != item.default):
            table[name] = item.metadata["kind"].write(value)
    return table


def section_schema(section: Any) -> dict[str, Any]:
    """JSON schema of a section."""
    known, about = _keys(section), {}
    for name, item in known.items():
        about[name] = {**item.metadata["kind"].schema, "description": item.metadata["doc"]}
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": about,
        "required": [name for name, item in known.items() if item.default is MISSING],
    }
