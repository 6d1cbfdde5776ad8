"""Loader presets as data: the ``[loader]`` keys that a framework's loader stands for."""

from __future__ import annotations

from typing import Any

#: PyTorch: torch/utils/data/dataloader.py (2.13): ``_try_put_index`` deals batches round robin, one more at each
#: pick-up; ``_next_data`` delivers in order unless ``in_order=False``.
PRESETS: dict[str, dict[str, Any]] = {
    "pytorch": {"dispatch": "round_robin", "ordered": True},
    "pytorch-unordered": {"dispatch": "round_robin", "ordered": False},
}
