"""Event time inside a task: timestamps, watermark generators and timers."""
