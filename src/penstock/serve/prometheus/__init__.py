"""Live figures in the text format of Prometheus."""
