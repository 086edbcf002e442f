"""Decides: records, configuration, objective, select, guards and the loop. Pure: no engine, no I/O."""
