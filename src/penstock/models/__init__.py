"""Models of what checkpoints cost, how long recoveries take, and which interval follows from it."""
