"""A file sink whose path is in a store."""
