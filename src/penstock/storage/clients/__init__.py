"""Clients of object stores and HDFS: their settings, errors, repetitions and missing calls."""
