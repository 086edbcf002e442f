"""Experiments that steer the design: each asks one question and leaves figures."""
