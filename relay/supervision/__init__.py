"""Supervision: which agents should run, and what happens when one ends, asks or stalls.

The session of an agent is its supervisor; this package owns the decisions, not the processes.
"""
