"""An agent's supervision is passed to its session as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict

from relay.supervision.policy import Action, Supervision


def test_supervision_survives_json() -> None:
    supervision = Supervision(
        restart="on-failure",
        success_exit_codes=(0, 3),
        on_idle=Action("nudge", text="Go on.", attempts=2),
        on_error=(Action("wait", match="rate_limited"),),
    )
    assert Supervision.from_json(json.loads(json.dumps(asdict(supervision)))) == supervision


def test_unknown_keys_are_ignored() -> None:
    assert Supervision.from_json({"restart": "always", "of_tomorrow": 1}) == Supervision(restart="always")
