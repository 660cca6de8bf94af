"""What it costs a record to go from stage to stage, and a checkpoint to go through all of them."""
