"""The functions and numbers of `signal`, which wraps them in enums: to load these costs an agent 4 ms."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from signal import *  # noqa: F403 (whatever it has)
else:
    from _signal import *  # noqa: F403
