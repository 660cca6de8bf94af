"""Keyed states: value, list, map, reducing, aggregating and raw state, and timers."""
