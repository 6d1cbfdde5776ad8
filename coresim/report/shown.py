"""How a result shows itself in Python and in a notebook."""

from __future__ import annotations

import html


class Shown:
    """A result whose ``__str__`` is its text: one line of it as its name, and the whole text in a notebook."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {str(self).splitlines()[0]}>"

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"
