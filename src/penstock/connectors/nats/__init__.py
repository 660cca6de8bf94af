"""Reads NATS JetStream, a broker that needs acknowledgements."""
