"""Uploaded programs: their store, their archives, their plans."""
