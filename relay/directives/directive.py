"""A directive: the request that an agent made with `@namespace:target body`."""

from __future__ import annotations

from relay.dataclass import dataclass
from relay.place import Place


@dataclass(frozen=True, slots=True)
class Directive:
    """One directive.

    namespace: lower case, `[a-z][a-z0-9_-]*`.
    target:    one word as it was written, without trailing `, : ; .`; may be `*` or `#channel`.
    body:      the text, escapes applied; newlines only from the `<<<` form.
    time:      seconds, on the reader's clock.
    place:     of the line that ends it.
    unclosed:  a `<<<` form that the end of the turn closed; the sender is notified.
    """

    namespace: str
    target: str
    body: str
    time: float
    place: Place
    unclosed: bool = False
