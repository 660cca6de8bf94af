"""Rows into PostgreSQL: exactly once by two phases, or by key as often as it takes."""
