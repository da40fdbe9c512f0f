"""Each directive is received once and exactly, whatever surrounds it and whatever happens to the terminal."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

from real_agents.model import Rule, Shell, Step
from real_agents.recipes import Agent
from real_agents.rig import Rig, Wrapped

WIDTHS = (80, 120, 60, 200, 80)
PACE = 0.02
"""Seconds between two pieces of a reply. If all comes at once, opencode draws only the last page."""

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
NONE = [
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

UNRECORDED = {"gemini": "\N{ZERO WIDTH JOINER}"}
"""What an agent omits from its own record."""

LEAVES_TEXT_TWICE = {"aider"}
"""Agents whose live display sometimes fails to erase what they print above it, for the user as well."""

SAID = [*BODIES, *BODIES, "last of the first turn", "after the resizes"]


def said(rig: Rig) -> list[str]:
    return [row["body"] for row in rig.messages("you")]


def resize(alice: Wrapped) -> None:
    """Give the terminal each width in turn, and wait for the agent to redraw."""
    for columns in WIDTHS[1:]:
        written = len(alice.terminal.output)
        alice.terminal.resize(columns, 40)
        alice.rig.wait(lambda written=written: len(alice.terminal.output) > written, "it is drawn again")
        alice.becomes("ready")


def have_it_talk(rig: Rig, agent: Agent) -> None:
    """Have it say REPLY before and after a tool, and a line after resizes; wait for the end of each."""
    command, reply = "echo @relay:you said by a tool", REPLY
    tool = Step(reply, calls=(Shell(command),), pace=PACE)
    if toolless := agent.name == "aider":  # it offers to run shell commands in its text
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
    if toolless:
        for asks in (agent.permission, "Add command output"):
            alice.sees(asks)
            alice.becomes("prompting")
            alice.type("y\r")
        alice.becomes("ready")
        alice.say("go on now")
    rig.wait(lambda: "last of the first turn" in said(rig), "all is heard")
    alice.becomes("ready")
    resize(alice)
    alice.say("again now")
    rig.wait(lambda: "after the resizes" in said(rig), "what comes later is heard")
    alice.becomes("ready")
    assert not [each for each in alice.events("directive") if each.get("outcome") == "failed"]


def test_each_directive_is_heard_once_and_exactly(
    rig: Rig, agent: Agent, record_property: Callable[[str, object], None]
) -> None:
    """Directives come before and after a tool, in a long turn and after resizes; nothing else counts."""
    have_it_talk(rig, agent)
    record_property("received", ["its record", f"{len(SAID)} of {len(SAID)}", "", ""])
    assert said(rig) == [text.replace(UNRECORDED.get(agent.name, "\0"), "") for text in SAID]


def test_from_the_screen_alone_none_is_heard_twice_or_cut(
    rig: Rig, agent: Agent, record_property: Callable[[str, object], None]
) -> None:
    """The hooks and the record are off. Text that the drawing makes ambiguous cannot be told apart."""
    own = rig.relay.home / "config" / "patterns" / f"{agent.name}.toml"
    own.parent.mkdir(parents=True)
    own.write_text(f'name = "{agent.name}"\n[native]\nhooks = ""\ntranscript = ""\n')
    have_it_talk(rig, agent)
    heard, expected = Counter(map(drawn, said(rig))), Counter(map(drawn, SAID))
    missed, none = expected - heard, heard - expected
    names = {drawn(text): text for text in (*SAID, *NONE)}
    cells = [
        ", ".join(f"`{names.get(each, each).split(chr(10))[0][:32]}`" for each in sorted(some))
        for some in (missed, none)
    ]
    record_property("received", ["its screen", f"{(heard & expected).total()} of {expected.total()}", *cells])
    left = BODIES if agent.name in LEAVES_TEXT_TWICE else []
    assert set(none) <= set(map(drawn, [*NONE, *left])), "nothing is cut, or said twice"


def drawn(text: str) -> str:
    """Return a text without what agents omit or insert when they draw it."""
    return re.sub(r"[\s*_`]+", "", text)
