"""The calls about uploaded programs, submitted jobs and their logs, by topic."""
