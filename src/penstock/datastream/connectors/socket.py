"""A source of lines of a socket."""

from penstock.connectors.socket.source import SocketSource

__all__ = ["SocketSource"]
