"""The presets as a text table, one in full, and as JSON-ready records."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from coresim.model.presets import Preset

_HEADER = ("preset", "option", "checked against", "by", "its settings")


def presets_table(presets: Sequence[Preset]) -> str:
    """One line per preset."""
    cells = [_HEADER, *(_cells(preset) for preset in presets)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in cells]
    legend = "by probe: the real one was run; source: its code was read. coresim presets NAME says what and where."
    return "\n".join([*(line.rstrip() for line in lines), "", legend])


def _cells(preset: Preset) -> tuple[str, ...]:
    options = ",".join(str(option) for option in preset.options)
    return preset.name, options, preset.framework, preset.checked, preset.settings.replace("{{", "{").replace("}}", "}")


def preset_text(preset: Preset) -> str:
    """One preset in full."""
    loader = ", ".join(f"{name} = {value!r}" for name, value in preset.loader.items())
    lines = [
        f"{preset.name}: {preset.system}",
        f"option: {', '.join(f'{option} ({option.label})' for option in preset.options)}",
        f"[loader]: {loader}",
        f"settings: {preset.settings}",
        f"checked against: {preset.framework}, by {preset.checked}: {preset.how}",
        f"leaves out: {preset.limits}",
    ]
    if preset.needs:
        lines.append(f"say beside it what the work then costs: {' or '.join(preset.needs)}")
    return "\n".join(textwrap.fill(line, 110, subsequent_indent="  ", break_long_words=False) for line in lines)


def presets_document(presets: Sequence[Preset]) -> dict[str, Any]:
    """The presets with every field, under a format name and version."""
    rows = [{**vars(preset), "loader": dict(preset.loader)} for preset in presets]
    return {"format": "coresim-presets", "schema_version": 1, "presets": rows}
