"""Rules in hooks.json files: the user's programs that observe the actions of an agent and decide on them.

    hooks.json ──rule_file──→ Rule ─┐
                                    ├─ rule_book ─→ engine ─→ command ─→ answer ─→ aggregate
    what happened ──→ RuleEvent ────┘  selects      runs      a process  RuleRun   Fired, outcome

The shape of the files is Claude Code's, or a flat one (docs/RULES.md). The session applies the results.
"""
