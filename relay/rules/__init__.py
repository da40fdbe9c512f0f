"""Rules in hooks.json files: programs of the user's that see what an agent does, and decide on it.

    hooks.json ──rule_file──→ Rule ─┐
                                    ├─ rule_book ─→ engine ─→ command ─→ answer ─→ aggregate
    what happened ──→ RuleEvent ────┘  selects      runs      a process  RuleRun   Fired, outcome

The shape of the files is Claude Code's, or a flat one (docs/RULES.md). The session applies the results.
"""
