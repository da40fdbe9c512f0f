"""The directives of agents with hooks or a plugin are received once and exactly, in any Markdown."""

from __future__ import annotations

import pytest

from real_agents.model import Rule, Shell, Step
from real_agents.recipes import Agent
from real_agents.rig import Rig

URL = "https://example.com/" + "/".join(f"part-{number}" for number in range(40))

TEXT = f"""# A heading

@relay:you one: **bold**, `code` and *stress*

- a list
  1. that is nested

````md
```
@relay:you in a fence
```
@relay:you in the fence around it
````

@relay:you two: {URL}
@relay:you three: 漢字とかなが切れ目なく続いていく、とても長い一行の文章です。{"これは繰り返しです。" * 8}
@relay:you four: 👩‍👩‍👧 🇩🇪 👍🏽 “ünï”

| a | b |
|---|---|
| @relay:you | in a table |

@relay:you <<<
# five

- of several
  lines
>>>

**Bye.**"""

EXPECTED = [
    *(line.removeprefix("@relay:you ") for line in TEXT.splitlines() if line[:13] in {
        "@relay:you on", "@relay:you tw", "@relay:you th", "@relay:you fo"
    }),
    "# five\n\n- of several\n  lines",
]  # fmt: skip


@pytest.mark.agents("claude", "codex", "qwen", "opencode", "copilot")
def test_each_directive_is_received_once_in_any_markdown(rig: Rig, agent: Agent) -> None:
    """Before and after a tool, and after a resize, which makes the agent redraw everything."""
    alice = rig.wrap(
        agent,
        "Alice",
        Rule("^begin", Step(TEXT, calls=(Shell("echo @relay:you by a tool"),)), "@relay:you after the tool"),
        Rule("^again", f"Now:\n\n{TEXT}"),
        arguments=agent.free,
    )
    alice.say("begin now")
    rig.wait(lambda: len(rig.messages("you")) == len(EXPECTED) + 1, "all directives arrive")
    alice.becomes("ready")
    alice.terminal.resize(70, 30)
    alice.say("again please")
    rig.wait(lambda: len(rig.messages("you")) >= 2 * len(EXPECTED) + 1, "all directives arrive again")
    alice.becomes("ready")
    alice.terminal.resize(120, 40)
    alice.say("and the end")
    alice.sees("Done")
    alice.becomes("ready")
    assert [row["body"] for row in rig.messages("you")] == [*EXPECTED, "after the tool", *EXPECTED]


@pytest.mark.agents("opencode")
def test_without_the_plugin_the_screen_is_read(rig: Rig, agent: Agent) -> None:
    """With `--pure`, or a version that does not load it; `relay explain` shows that."""
    alice = rig.wrap(agent, "Alice", Rule("^begin", "@relay:you from the screen"), arguments=("--pure",))
    alice.say("begin now")
    rig.wait(lambda: rig.messages("you"), "the directive arrives")
    alice.becomes("ready")
    assert [row["body"] for row in rig.messages("you")] == ["from the screen"]
    bridge = alice.explain()["bridge"]
    assert "silent so far: relay reads the screen instead" in bridge
    assert "--pure" in bridge
