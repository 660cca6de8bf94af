"""Files of JSON lines, and rows as JSON objects."""
