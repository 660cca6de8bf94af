"""Steps that Spark runs itself: `transform()` and `sql()` over the rows of a stream."""
