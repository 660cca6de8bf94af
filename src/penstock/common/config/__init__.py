"""Configuration options, their kinds and defaults, and the configuration file."""
