"""NEXMark: the same queries over the same events on penstock, PyFlink and Spark's own operators."""
