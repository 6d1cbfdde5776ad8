"""The settings of a job's own ``DataLoader``: the loader as it is today."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from coresim.model.keys import COUNT, COUNT_OR_NONE, FLAG, TEXT, key
from coresim.model.scenario import Loader


@dataclass(frozen=True, kw_only=True)
class LoaderSettings:
    """The settings, by torch's names where those of coresim are not shorter."""

    workers: int = key(COUNT_OR_NONE, "loader workers of each rank")
    prefetch_factor: int | None = key(COUNT, "batches out per worker", None)
    pin_memory: bool = key(FLAG, "whether it asks for a thread that copies batches to pinned memory", False)
    can_pin: bool = key(FLAG, "whether there was a device to pin memory for; without one torch pins nothing", True)
    persistent_workers: bool = key(FLAG, "whether workers live from epoch to epoch", False)
    in_order: bool = key(FLAG, "whether batches are delivered in order", True)
    context: str | None = key(TEXT, "how workers are started; absent where it is the system's usual way", None)

    def loader_fields(self) -> dict[str, Any]:
        """The fields of a scenario's loader that these settings give."""
        found: dict[str, Any] = {
            "workers": self.workers,
            "pin_memory": self.pin_memory,
            "persistent_workers": self.persistent_workers,
            "ordered": self.in_order,
        }
        return found | ({"prefetch_factor": self.prefetch_factor} if self.prefetch_factor else {})

    def describes(self, loader: Loader) -> bool:
        """Whether a scenario's loader has the workers, the prefetch factor and the order of these settings."""
        factor = self.prefetch_factor in (None, loader.prefetch_factor)
        return self.workers == loader.workers and factor and self.in_order == loader.ordered

    def __str__(self) -> str:
        """The settings as they are written in a program, and which of them torch does not follow."""
        pins = "True (no device here: torch pins nothing)" if self.pin_memory and not self.can_pin else self.pin_memory
        given = {
            "num_workers": self.workers,
            "prefetch_factor": self.prefetch_factor,
            "pin_memory": pins,
            "persistent_workers": self.persistent_workers,
            "in_order": None if self.in_order else False,
            "multiprocessing_context": self.context and repr(self.context),
        }
        return ", ".join(f"{name}={value}" for name, value in given.items() if value is not None)
