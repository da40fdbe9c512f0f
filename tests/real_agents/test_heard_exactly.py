"""Whatever stands around them and is done to the terminal, each directive is heard once, and exactly."""

from __future__ import annotations

import pytest

from real_agents.house import House, Wrapped
from real_agents.model import Rule, Shell, Step
from real_agents.recipes import Agent

WIDTHS = (80, 120, 60, 200, 80)
URL = "https://example.com/" + "/".join(f"part-{n}" for n in range(40)) + "?q=1&r=2#end"
LONG = " ".join(f"word{n}" for n in range(50))

REPLY = f"""# A heading

@relay:you below a heading, with **bold**, `code` and _emphasis_

Some **bold words** in a paragraph, and a list:

- an item
- another one

  @relay:you inside an item

1. a number

   ```sh
   @relay:you said in a fence of an item
   ```

@relay:you long {LONG}
@relay:you url {URL}

````md
```
@relay:you said in a fence in a fence
```
@relay:you said behind the inner fence
````

@relay:you 请检查这个文件。它很长，没有空格：{"漢字仮名交じり文" * 12} 🧑‍💻👍🏽🇩🇪 end

| a | b |
| --- | --- |
| @relay:you said | in a table |

> @relay:you said in a quote

@relay:you the same twice
@relay:you the same twice

@relay:you <<<
a block
  of *three* lines

with a blank one
>>>

\\@relay:you said behind a backslash
"""
BODIES = [
    "below a heading, with **bold**, `code` and _emphasis_",
    "inside an item",
    f"long {LONG}",
    f"url {URL}",
    f"请检查这个文件。它很长，没有空格：{'漢字仮名交じり文' * 12} 🧑‍💻👍🏽🇩🇪 end",
    "the same twice",
    "the same twice",
    "a block\n  of *three* lines\n\nwith a blank one",
]


def said(house: House) -> list[str]:
    return [row["body"] for row in house.messages("you")]


def resize(alice: Wrapped) -> None:
    """Give the terminal each width in turn, and see the agent draw itself there."""
    for columns in WIDTHS[1:]:
        written = len(alice.terminal.output)
        alice.terminal.resize(columns, 40)
        alice.house.wait(lambda written=written: len(alice.terminal.output) > written, "it is drawn again")
        alice.becomes("ready")


@pytest.mark.agents("claude", "codex", "qwen", "pi")
def test_each_directive_is_heard_once_and_exactly(house: House, agent: Agent) -> None:
    """Before and after a tool, in a long turn, and after resizes; what is none is never heard."""
    house.settings(teach="never")
    tool = Step(REPLY, calls=(Shell("echo @relay:you said by a tool"),))
    alice = house.wrap(
        agent,
        "Alice",
        Rule("^begin", tool, REPLY + "\n@relay:you last of the first turn"),
        Rule("^again", "@relay:you after the resizes"),
        arguments=agent.free,
        columns=WIDTHS[0],
    )
    alice.say("begin now")
    house.wait(lambda: "last of the first turn" in said(house), "all is heard")
    alice.becomes("ready")
    assert said(house) == [*BODIES, *BODIES, "last of the first turn"]
    resize(alice)
    alice.say("again now")
    house.wait(lambda: "after the resizes" in said(house), "what comes later is heard")
    alice.becomes("ready")
    assert said(house) == [*BODIES, *BODIES, "last of the first turn", "after the resizes"]
    assert not [each for each in alice.events("directive") if each.get("outcome") == "failed"]
