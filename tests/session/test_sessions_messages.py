"""Messages between real sessions."""

from __future__ import annotations

from session.puppet import Puppet, messages
from support import Relay, wait_until


def test_a_message_arrives_once_and_exactly(relay: Relay) -> None:
    """R46, R47."""
    alice, bob = Puppet(relay, "Alice").wrap(), Puppet(relay, "Bob").wrap()
    alice.say("@relay:Bob Hello,  Bob! 100% “quoted” $HOME\\n")
    bob.hears("[/relay")
    assert bob.texts() == [("Alice", "Hello,  Bob! 100% “quoted” $HOME\\n")]
    wait_until(lambda: [m["state"] for m in messages(relay)] == ["injected"])
    assert alice.heard == ""
