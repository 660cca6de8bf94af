"""Writes savepoints from DataFrames: new ones, and changed copies of snapshots."""
