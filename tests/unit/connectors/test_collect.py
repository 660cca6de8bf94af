import gc
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import pytest

from penstock.connectors.collect import CollectSink
from penstock.connectors.discard import DiscardingSink
from penstock.connectors.sink import PublisherContext, WriterContext
from penstock.errors import LostReceiverError


def test_the_receiver_stays_behind_when_the_sink_is_pickled(tmp_path: Path) -> None:
    received: list[Any] = []
    sink = CollectSink(received.append)
    copy: CollectSink = cloudpickle.loads(cloudpickle.dumps(sink))
    writer = copy.writer(WriterContext(0, 1, tmp_path, "name"))
    writer.write_many([1, None, "x"])
    copy.publisher(PublisherContext(1, "collect", tmp_path)).publish([writer.stage(), b""])
    assert received == [[1, None, "x"]]


def test_collecting_for_a_program_that_is_gone_is_an_error(tmp_path: Path) -> None:
    pickled = cloudpickle.dumps(CollectSink(print))
    gc.collect()
    with pytest.raises(LostReceiverError, match="'collect'"):
        cloudpickle.loads(pickled).publisher(PublisherContext(1, "collect", tmp_path))


def test_values_of_classes_without_an_importable_name_come_back(tmp_path: Path) -> None:
    module = ModuleType("a_main_program")
    sys.modules["a_main_program"] = module
    try:
        exec("class Point:\n    def __init__(self, x):\n        self.x = x", vars(module))
        point = module.Point(3)
    finally:
        del sys.modules["a_main_program"]
    received: list[Any] = []
    sink = CollectSink(received.extend)
    writer = sink.writer(WriterContext(0, 1, tmp_path, "name"))
    writer.write_many([1, point, lambda: 7, 2])
    sink.publisher(PublisherContext(1, "collect", tmp_path)).publish([writer.stage()])
    one, point, function, two = received
    assert (one, point.x, function(), two) == (1, 3, 7, 2)


def test_a_discarding_sink_runs_its_input_and_stages_nothing(tmp_path: Path) -> None:
    values = iter([1, 2])
    sink = DiscardingSink()
    writer = sink.writer(WriterContext(0, 1, tmp_path, "name"))
    writer.write(1)
    writer.write_many(values)
    assert list(values) == []
    assert writer.stage() == b""
    sink.publisher(PublisherContext(1, "discard", tmp_path)).publish([b""])
