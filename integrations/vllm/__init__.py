"""Attaches a control loop to an unmodified vLLM engine."""
