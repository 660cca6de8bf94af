"""The job graph and its plan: what a program is, before anything runs."""
