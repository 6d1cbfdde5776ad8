"""Steps of torch's optimizers, counted: the mark of a loop that trains.

The global hooks are called by fused, compiled, scaled and wrapped optimizers too, as tried with torch 2.13.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coresim.attaching.rank import AttachedRank


def count_steps(rank: AttachedRank) -> None:
    """Let all optimizers of the process tell the rank of their steps; nothing where torch has none yet."""
    optimizers = sys.modules.get("torch.optim.optimizer")
    if optimizers is None:
        return

    def stepped(*_: Any) -> None:
        rank.steps += 1

    rank.counted.append(optimizers.register_optimizer_step_post_hook(stepped))
