"""Queries for keys of one state, and their answers as JSON."""
