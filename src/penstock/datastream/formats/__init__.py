"""Formats of files, under PyFlink's module names."""
