"""Which rules the person has switched off: their ids, in a file of the home."""

from __future__ import annotations

import json
from collections.abc import Iterable

from relay.errors import HomeError
from relay.home import Home
from relay.storage.files import rewrite

_KEY = "disabled"


class Disabled:
    """`{"disabled": [ID, ...]}`, for all sessions of a home."""

    def __init__(self, home: Home) -> None:
        self._path = home.disabled_rules

    def read(self) -> frozenset[str]:
        """The ids. Raises HomeError for a file that cannot be read: then every rule is on."""
        try:
            ids = json.loads(self._path.read_bytes())[_KEY]
            if not all(isinstance(each, str) for each in ids):
                raise TypeError
            return frozenset(ids)
        except FileNotFoundError:
            return frozenset()
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            raise HomeError(
                f"{self._path} cannot be read, and every rule is on. Delete it, then disable rules anew."
            ) from None

    def switch(self, ids: Iterable[str], *, off: bool) -> None:
        """Switch rules off or on. Raises HomeError."""
        chosen = frozenset(ids)

        def text() -> str:
            now = self.read() | chosen if off else self.read() - chosen
            return json.dumps({_KEY: sorted(now)}, indent=2) + "\n"

        rewrite(self._path, text)
