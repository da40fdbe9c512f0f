"""The features of a session, one per module. No feature knows another.

A feature handles events, answers questions and publishes events (relay.eventbus). It receives everything else
as constructor arguments, and keeps its state private. relay.session.features lists them.
"""
