"""Supervision: which agents are to run, and what follows when one ends, asks, or stalls.

The session of an agent is its supervisor; this package owns the decisions, not the processes.
"""
