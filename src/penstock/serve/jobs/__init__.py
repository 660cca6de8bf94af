"""What the server knows of the jobs in its checkpoint directory."""
