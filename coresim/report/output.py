"""Reports as files; the ending of the name sets the format."""

from __future__ import annotations

import os
from pathlib import Path

from coresim.errors import InputError
from coresim.files import write_bytes
from coresim.report.content import Report

FORMATS = (".html", ".md", ".pdf")


def format_of(path: str | os.PathLike[str]) -> str:
    """The format by the ending of the name; InputError if it is none of `FORMATS`."""
    found = Path(path).suffix.lower()
    if found not in FORMATS:
        raise InputError(f"{path}: cannot tell the format of the report; end the name with {', '.join(FORMATS)}")
    return found


def write_report(report: Report, path: str | os.PathLike[str]) -> None:
    """Write the report, whole or not at all; InputError for an unknown format or a path that cannot be written."""
    kind = format_of(path)
    # Each format has its own heavy packages.
    if kind == ".pdf":
        from coresim.report.pdf import report_pdf  # noqa: PLC0415

        content = report_pdf(report)
    elif kind == ".md":
        from coresim.report.markdown import report_markdown  # noqa: PLC0415

        content = report_markdown(report).encode()
    else:
        from coresim.report.html import report_html  # noqa: PLC0415

        content = report_html(report).encode()
    write_bytes(path, content)
