"""The driver's side of a job: loops that decide, submit and publish micro-batches."""
