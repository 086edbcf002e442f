"""A small engine that speculates with trees, in PyTorch: a measuring instrument, not a server."""
