"""The demo: adaptive control on a real engine, against fixed depths, on one stream."""
