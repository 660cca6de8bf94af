"""A real HDFS."""

from __future__ import annotations

from penstock.common.storage_url import StorageUrl
from penstock.testing.servers.server_process import ServerProcess


class HdfsServer(ServerProcess):
    """To come."""

    def url(self, path: str) -> StorageUrl:
        """Return a place."""
        raise NotImplementedError
