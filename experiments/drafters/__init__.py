"""Drafters of the testbed: text that the target writes, models trained on it, their acceptance."""
