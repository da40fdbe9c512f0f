"""Trajectories: the task, phases and messages of each agent, recorded by the real `trail` command.

README.md says what is recorded where. trajectory.py next to this file runs trail.
"""

import re
import shlex
from pathlib import Path

from trajectory import LIMIT, Trajectory

from relay import HookResult, on

PHASES = {
    "planning": "plan",
    "designing": "design",
    "implementing": "implement",
    "testing": "test",
    "observing": "observe",
}

# A phase begins when a sentence says so: "Now testing the parser.", "I'm designing", "Let me start
# implementing", "Testing whether it holds", "Phase: observe". "Testing is hard" does not count, nor do lists,
# headings and quotations.
DOING = rf"(?P<doing>{'|'.join(PHASES)})\b(?![-/_])"
LEAD = r"(?:(?:okay|ok|alright|so|now|next|first|then|finally|currently)[,:]?\s+)*"
WE_ARE = r"(?:I['’]m|I\s+am|we['’]re|we\s+are)\s+(?:(?:now|currently|still|just)\s+)*"
LET_ME = r"(?:(?:I['’]ll|I\s+will|I['’]m\s+going\s+to|let\s+me|let['’]s|time\s+to)\s+)?(?:now\s+)?"
BEGIN = (
    r"(?:start|begin|beginn|continu|resum|switch|mov|go)(?:e|ing)?(?:\s+(?:on|back|over|now|to|with|by))*\s+"
)
NO_VERB = (
    r"(?!\s+(?:is|was|are|were|has|had|can|will|would|should|must|done|finished|complete|passed|failed)\b)"
)
OBJECT = r"(?=\s+(?:the|a|an|my|our|this|that|these|those|it|its|now|whether|if|how|what)\b)"
DECLARATIONS = [
    re.compile(rf"[*_]*{pattern}", re.IGNORECASE)
    for pattern in (
        rf"phase[*_]*:[*_\s]*(?P<doing>{'|'.join([*PHASES, *PHASES.values()])})\b",
        rf"{LEAD}{WE_ARE}{DOING}",
        rf"{LEAD}{LET_ME}{BEGIN}{DOING}",
        rf"(?:now|next|currently)[,:]?\s+{DOING}{NO_VERB}",
        rf"{DOING}{OBJECT}",
    )
]
FENCED = re.compile(r"^ *```.*?(?:^ *```|\Z)", re.DOTALL | re.MULTILINE)

HOW_TO_TELL = "Say when the phase changes, in a line such as Phase: implement"

CLOSING = """[SESSION ENDING]
Complete your trajectory with learnings:
  trail --data-dir {data_dir} complete --summary "What you accomplished" --confidence 0.9"""

trajectories: dict[str, Trajectory] = {}


def trajectory_of(ctx):
    """Return the agent's trajectory, in its own folder, as trail has no lock (README.md)."""
    base = Path(ctx.env.get("TRAJECTORIES_DATA_DIR") or ".agentworkforce/trajectories")
    made = Trajectory(
        ctx.agent_name,
        ctx.working_dir,
        ctx.env,
        ctx.working_dir / base.expanduser() / ctx.agent_id,  # TEAM/NAME
        float(ctx.env.get("TRAIL_SECONDS", LIMIT)),
    )
    return trajectories.setdefault(ctx.agent_id, made)


def declarations_in(text):
    """Return (phase, sentence) for each sentence of `text` in which the agent says that it is in a phase."""
    for sentence in re.split(r"(?<=[^\d\s][.!?])\s+|\n\s*", FENCED.sub("", text)):
        if found := next(filter(None, (each.match(sentence) for each in DECLARATIONS)), None):
            doing = found["doing"].lower()
            yield PHASES.get(doing, doing), sentence


def answer(trajectory, inject=None):
    """Give the agent a text, and tell the user, in one line, what has failed since the last time."""
    return HookResult(
        "inject_context" if inject else "continue",
        inject or None,
        user_message=trajectory.problem(),
        user_message_level="warning",
    )


@on("session_start")
def begin(event, ctx):
    trajectory = trajectory_of(ctx)
    context = trajectory.begin(ctx.task)
    return answer(trajectory, f"{context}\n{HOW_TO_TELL}" if context else None)


@on("output")
def notice_phases(output, ctx):
    trajectory = trajectory_of(ctx)
    for phase, sentence in declarations_in(output):
        trajectory.phase(phase, sentence)
    return answer(trajectory)


@on("message_received")
def record_message(sender, body, ctx):
    trajectory = trajectory_of(ctx)
    trajectory.message("the user" if sender == "you" else sender, body)
    return answer(trajectory)


@on("session_end")
def end(reason, ctx):
    trajectory = trajectory_of(ctx)
    trajectory.close()
    ask = reason == "stop"  # after "exit" nobody can answer, and after "restart" the trajectory continues
    return answer(trajectory, CLOSING.format(data_dir=shlex.quote(str(trajectory.data_dir))) if ask else None)
