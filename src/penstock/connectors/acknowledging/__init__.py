"""Sources whose broker wants an acknowledgement for each message instead of an offset."""
