from pathlib import Path

import pytest
from pyarrow import orc

from penstock.common import Configuration, Row, Types
from penstock.datastream.formats.orc import OrcBulkWriters
from penstock.errors import InvalidJobError, TypeMismatchError

ROW = Types.ROW_NAMED(["s", "n"], [Types.STRING(), Types.LIST(Types.INT())])


def test_pieces_become_one_file_that_any_reader_reads(tmp_path: Path) -> None:
    config = Configuration().set_string("orc.compress", "ZSTD")
    factory = OrcBulkWriters.for_row_type(ROW, writer_properties=config)
    pieces = []
    for number, rows in enumerate([[Row("a", [1, 2])], [], [Row(None, []), Row("c", None)]]):
        pieces.append(tmp_path / str(number))
        with pieces[-1].open("wb") as file:
            writer = factory.create(file)
            for row in rows:
                writer.add_element(row)
            writer.finish()
    with (tmp_path / "all").open("wb") as file:
        factory.merge(pieces, file)
    merged = orc.ORCFile(tmp_path / "all")
    assert merged.compression == "ZSTD"
    assert merged.read().to_pydict() == {"s": ["a", None, "c"], "n": [[1, 2], [], None]}


def test_types_without_an_orc_column_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(InvalidJobError, match="column 't'"):
        OrcBulkWriters.for_row_type(Types.ROW_NAMED(["t"], [Types.SQL_TIME()]))
    with pytest.raises(InvalidJobError, match=r"orc\.compress"):
        OrcBulkWriters.for_row_type(ROW, Configuration().set_string("orc.stripe.size", "1"))
    with (
        (tmp_path / "f").open("wb") as file,
        pytest.raises(TypeMismatchError, match="'s'"),
    ):
        OrcBulkWriters.for_row_type(ROW).create(file).add_element((1, []))
