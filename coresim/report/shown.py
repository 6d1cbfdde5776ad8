"""How results are printed in Python and in notebooks."""

from __future__ import annotations

import html


class Shown:
    """A result whose ``__str__`` is its text; its ``repr`` is the first line, and a notebook shows the whole text."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {str(self).splitlines()[0]}>"

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"
