"""Compatibility with PyFlink's names: the import alias, and errors for names that are missing."""
