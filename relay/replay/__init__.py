"""Playing recordings of sessions: in a terminal, as text, as a clean asciicast.

    Cast (files, streamed) → SeekableScreen (at a time) ─┬→ Player → Canvas   the user's terminal
                                                         ├→ search                    when a text appeared
    Timeline (journal entries next to it) ────────────────┴→ export                    one asciicast

A recording is an agent's output, and is not trusted: no byte of it reaches the user's terminal. It is drawn
on a virtual screen, whose text and colours relay renders (`relay.terminal.render`).
"""
