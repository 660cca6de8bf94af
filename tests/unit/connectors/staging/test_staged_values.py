"""Values that sinks on the driver stage: those of a declared type are never unpickled."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from penstock.common import Row, TypeInformation, Types
from penstock.connectors.contracts.sink import WriterContext
from penstock.connectors.staging.staged_output import load_staged
from penstock.connectors.staging.staged_values import ValuesWriter, decode_values
from penstock.errors import UnexpectedPickleError
from penstock.types.signature import is_pickled
from tests.unit.types.test_serializers import ROUND_TRIPS


class Planted:
    """Leaves a trace where it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self._trace = trace

    def __reduce__(self) -> Any:
        return Path.touch, (self._trace,)


def staged(directory: Path, type_info: TypeInformation | None, *values: Any) -> bytes:
    writer = ValuesWriter(WriterContext(0, 1, directory, "name", type_info))
    for value in values:
        writer.write(value)
    return load_staged(writer.stage(), directory)


@pytest.mark.parametrize(("type_info", "value"), ROUND_TRIPS, ids=repr)
def test_values_come_back_as_they_were(
    tmp_path: Path, type_info: TypeInformation, value: Any
) -> None:
    data = staged(tmp_path, type_info, value, value)
    assert decode_values(data, type_info) == [value, value]
    assert data.startswith(b"\x80") is is_pickled(type_info)
    # A program whose type has changed reads them as they were written.
    assert decode_values(data * 2, None) == [value] * 4


@pytest.mark.parametrize(("type_info", "value"), ROUND_TRIPS, ids=repr)
def test_what_older_versions_pickled_is_read(type_info: TypeInformation, value: Any) -> None:
    data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL) * 2
    assert decode_values(data, type_info) == [value, value]


@pytest.mark.parametrize("type_info", [Types.LONG(), Types.ROW([Types.STRING()])], ids=repr)
def test_a_pickle_that_could_run_code_is_rejected_for_a_declared_type(
    tmp_path: Path, type_info: TypeInformation
) -> None:
    trace = tmp_path / "trace"
    for planted in (Planted(trace), [Row(Planted(trace))], {"a": (1, Planted(trace))}):
        with pytest.raises(UnexpectedPickleError, match="declared type"):
            decode_values(pickle.dumps(planted), type_info)
    assert not trace.exists()
    decode_values(pickle.dumps(Planted(trace)), None)
    assert trace.exists()


def test_values_that_claim_a_pickled_type_are_rejected_for_a_declared_one(tmp_path: Path) -> None:
    signature, value = b"PICKLED_BYTE_ARRAY", pickle.dumps(Planted(tmp_path / "trace"))
    data = b"\x02" + len(signature).to_bytes(4, "big") + signature
    data += b"\x01" + len(value).to_bytes(4, "big") + value
    with pytest.raises(UnexpectedPickleError):
        decode_values(data, Types.LONG())
    assert not (tmp_path / "trace").exists()
