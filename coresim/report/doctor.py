"""What `coresim doctor` says: the usable cores term by term, what misleads on this host, and the optional parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from coresim.model.host import HostFacts, Part
from coresim.report.content import Facts, Section, Verbatim
from coresim.report.plain import answer_lines, section_text
from coresim.units import format_bytes


def cores_sentence(facts: HostFacts) -> str:
    """The minimum in words, such as ``usable cores 2 = min(affinity 2, quota none, physical 2)``."""
    return f"usable cores {facts.usable_cores:.4g} = min({', '.join(term.words for term in facts.terms)})"


def doctor_text(facts: HostFacts, parts: Sequence[Part]) -> str:
    """The report for a terminal, without a final newline."""
    terms = tuple(f"{term.words}: {term.explanation}" for term in facts.terms)
    warnings = [f"! {one.what}: {one.value}\n  remedy: {one.remedy}" for one in facts.warnings]
    return answer_lines(
        section_text(Section(cores_sentence(facts), (Verbatim("\n".join(terms)),))),
        Section("Host", (Facts(_host(facts)),)),
        Section(f"Warnings: {len(warnings) or 'none'}", (Verbatim("\n".join(warnings)),)),
        Section("Optional parts", (Verbatim("\n".join(map(_part_line, parts))),)),
    )


def doctor_dict(facts: HostFacts, parts: Sequence[Part]) -> dict[str, Any]:
    """The same for machines: one JSON-ready object, units in the keys."""
    return {
        "format": "coresim-doctor",
        "schema_version": 1,
        "usable_cores": facts.usable_cores,
        "summary": cores_sentence(facts),
        "host": facts.to_dict(),
        "parts": [asdict(part) for part in parts],
    }


def _host(facts: HostFacts) -> tuple[tuple[str, str], ...]:
    hints = ", ".join(f"{name}={value}" for name, value in facts.hints.items())
    return (
        ("CPU", facts.cpu_model or "unknown"),
        ("topology", _topology(facts)),
        ("NUMA nodes", f"{_count(facts.numa_nodes)} {' | '.join(facts.numa_cpus)}".rstrip()),
        ("cpuset", facts.cpuset_cpus or "none"),
        ("last-level cache", f"{_count(facts.last_level_caches)} of {_bytes(facts.last_level_cache_bytes)}"),
        ("memory", _memory(facts)),
        ("/dev/shm", f"{_bytes(facts.shm_bytes)}, {_bytes(facts.shm_free_bytes)} free"),
        ("other processes", _cores(facts.other_load_cores)),
        ("throttled", _share(facts.throttled_fraction, "of quota periods")),
        ("stolen", _share(facts.steal_fraction, "of wanted CPU time since boot")),
        ("hints", hints or "none"),
        ("fingerprint", facts.fingerprint),
    )


def _topology(facts: HostFacts) -> str:
    kind = {True: "virtual", False: "bare metal or hidden hypervisor", None: "virtual or not: unknown"}
    return (
        f"sockets {_count(facts.sockets)}, physical cores {_count(facts.physical_cores)}, "
        f"threads per core {_count(facts.threads_per_core)}, hardware threads {_count(facts.logical_cpus)}; "
        f"{kind[facts.hypervisor]}"
    )


def _memory(facts: HostFacts) -> str:
    limit = "none" if facts.memory_limit_bytes is None else format_bytes(facts.memory_limit_bytes)
    return (
        f"{_bytes(facts.memory_bytes)}, {_bytes(facts.memory_available_bytes)} available, control-group limit {limit}"
    )


def _part_line(part: Part) -> str:
    state = "yes" if part.present else "no "
    version = f" {part.version}" if part.version else ""
    remedy = f"; {part.remedy}" if part.remedy else ""
    return f"{state} {part.name}{version}: {part.detail}{remedy}"


def _count(value: int | None) -> str:
    return "unknown" if value is None else str(value)


def _bytes(value: int | None) -> str:
    return "unknown" if value is None else format_bytes(value)


def _cores(value: float | None) -> str:
    return "unknown" if value is None else f"keep {value:.2g} of these cores busy"


def _share(value: float | None, of_what: str) -> str:
    return "unknown" if value is None else f"{value:.1%} {of_what}"
