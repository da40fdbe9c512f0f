"""A kind of agent: what relay knows of it besides its pattern file. Each is a module of relay.agents.kinds.

prepare ── Run → Prepared                       its command line for one run: hooks, plug-ins, records
parse ──── the payload of a hook → NativeEvent
render ─── NativeEvent, Reply → what the hook prints
reader, failure, usage ── the lines of its transcripts → Said, Failed, Charge
door ───── Site → Door                          its own inbox
connect ── Run → Run                            relay's MCP server for one run
peers ──── Site → PeerList                      its own list of sessions
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from relay.agents import hook_event
from relay.agents.hook_event import NativeEvent, NativeName
from relay.agents.hook_reply import Parts, Reply, refusal
from relay.agents.hook_setup import Prepared, Run
from relay.agents.profile import PromptKind
from relay.agents.transcript_lines import Failed, LineReader, Said
from relay.agents.usage import UsageFormat

if TYPE_CHECKING:
    from relay.agents.door import Door, Site
    from relay.agents.peers import PeerList


class Markers(NamedTuple):
    """The variables that one kind of agent sets. All but those in `with_it` begin with the kind's name.

    variable: marks its programs. own: others that nobody else sets.
    with_it:  removed only together with the first, as the user may set it, too: a name, or NAME=VALUE.
    """

    variable: str
    own: tuple[str, ...] = ()
    with_it: tuple[str, ...] = ()


class AgentKind:
    """One kind of agent. The defaults are those of a program without hooks and transcripts.

    Hooks:

    events:   its hook events, by its own names for them.
    unasked:  events for which it calls no hook: each would cost a process, many times in a turn.
    replies:  the parts of a reply that it accepts, by event. It may refuse a whole reply for another key.
    refuses_plainly: a refusal is {"decision": "deny"} for every event.
    continues_with_context: at the end of a turn, context makes it continue; others take a "block".
    allows_changed_input: it takes another input of a tool only with permission, and still asks its user.
    dialogs:  the tools with which it asks its user something, and what each asks for.
    fields:   its fields in events that are called otherwise in NativeEvent, and their names there.
    notifications: the same for the types of its notifications.
    tools:    its own names of tools, by the tool's name in rules (relay.rules.tools).
    ranks_context_above_user: its model gets the context in a reply in a role above the user's.
    forgets_prompts: if the user takes a prompt back before the answer begins, the agent also forgets the
        context in the reply to that prompt's hook.
    decides_after_hook: its permission event precedes its own decision whether to ask; a notification reports
        the dialog.
    bequeaths_hooks: an agent of this kind that it starts in its shell calls the same hooks.
    stops_after_failure: it reports the end of a turn also after the failure of that turn.

    Transcripts:

    prompt:   what a transcript has once there is a prompt of the user: before, there is nothing to resume.
    transcript_is_ours: relay writes it, as a file of the run; the agent's own has the event's `session_file`.
    silent_turns: the turns in a row without a word in its record after which the record is not its own.
    omits_joiners: its transcripts lack the zero-width joiners that it draws.
    usage_is_timed: each line about usage has its time, so files are read from their beginning.

    markers: what it sets in the environment of the programs that it runs.
    door_since: its first version with a door (relay.agents.door), such as "2.1.224"; "": none has one.
    mcp_since:  its first version that takes relay's MCP server (relay.agents.mcp_server) for one run.
    """

    name: ClassVar[str] = ""
    events: ClassVar[Mapping[str, NativeName]] = {}
    unasked: ClassVar[frozenset[NativeName]] = frozenset()
    replies: ClassVar[Mapping[NativeName, Parts]] = {}
    refuses_plainly: ClassVar[bool] = False
    continues_with_context: ClassVar[bool] = False
    allows_changed_input: ClassVar[bool] = False
    dialogs: ClassVar[Mapping[str, PromptKind | None]] = hook_event.DIALOGS
    fields: ClassVar[Mapping[str, str]] = {}
    notifications: ClassVar[Mapping[str, str]] = {}
    tools: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    ranks_context_above_user: ClassVar[bool] = False
    forgets_prompts: ClassVar[bool] = False
    decides_after_hook: ClassVar[bool] = False
    bequeaths_hooks: ClassVar[bool] = False
    stops_after_failure: ClassVar[bool] = False
    prompt: ClassVar[re.Pattern[bytes]] = re.compile(rb'"(?:type|role)": ?"user"')
    transcript_is_ours: ClassVar[bool] = False
    silent_turns: ClassVar[int] = 1
    omits_joiners: ClassVar[bool] = False
    usage_is_timed: ClassVar[bool] = False
    markers: ClassVar[Markers | None] = None
    door_since: ClassVar[str] = ""
    mcp_since: ClassVar[str] = ""

    def prepare(self, run: Run) -> Prepared:
        """Return the command and environment to report with. Raise ConfigError, HomeError or OSError."""
        return Prepared(list(run.command), run.env)

    def connect(self, run: Run) -> Run | None:
        """Return `run`, which `prepare` has prepared, with relay's MCP server besides the user's own ones.

        Return None if this version takes none, or what the user has set is against it. Raise OSError.
        """
        return None

    def parse(self, event: str, payload: bytes | str) -> NativeEvent | None:
        """Return the event in `payload`, a JSON object; None for bad JSON and unknown events.

        event: as for `known`; if empty, the payload's own counts.
        """
        return hook_event.parse(self.name, self.known, self.fields, event, payload)

    def known(self, event: str) -> tuple[str, NativeName] | None:
        """Return its own name for `event` (in any case, or relay's name) and relay's; None if unknown."""
        return next(
            (each for each in self.events.items() if event.lower() in (each[0].lower(), each[1])), None
        )

    def notifies_of_dialog(self, event: NativeEvent) -> bool:
        """Return True for the notification that a dialog waits for the user's permission."""
        type = event.notification_type
        return self.notifications.get(type, type) == "permission_prompt"

    def carries(self, name: NativeName) -> Parts:
        """Return the parts that it accepts in the reply to an event `name`."""
        return self.replies.get(name, frozenset())

    def render(self, event: NativeEvent, reply: Reply) -> str:
        """Return the JSON for the standard output of its hook; "" for an empty reply."""
        carried = self.carries(event.name)
        deny = refusal(reply, carried)
        answer: dict[str, Any] = {}
        specific: dict[str, Any] = {}
        if reply.halt is not None and "halt" in carried:
            answer |= {"continue": False, "stopReason": reply.halt}
        elif deny is not None and "deny" in carried:
            why = deny or "It is not allowed here."  # a block without a reason does not count
            if self.refuses_plainly:
                answer |= {"decision": "deny", "reason": why}
            elif event.name is NativeName.TOOL_PRE:
                specific |= {"permissionDecision": "deny", "permissionDecisionReason": why}
            elif event.name is NativeName.PERMISSION:
                specific |= {"decision": {"behavior": "deny", "message": why}}
            else:
                answer |= {"decision": "block", "reason": why}
        elif reply.ask is not None and "ask" in carried:
            specific |= {"permissionDecision": "ask", "permissionDecisionReason": reply.ask}
        elif reply.allow and "allow" in carried:
            tool = event.name is NativeName.TOOL_PRE
            specific |= {"permissionDecision": "allow"} if tool else {"decision": {"behavior": "allow"}}
        elif reply.continuation is not None and "continuation" in carried:
            if self.continues_with_context:
                specific["additionalContext"] = reply.continuation or "Go on."
            else:
                answer |= {"decision": "block", "reason": reply.continuation or "Go on."}
        if reply.input is not None and "input" in carried and deny is None and not answer:
            specific["updatedInput"] = dict(reply.input)
            if self.allows_changed_input:
                specific["permissionDecision"] = "allow"
        if reply.context and "context" in carried and not answer:
            specific["additionalContext"] = reply.context
        if specific:
            answer["hookSpecificOutput"] = {"hookEventName": event.event, **specific}
        if reply.notice and "notice" in carried:
            answer["systemMessage"] = reply.notice
        return json.dumps(answer) if answer else ""

    def reader(self) -> LineReader | None:
        """Return a new reader of one of its transcripts; None if it has none."""
        return None

    def failure(self, line: bytes) -> Failed | None:
        """Return the failed turn that a complete line of a transcript reports; None for another line."""
        return None

    def subagent_transcript(self, transcript_path: str, agent_id: str) -> str:
        """Return the transcript of a subagent whose event names only `transcript_path`; "" if it has none."""
        return ""

    def speaker(self, said: Said) -> str:
        """Return what identifies the speaker of a text in transcripts and in stop events; "": the agent."""
        return said.subagent

    def runs_itself(self, event: NativeEvent) -> bool:
        """Return True for the event of a subagent that works for the program itself, not for its user."""
        return False

    def usage(self, totals: set[str]) -> UsageFormat | None:
        """Return a new reader of the usage in one transcript; None if it has none.

        totals: the same set for all transcripts of a run: it tells a subagent's counts from its parent's.
        """
        return None

    def subagent_folder(self, transcript: Path, session: str) -> Path | None:
        """Return the folder with the transcripts of a conversation's subagents; None if there is none."""
        return None

    def door(self, site: Site) -> Door | None:
        """Return the door of the agent at `site`, which is running; None if this kind has none."""
        return None

    def peers(self, site: Site) -> PeerList | None:
        """Return the list in which the agent at `site` finds others; None if this kind has none."""
        return None
