"""Keyed state: keys, key groups, values, deltas and the stores behind them."""
