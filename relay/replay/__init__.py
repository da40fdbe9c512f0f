"""Playing recordings of sessions again: in a terminal, as text, as a clean asciicast.

    Tape (files, streamed) → Film (virtual screen at a time) ─┬→ Player → Stage   the person's terminal
                                                              ├→ search           when a text appeared
    Timeline (journal entries beside it) ─────────────────────┴→ export           one asciicast with markers

A recording is what an agent wrote, and is trusted with nothing: no byte of it reaches the person's terminal.
It is drawn on a virtual screen, and the text and colours of that are painted (`relay.replay.render`).
"""
