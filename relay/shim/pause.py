"""The pause between two runs of an agent: the message to the user, and the keys."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from relay.shim.loop import Loop

CHOICE_DELAY = 1.0
"""Seconds into the pause until its keys are shown and count: earlier typing was meant for the agent, which
has just ended."""

CHOICE = "press r to restart it now, q to quit, d to detach."

_REPORTS = r"(?s)\x1b(?:[\]P_^X].*?(?:\x07|\x1b\\|$)|\[M...|[\[O][0-?]*[ -/]*[@-~]?|.|$)"
"""Control strings and sequences (ECMA-48, 5.4 and 5.6), X10 mouse reports, and keys with Alt."""


class Pause:
    """A pause after the agent `name`. offer: shows CHOICE once its keys count.

    text: the session's message about it.
    """

    def __init__(self, loop: Loop, name: str, offer: Callable[[], None]) -> None:
        self.text = ""
        self._name = name
        self._offer = offer
        self._offered = False
        self._timer = loop.later(CHOICE_DELAY, self._begin)

    @property
    def lines(self) -> list[str]:
        """The lines to show on a terminal that shows none of them yet."""
        return [f"{self._name} {self.text}", *([CHOICE] if self._offered else [])]

    def choice(self, keys: bytes) -> str:
        """Return the user's choice after the agent's end: "r", "q" (or Ctrl-C), "d", or "" for none."""
        if not self._offered:
            return ""
        import re  # there is time between two agents

        # The terminal's answers to the agent's queries and mouse reports are not a choice.
        typed = re.sub(_REPORTS, "", keys.decode("latin-1")).lower().replace("\x03", "q")
        return next((key for key in typed if key in "rqd"), "")

    def close(self) -> None:
        self._timer.cancel()

    def _begin(self) -> None:
        self._offered = True
        self._offer()
