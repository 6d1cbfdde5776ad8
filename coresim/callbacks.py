"""Trainer callbacks that print, at the end of a training, how long its loop waited for its loader.

    trainer = lightning.Trainer(callbacks=[coresim.callbacks.for_lightning()])
    trainer = transformers.Trainer(..., callbacks=[coresim.callbacks.for_transformers()])

Nothing is measured and nothing is changed: the loop is watched, at a few microseconds a batch. For the cores that it
needs, run ``coresim recommend -- python train.py``. If /proc cannot be read, a training with such a callback raises
`coresim.errors.MissingPartError` when it begins.
"""

from __future__ import annotations

from typing import Any

from coresim.attaching.here import Attached, watch_here
from coresim.report.today import waited_section


def for_lightning() -> Any:
    """A ``lightning.Callback``; MissingPartError where torch is not installed."""
    from lightning import Callback  # noqa: PLC0415 - only who trains with it has it

    class Today(Callback):  # type: ignore[misc,unused-ignore]
        def on_train_start(self, *_: Any) -> None:
            self.seen = watch_here()

        def on_train_end(self, trainer: Any, *_: Any) -> None:
            tell(self.seen, trainer.is_global_zero)

    return Today()


def for_transformers() -> Any:
    """A ``transformers.TrainerCallback``; MissingPartError where torch is not installed."""
    from transformers import TrainerCallback  # noqa: PLC0415 - only who trains with it has it

    class Today(TrainerCallback):  # type: ignore[misc,unused-ignore]
        def on_train_begin(self, *_: Any, **__: Any) -> None:
            self.seen = watch_here()

        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            tell(self.seen, state.is_world_process_zero)

    return Today()


def tell(seen: Attached, first: bool) -> None:
    """Take the hooks away, and let the first rank print the line."""
    seen.detach()
    if first:
        print(waited_section(seen.watched).words)  # noqa: T201 - a callback has nobody else to tell
