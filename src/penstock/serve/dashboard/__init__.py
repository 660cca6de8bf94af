"""What the dashboard shows beyond Flink's REST API: calls below `/penstock/jobs`."""
