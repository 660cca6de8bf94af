"""Everything that knows Spark; no other room imports pyspark."""
