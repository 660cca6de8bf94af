"""State: keyed and operator state, its encoding, files and backends."""
