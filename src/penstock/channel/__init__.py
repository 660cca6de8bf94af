"""Channels: ordered logs of Arrow segments between stages."""
