"""Records of JSON documents: each key is declared once, with its schema and the source of its value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

SCHEMA_VERSION = 2
#: What stands for a value's schema in `Key.kind`; with "?" behind it the value may be null.
KINDS: Mapping[str, Mapping[str, Any]] = {
    "text": {"type": "string"},
    "truth": {"type": "boolean"},
    "table": {"type": "object"},
    "number": {"type": "number"},
    "amount": {"type": "number", "minimum": 0},
    "share": {"type": "number", "minimum": 0, "maximum": 1},
    "whole": {"type": "integer", "minimum": 0},
    "option": {"enum": [1, 2, 3]},
}


class Key(NamedTuple):
    """One key of a record.

    Attributes:
        name: the key, with its unit where it has one.
        kind: one of `KINDS`, perhaps with "?"; or a JSON schema; or the `Record` that the value is.
        source: the path of attributes to the value, or a function of the object; "": the attribute of the key's name.
        each: whether the value is a list, of such values.
        null: whether the value may be null, if ``kind`` is not a text.
    """

    name: str
    kind: str | Mapping[str, Any] | Record
    source: str | Callable[[Any], Any] = ""
    each: bool = False
    null: bool = False

    def read(self, found: Any) -> Any:
        """The value, JSON-ready; None if an attribute on the way to it is None."""
        if isinstance(self.kind, Mapping) and "const" in self.kind:
            return self.kind["const"]
        value = self.source(found) if callable(self.source) else _attribute(found, self.source or self.name)
        if self.each:
            return [self._write(item) for item in value]
        return None if value is None else self._write(value)

    def _write(self, value: Any) -> Any:
        return self.kind.write(value) if isinstance(self.kind, Record) else value

    def schema(self) -> dict[str, Any]:
        """JSON schema of the value."""
        null = self.null
        if isinstance(self.kind, str):
            found, null = dict(KINDS[self.kind.removesuffix("?")]), self.kind.endswith("?")
        else:
            found = self.kind.schema() if isinstance(self.kind, Record) else dict(self.kind)
        if self.each:
            return {"type": "array", "items": found}
        return or_null(found) if null else found


class Record:
    """The keys of one JSON object, in their order."""

    def __init__(self, *keys: Key) -> None:
        self.keys = keys

    def write(self, found: Any, **given: Any) -> dict[str, Any]:
        """The object of what was found; ``given``: values that come from elsewhere, by key."""
        return {key.name: given[key.name] if key.name in given else key.read(found) for key in self.keys}

    def schema(self, title: str = "") -> dict[str, Any]:
        """JSON schema: every key is always there; its value is null if it is not known."""
        properties = {key.name: key.schema() for key in self.keys}
        schema: dict[str, Any] = {"type": "object", "properties": properties, "required": list(properties)}
        head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title}
        return head | schema if title else schema


def keys(kind: str, *names: str, of: str = "") -> tuple[Key, ...]:
    """Keys of one kind, each the attribute of its name; ``of``: the path to the object that has them."""
    return tuple(Key(name, kind, f"{of}.{name}" if of else name) for name in names)


def constant(name: str, value: Any) -> Key:
    """A key that has the same value in every document."""
    return Key(name, {"const": value})


def or_null(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of such a value or of null."""
    if "enum" in schema:
        return {"enum": [*schema["enum"], None]}
    return {**schema, "type": [schema["type"], "null"]}


#: The first key of a document.
VERSION = constant("schema_version", SCHEMA_VERSION)


def _attribute(found: Any, path: str) -> Any:
    for name in path.split("."):
        found = None if found is None else getattr(found, name)
    return found
