"""One attempt of a job: how it is started, runs and ends."""
