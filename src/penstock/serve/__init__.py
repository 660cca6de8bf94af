"""`penstock serve`: a server over a checkpoint directory, with Flink's REST API and a dashboard."""
