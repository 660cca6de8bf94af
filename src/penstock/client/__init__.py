"""What a client of a running or ended job reads and asks: shared by commands and the server."""
