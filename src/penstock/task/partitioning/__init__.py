"""Distributes the records of a task among the subtasks of the next stage."""
