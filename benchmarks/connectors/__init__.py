"""The cost of Kafka and PostgreSQL connectors, and how soon results are visible."""
