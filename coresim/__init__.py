"""coresim: how many CPU cores does one GPU need to train this job, and is it cores at all?

``measure``, ``simulate``, ``recommend`` and ``plan`` do from Python what the verbs of the same names do in a terminal,
and ``write_report`` what ``report`` does; ``what_if`` shows sliders in a notebook, and ``attach`` measures the next
training loop of the process that calls it. ``recommend_for_steps`` answers if the time of a step is not known.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__version__ = "0.1.0"
__all__ = [
    "attach",
    "load",
    "measure",
    "plan",
    "recommend",
    "recommend_for_steps",
    "simulate",
    "what_if",
    "write_report",
]


def __getattr__(name: str) -> Any:
    """Import the public functions on first use, so that ``import coresim`` stays light."""
    if name in __all__:
        from coresim import api  # noqa: PLC0415

        return getattr(api, name)
    raise AttributeError(f"module 'coresim' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
