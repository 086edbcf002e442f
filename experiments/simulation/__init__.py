"""A simulated engine: continuous batching on its own clock, driven by the loop that drives vLLM."""
