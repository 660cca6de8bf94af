"""What checkpoints and recoveries cost, by the size of the state and by how much of it changes."""
