"""The windowed step inside a task: records in, what their windows give out."""
