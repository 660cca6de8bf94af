"""A real HDFS: a name node and two data nodes in one process."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from penstock.common.storage_url import StorageUrl
from penstock.errors import MissingServerError
from penstock.testing.servers.cache import servers_directory
from penstock.testing.servers.server_process import ServerProcess

HADOOP_VERSION = "3.5.0"
_MAIN = "org.apache.hadoop.mapreduce.MiniHadoopClusterManager"
_LIGHT_JVM = ("-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_SETTINGS = {
    # A file is closed quickly, and a reader may come before the name node has heard of its block:
    # the harder case for clients.
    "dfs.namenode.file.close.num-committed-allowed": "1",
    "dfs.namenode.safemode.extension": "0",
}


def hdfs_jars() -> Path:
    """Return where `make setup-hdfs` puts the jars, whether they are there or not."""
    return servers_directory() / f"hdfs-{HADOOP_VERSION}"


class HdfsServer(ServerProcess):
    """HDFS on a loopback port, without authentication; files have two copies.

    Two data nodes and no fewer: a small file is then closed as quickly as on a real cluster.
    """

    name = "HDFS"
    start_timeout_s = 120.0

    def __init__(self, directory: str | os.PathLike[str] | None = None) -> None:
        self._jars = hdfs_jars()
        if not self._jars.is_dir():
            remedy = "run `make setup-hdfs`"
            raise MissingServerError(self.name, f"jars in {self._jars}", remedy)
        if shutil.which("java") is None:
            raise MissingServerError(self.name, "java", "install a JDK, 17 or newer")
        super().__init__(directory)
        self._is_formatted = False
        self._is_up = self.directory / "configuration.xml"

    @property
    def authority(self) -> str:
        """Host and port of the name node."""
        return f"{self.host}:{self.port}"

    def url(self, path: str = "", **settings: str) -> StorageUrl:
        """Return a place in it."""
        options = {f"hdfs.{name.replace('_', '-')}": value for name, value in settings.items()}
        return StorageUrl("hdfs", self.authority, (), options) / path

    def _prepare(self) -> None:
        """Nothing: the name node formats its directory when it starts for the first time."""

    def _command(self) -> Sequence[str]:
        # It is written when the cluster is up.
        self._is_up.unlink(missing_ok=True)
        jvm = [*_LIGHT_JVM, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        nodes = ["-nomr", "-nnport", str(self.port), "-datanodes", "2"]
        begin = [] if self._is_formatted else ["-format"]
        self._is_formatted = True
        settings = [text for pair in _SETTINGS.items() for text in ("-D", "=".join(pair))]
        return [
            "java",
            *jvm,
            f"-Dtest.build.data={self.directory / 'data'}",
            "-cp",
            f"{self._jars}/*",
            _MAIN,
            *nodes,
            *begin,
            *settings,
            "-writeConfig",
            str(self._is_up),
        ]

    def _answers(self) -> bool:
        return self._is_up.is_file() and self._is_up.stat().st_size > 0
