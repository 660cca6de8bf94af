"""Lines from a socket."""

from penstock.connectors.socket import SocketSource

__all__ = ["SocketSource"]
