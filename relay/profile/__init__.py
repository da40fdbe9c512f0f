"""What relay knows of one kind of agent: its profile, and the protocol of its own hooks and transcripts.

Profiles are read from the TOML files under `patterns/`:

    patterns/NAME.toml            shipped: generic, shell, repl, fullscreen, and one per agent CLI
    <config>/patterns/NAME.toml   the user's: a new profile, or keys that override a shipped one's

Every key of a file, all but `name` optional:

    name        = "shell"
    commands    = ["claude"]      basenames (fnmatch patterns) that are always this program
    reader      = "auto"          auto | lines | screen
    decoration  = "..."           regex of what stands before the agent's own text in a line
    prefix      = "@"             the character that begins a directive
    inject      = "auto"          auto: typed into when safe; never: nothing is ever typed
    fullscreen  = false           its own interface lives on the alternate screen
    prompts     = ["..."]         regexes of the unfinished line that ask for ordinary input
    decisions   = ["..."]         regexes of an explicit choice, in that line or the one above it
    questions   = ["..."]         regexes of the unfinished line that ask for a decision or a secret
    dialogs     = ["..."]         regexes of a row near the cursor, where a program draws its own input
    executes    = ["..."]         regexes of the unfinished line of a program that runs what is typed

    [echo]                        how what was typed into it is drawn
    backgrounds = ["373737"]      colours, RRGGBB; "any" is every one but the terminal's own
    foregrounds = ["cba6f7"]
    lines       = ["..."]         regexes of rows that are never the agent's own words

    [code]                        how a line of a code fence is drawn: the same keys

    [submit]
    delay         = 0.3           seconds between a text and Enter
    while_working = "queues"      queues | interrupts | unknown: what becomes of a text typed meanwhile
    avoid         = "!/@"         characters that a typed text must not begin with

    [native]                      what it has beside its terminal
    hooks       = "claude"        whose hook protocol it speaks: claude | codex | qwen | gemini
    transcript  = "claude"        whose transcripts it writes: claude | codex | qwen

    [[states]]                    what the screen or the title shows in a state; the highest priority wins
    name        = "permission"    unique in the file; the user's rule replaces a shipped one of its name
    state       = "prompting"     working | ready | prompting | failed | draft (a text stands in its input)
    kind        = "permission"    with prompting: permission | plan_approval | question | other
    priority    = 100
    region      = "bottom 12"     screen | bottom N (rows that are not blank) | title
    all         = ["..."]         regexes, each of which finds itself in some row of the region
    any         = ["..."]         one of which does
    none        = ["..."]         none of which does
    first       = ["..."]         one of which finds itself in the region's first row
    last        = ["..."]         one of which finds itself in the region's last row
    title       = ["..."]         one of which finds itself in the title, "" where none is known

    [[interactive]]               programs that are this only while they run as a prompt
    names       = ["bash"]        basenames, as in commands
    words       = 0               words beside the options that leave it a prompt; one more is a script
    run         = ["-c"]          options that run something and end
    stay        = ["-s"]          options that make it a prompt all the same
    value       = ["-o"]          options followed by a value

A profile's `prompts`, `decisions`, `questions` and `dialogs` are added to those of generic.toml; `executes`
is not inherited, so that a shell whose user opted in (`inject = "auto"`) can be typed into.
"""

from relay.profile.catalog import GENERIC, fallback, for_command, load, profiles
from relay.profile.interactive import Interactive
from relay.profile.profile import (
    ANY_COLOUR,
    CodeStyle,
    EchoStyle,
    InjectPolicy,
    Native,
    Profile,
    ReaderKind,
    StateRule,
    Submit,
)

__all__ = [
    "ANY_COLOUR",
    "GENERIC",
    "CodeStyle",
    "EchoStyle",
    "InjectPolicy",
    "Interactive",
    "Native",
    "Profile",
    "ReaderKind",
    "StateRule",
    "Submit",
    "fallback",
    "for_command",
    "load",
    "profiles",
]
