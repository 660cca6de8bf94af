"""Reads Kafka topics: offsets planned on the driver, records read by Spark or confluent-kafka."""
