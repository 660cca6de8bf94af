"""Sinks made of the user's functions, and the register of their transactions."""
