"""Throughput and fixed cost of penstock beside Spark's own ways and PyFlink."""
