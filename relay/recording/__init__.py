"""Recordings of terminals: the asciicast format, secrets covered on the way to the disk, the stored files.

Recorder (relay.session) → StreamRedactor → PartWriter → NAME-TIME-ID.cast, .events.jsonl → store → Cast
"""
