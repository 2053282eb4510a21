"""Pieces of a pasted text, each told by its own form."""
