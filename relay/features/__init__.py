"""The features of a session: each module is one, and none knows of another.

A feature handles events, answers questions, and publishes events (relay.eventbus). What it needs besides, it
gets as arguments; what it knows, it keeps to itself.  relay.session.features lists them.
"""
