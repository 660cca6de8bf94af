"""A program that reads a socket, run without Spark."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

from penstock.common import Types
from tests.unit.support import collected, environment


def test_lines_of_a_socket_run_through_a_job_with_checkpoints(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            client, _ = listener.accept()
            with client:
                client.sendall(b"a b\na\nlast without an end")

        threading.Thread(target=serve, daemon=True).start()
        env = environment(2, execution__checkpointing__dir=str(tmp_path))
        env.enable_checkpointing(20)
        lines = env.socket_text_stream("127.0.0.1", listener.getsockname()[1])
        words = collected(lines.flat_map(str.split, Types.STRING()))
    assert sorted(words) == ["a", "a", "an", "b", "end", "last", "without"]
