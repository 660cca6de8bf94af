"""`penstock serve` over checkpoints in a real S3 server."""

from __future__ import annotations

import pytest

from penstock.common import Configuration, Types, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors import DiscardingSink
from penstock.datastream.connectors.number_seq import NumberSequenceSource
from penstock.testing.inline import run_inline
from penstock.testing.servers.s3_server import S3Server
from tests.unit.cli.job_fixtures import Remember, end, slowly
from tests.unit.serve.serve_fixtures import get, server
from tests.unit.support import eventually

pytestmark = pytest.mark.s3

BUCKET = "serve"


def test_jobs_in_a_store_are_shown_and_controlled(s3: S3Server) -> None:
    s3.create_bucket(BUCKET)
    place = s3.url(BUCKET, "checkpoints")
    options = {f"penstock.storage.{name}": value for name, value in s3.options().items()}
    settings = {
        "execution.checkpointing.dir": str(place),
        "execution.checkpointing.interval": "200 ms",
        "penstock.micro-batch.max-records": "20",
        **options,
    }
    env = run_inline(
        StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    )
    numbers = NumberSequenceSource(1, 10_000_000)
    stream = env.from_source(numbers, WatermarkStrategy.no_watermarks(), "numbers")
    keyed = stream.map(slowly, Types.LONG()).key_by(lambda n: n % 10, Types.LONG())
    keyed.process(Remember(), Types.LONG()).uid("remember").sink_to(DiscardingSink())
    job = env.execute_async("in a store")
    with server(place, storage_options=s3.options()) as client:
        try:
            (found,) = get(client, "/jobs/overview")["jobs"]
            path = f"/jobs/{found['jid']}"
            eventually(lambda: get(client, f"{path}/checkpoints")["counts"]["completed"] > 1)
            history = get(client, f"{path}/checkpoints")["history"]
            assert history[-1]["external_path"].startswith(str(place))
            vertex = get(client, path)["vertices"][1]["id"]
            assert get(client, f"{path}/vertices/{vertex}")["parallelism"] >= 1
            body = {"target-directory": f"{place.parent}/savepoints"}
            trigger = client.post(f"{path}/savepoints", json=body).json()["request-id"]
            status = f"{path}/savepoints/{trigger}"
            eventually(lambda: get(client, status)["status"]["id"] == "COMPLETED")
            location = get(client, status)["operation"]["location"]
            assert location.startswith(body["target-directory"])
            disposal = client.post("/savepoint-disposal", json={"savepoint-path": location})
            done = get(client, f"/savepoint-disposal/{disposal.json()['request-id']}")
            assert done["operation"] == {}
            assert client.patch(path).status_code == 202
            eventually(lambda: get(client, f"{path}/status") == {"status": "CANCELED"})
        finally:
            if not job.get_job_execution_result().done():
                end(job)
        s3.stop()
        response = client.get(path)
        assert response.status_code == 503
        assert "cannot be read" in response.json()["errors"][0]
        s3.start()
        eventually(lambda: client.get(path).status_code == 200)
