"""The logs of submitted jobs: trimmed while they are written, read without credentials."""
