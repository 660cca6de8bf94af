"""CSV files, and rows as lines of CSV."""
