"""Control: the sessions of a home, their sockets and names, and who may request what."""
