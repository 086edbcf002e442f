"""Decides a trace again and compares: the same policy on the same inputs."""
