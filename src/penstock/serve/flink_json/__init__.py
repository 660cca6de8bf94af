"""What the server knows, in the JSON of Flink's REST API."""
