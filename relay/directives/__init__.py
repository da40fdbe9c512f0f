"""Directives: `@namespace:target body` lines, found by the grammar."""
