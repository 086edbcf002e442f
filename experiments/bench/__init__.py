"""Benches: what control, tracking and replay cost."""
