"""For tests of penstock programs."""
