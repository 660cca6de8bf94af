"""Settings of stores reach the processes in which Spark reads."""

from __future__ import annotations

import pickle

from pyspark import cloudpickle

from penstock.common.storage_url import StorageUrl
from penstock.spark.state.options import parse_options
from penstock.spark.state.session import _with_defaults
from penstock.spark.state.source import StateSource

KEY = "penstock.storage.s3.access-key"


def test_settings_of_the_session_are_those_of_every_read() -> None:
    source = _with_defaults(StateSource, {KEY: "mine"})
    travelled = pickle.loads(cloudpickle.dumps(source))
    assert travelled.name() == "penstock.state"
    for given, expected in (({}, "mine"), ({KEY: "other"}, "other")):
        path = parse_options(travelled({"path": "s3://bucket/job", **given})._given).path
        assert isinstance(path, StorageUrl)
        assert path.options == {"s3.access-key": expected}


def test_a_source_without_settings_is_the_source_itself() -> None:
    assert _with_defaults(StateSource, {}) is StateSource
