"""Reads what people have: one file per format, and every dropped row has a named reason."""
