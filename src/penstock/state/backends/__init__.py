"""State backends: their contract, and where each stores state."""
