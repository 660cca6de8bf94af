"""Runs uploaded programs as supervised processes of their own, which outlive the server."""
