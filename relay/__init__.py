"""relay: wrap any agent CLI in a pseudo-terminal and let agents talk.

    from relay import pattern, on            # in a relay.config.py
    from relay import Relay, connect         # in your own program

The names below are loaded when they are first used (PEP 562): `import relay` itself loads nothing.
"""

TYPE_CHECKING = False  # importing typing costs every command 7 ms; type checkers know the name
if TYPE_CHECKING:
    from relay.api import Context as Context
    from relay.api import HookResult as HookResult
    from relay.api import MemoryConfig as MemoryConfig
    from relay.api import RelayConfig as RelayConfig
    from relay.api import on as on
    from relay.api import pattern as pattern
    from relay.errors import RelayError as RelayError
    from relay.membership import connect as connect
    from relay.program import Relay as Relay

__all__ = [
    "Context",
    "HookResult",
    "MemoryConfig",
    "Relay",
    "RelayConfig",
    "RelayError",
    "connect",
    "on",
    "pattern",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'relay' has no attribute {name!r}")
    import importlib

    module = {"Relay": "relay.program", "connect": "relay.membership"}.get(name, "relay.api")
    value: object = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
