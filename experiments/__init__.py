"""Asks questions: the testbed, the demo, replay, benchmarks and the command line."""
