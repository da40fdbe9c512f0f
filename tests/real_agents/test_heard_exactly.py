"""Each directive is received once and exactly, in any Markdown and across resizes of the terminal."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

from real_agents.model import Rule, Shell, Step
from real_agents.recipes import Agent
from real_agents.rig import Rig, Wrapped

WIDTHS = (80, 120, 60, 200, 80)
PACE = 0.02
"""Seconds between two pieces of a reply. If it arrives at once, opencode draws only the last page."""

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
NOT_DIRECTIVES = [
    "said in a fence of an item",
    "said in a fence in a fence",
    "said behind the inner fence",
    "said by a tool",
    "said in a table",
    "said",  # in a table
    "said in a quote",
    "said behind a backslash",
]
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

DRAWS_TEXT_TWICE = {"aider"}
"""Agents that sometimes leave text on the screen twice, because they do not erase their live display."""

EXPECTED = [*BODIES, *BODIES, "last of the first turn", "after the resizes"]


def received(rig: Rig) -> list[str]:
    return [row["body"] for row in rig.messages("you")]


def resize(alice: Wrapped) -> None:
    """Give the terminal each width in turn, and wait for the agent to redraw."""
    for columns in WIDTHS[1:]:
        written = len(alice.terminal.output)
        alice.terminal.resize(columns, 40)
        alice.rig.wait(lambda written=written: len(alice.terminal.output) > written, "it is redrawn")
        alice.becomes("ready")


def converse(rig: Rig, agent: Agent) -> None:
    """Make the agent say REPLY before and after a tool, and a line after resizes; wait for each."""
    command, reply = "echo @relay:you said by a tool", REPLY
    tool = Step(reply, calls=(Shell(command),), pace=PACE)
    if without_tools := agent.name == "aider":  # it offers to run shell commands in its text
        reply = REPLY.replace("```sh", "```text")
        tool = Step(f"{reply}\n```bash\n{command}\n```\n", pace=PACE)
    last = Step(reply + "\n@relay:you last of the first turn", pace=PACE)
    alice = rig.wrap(
        agent,
        "Alice",
        Rule("^begin", tool, last),
        Rule("^go on", last),
        Rule("^again", "@relay:you after the resizes"),
        arguments=agent.free,
        columns=WIDTHS[0],
    )
    alice.say("begin now")
    if without_tools:
        for asks in (agent.permission, "Add command output"):
            alice.sees(asks)
            alice.becomes("prompting")
            alice.type("y\r")
        alice.becomes("ready")
        alice.say("go on now")
    rig.wait(lambda: "last of the first turn" in received(rig), "all directives arrive")
    alice.becomes("ready")
    resize(alice)
    alice.say("again now")
    rig.wait(lambda: "after the resizes" in received(rig), "the directive after the resizes arrives")
    alice.becomes("ready")
    assert not [each for each in alice.events("directive") if each.get("outcome") == "failed"]


def test_each_directive_is_received_once_and_exactly(
    rig: Rig, agent: Agent, record_property: Callable[[str, object], None]
) -> None:
    """Before and after a tool, in a long turn and after resizes; nothing else is a directive."""
    converse(rig, agent)
    record_property("received", ["its record", f"{len(EXPECTED)} of {len(EXPECTED)}", "", ""])
    assert received(rig) == EXPECTED


def test_from_the_screen_alone_no_directive_is_cut_or_received_twice(
    rig: Rig, agent: Agent, record_property: Callable[[str, object], None]
) -> None:
    """Without hooks and record. Some text is ambiguous as drawn."""
    own = rig.relay.home / "config" / "patterns" / f"{agent.name}.toml"
    own.parent.mkdir(parents=True)
    own.write_text(f'name = "{agent.name}"\n[native]\nhooks = ""\ntranscript = ""\n')
    converse(rig, agent)
    seen, expected = Counter(map(drawn, received(rig))), Counter(map(drawn, EXPECTED))
    missed, spurious = expected - seen, seen - expected
    names = {drawn(text): text for text in (*EXPECTED, *NOT_DIRECTIVES)}
    cells = [
        ", ".join(f"`{names.get(each, each).split(chr(10))[0][:32]}`" for each in sorted(some))
        for some in (missed, spurious)
    ]
    record_property("received", ["its screen", f"{(seen & expected).total()} of {expected.total()}", *cells])
    left = BODIES if agent.name in DRAWS_TEXT_TWICE else []
    assert set(spurious) <= set(map(drawn, [*NOT_DIRECTIVES, *left])), (
        "no directive may be cut or received twice"
    )


def drawn(text: str) -> str:
    """Return a text without the characters that agents omit or insert as they draw it."""
    return re.sub(r"[\s*_`]+", "", text)
