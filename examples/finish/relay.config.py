"""Accept no excuses: an agent that ends its turn by explaining away unfinished work has to continue.

An excuse is one sentence that says both that something is left and why. A report of finished work, a question
or a quotation may use the same words, so those do not count. `continuations` in relay.toml limits how often
in a row an agent is made to continue (3).
"""

import re

from relay import on

REASONS = {
    "it was like that before": [
        "pre-?existing",
        "(already|were|was) (broken|failing)",
        "(failed|broken) before",
    ],
    "it is out of scope": ["out[ -]of[ -](the )?scope", "beyond the scope", "not in scope"],
    "it is unrelated": ["unrelated to", "not related to", "nothing to do with (my|this|the)"],
    "it can be done later": [
        "for now",
        "follow-?up",
        "(a|the) future (pr|change)",
        "a later (pr|change)",
        "separate (pr|change)",
    ],
    "it could not be tried": ["(unable|not able) to (run|test|verify)", "should (now )?work"],
}
LEFT = [
    r"\bI('ll| will| have|'ve)? (leave|left|skip(ped)?|ignored?|stopped)\b",
    r"\b(leaving|leave|left|skipping|ignoring) (it|them|that|this|the)\b",
    r"\b(I|we) (did|have|will|could)( not|n't) (fix|address|run|touch|finish|test)",
    r"\bI('m| am) not (fix|address|touch|finish)ing\b",
    r"\b(is|are|was|were|be|been) (left|skipped|ignored|deferred|not (fixed|addressed|done))\b",
    r"\b(remains? (to be done|failing|broken)|still fails?|won't fix|needs? a separate)\b",
]
DONE = [r"\bI('ve| have)? (also )?(fixed|solved|repaired)\b", r"\bis (now )?fixed\b"]
QUOTED = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`|\"[^\"\n]*\"|^[ ]*>.*$", re.DOTALL | re.MULTILINE)
SENTENCES = re.compile(r"(?<=[.!?])\s+|\n{2,}")


def says(sentence, patterns):
    return any(re.search(pattern, sentence, re.IGNORECASE) for pattern in patterns)


def excuse_in(text):
    """Return (kind of excuse, sentence) for the first excuse in `text`, or None."""
    for sentence in SENTENCES.split(QUOTED.sub(" ", text)):
        if says(sentence, LEFT) and not says(sentence, DONE):
            for kind, patterns in REASONS.items():
                if says(sentence, patterns):
                    return kind, " ".join(sentence.split())
    return None


@on("agent_end")
def no_excuses(last_assistant_message, ctx):
    if found := excuse_in(last_assistant_message or ""):
        kind, sentence = found
        ctx.inject_message(
            f'You ended with "{sentence}" ({kind}). That is no reason to leave it. Do it now; if it truly '
            "cannot be done, say what you tried, what happened, and what you need from the user."
        )
