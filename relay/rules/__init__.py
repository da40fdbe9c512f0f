"""Rules in hooks.json files: programs of the person's that see what an agent does, and decide on it.

    hooks.json ──parse──→ Rule ─┐
                                ├─ select ─→ run ─→ verdict ─→ HookResult, aggregate, outcome
    what happened ──→ RuleEvent ┘

The shape of the files is Claude Code's, or a flat one (docs/RULES.md). What is done with the results is not
decided here.
"""
