"""The line that an answer about a running program begins with: how it does today."""

from __future__ import annotations

from coresim.attach.today import Checked
from coresim.model.today import Today
from coresim.report.text import percent, plural, wrapped
from coresim.units import format_duration


def today_text(checked: Checked) -> str:
    """What was observed and what is predicted of it; where they differ by more than stated, that too."""
    today = checked.today
    idle = f"observed {percent(today.gpu_idle)}, predicted {percent(checked.predicted)}"
    line = f"Today: GPU idle {idle}; {today.samples_per_s:.0f} samples/s; {settings_words(today)}."
    lines = wrapped(line, "", "  ").splitlines()
    if not checked.trusted:
        miss = f"{100 * abs(checked.predicted - today.gpu_idle):.1f} points"
        lines.append(f"  Not to be trusted: the prediction misses by {miss}, more than {percent(checked.allowed)}.")
    return "\n".join(lines)


def settings_words(today: Today) -> str:
    """The settings that the program runs with."""
    words = [plural(today.workers, "worker")]
    if today.prefetch_factor:
        words.append(f"prefetch_factor {today.prefetch_factor}")
    words += [plural(today.threads, "hardware thread") + " allowed", plural(today.ranks, "rank")]
    words.append(f"a batch waits {format_duration(today.wait)} and steps {format_duration(today.step)}")
    return ", ".join(words)
