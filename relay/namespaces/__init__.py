"""The built-in directive handlers, written on the public surface that users have."""
