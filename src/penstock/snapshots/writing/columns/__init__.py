"""Columns of data frames as stored keys and values."""
