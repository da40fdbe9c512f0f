"""The functions and numbers of `signal` without its enums, which would add 4 ms to an agent's start."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from signal import *  # noqa: F403 (whatever it has)
else:
    from _signal import *  # noqa: F403
