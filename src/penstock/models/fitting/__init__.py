"""Statistics for few and noisy observations: robust lines, numbers with a range, proportions."""
