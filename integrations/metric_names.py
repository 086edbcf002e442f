"""Labels that come from clients, as parts of metric names."""

from __future__ import annotations

import re
import zlib

_MOST_LEFT_OUT = 1000
_MAX_LABEL_CHARS = 48
_UNFIT = re.compile(r"[^A-Za-z0-9_\-. ]")
_CHECKSUM = re.compile(r"-[0-9a-f]{8}$")


def metric_segment(label: str) -> str:
    """Return a label that comes from clients as one part of a metric's name.

    A label that had to be changed gets a checksum, so that two labels never share a name.

    Examples
    --------
    >>> metric_segment("code"), metric_segment("a/b")
    ('code', 'a_b-07f4401c')
    """
    if not label:
        return "unlabelled"
    fit = _UNFIT.sub("_", label[:_MAX_LABEL_CHARS]).strip(" .")
    if fit == label and fit != "unlabelled" and not _CHECKSUM.search(fit):
        return fit
    return f"{fit or 'label'}-{_checksum(label):08x}"


class BoundedNames:
    """The first so many labels ever seen, as parts of metric names: further ones get no name.

    Parameters
    ----------
    most
        Labels that get a name.

    Examples
    --------
    >>> names = BoundedNames(1)
    >>> names.of("code"), names.of("prose"), names.of("prose"), names.left_out
    ('code', None, None, 1)
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._names: dict[str, str] = {}
        self._left_out: set[int] = set()

    @property
    def left_out(self) -> int:
        """How many labels got no name; counted up to a thousand."""
        return len(self._left_out)

    def of(self, label: str) -> str | None:
        """Return the label's part of metric names, or None (counted) if there are too many."""
        name = self._names.get(label)
        if name is None:
            if len(self._names) >= self.most:
                if len(self._left_out) < _MOST_LEFT_OUT:
                    self._left_out.add(_checksum(label))
                return None
            name = self._names[label] = metric_segment(label)
        return name


def _checksum(label: str) -> int:
    return zlib.crc32(label.encode("utf-8", "backslashreplace"))
