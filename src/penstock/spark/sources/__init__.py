"""Spark DataFrames and streaming queries as sources of a job."""
