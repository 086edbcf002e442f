"""Touches the world: vLLM, MLflow, trace files."""
