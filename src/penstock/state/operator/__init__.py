"""Operator state: lists and broadcast maps that belong to a subtask."""
