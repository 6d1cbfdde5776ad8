"""What people read: text, tables, figures and documents, all rendered from the same result objects."""

from importlib import import_module
from types import ModuleType


def __getattr__(name: str) -> ModuleType:
    """Import what needs matplotlib or pandas, which take half a second to import, when it is first used."""
    if name not in ("figures", "tables"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")
