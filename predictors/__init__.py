"""Learns: acceptance, latency, drift and calibration. River-style; knows no engine, no request."""
