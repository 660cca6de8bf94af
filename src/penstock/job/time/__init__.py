"""Event time on the driver: watermarks, idleness, watermark alignment and timers."""
