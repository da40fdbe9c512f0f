"""Recordings of terminals: read, written, kept and thrown away.

Recorder (relay.session) → Veil → Writer → NAME-TIME-ID.cast, .events.jsonl → Store → read → relay replay
"""

from relay.recording.reader import Happening, Recording, read

__all__ = ["Happening", "Recording", "read"]
