"""NATS JetStream: a broker that wants acknowledgements."""
