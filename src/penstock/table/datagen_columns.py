"""The column options of `datagen`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from penstock.common.config import option_kinds
from penstock.common.config.option_kinds import OptionKind
from penstock.common.time import Instant
from penstock.common.typeinfo import TypeInformation, Types
from penstock.errors import InvalidJobError
from penstock.table import generated
from penstock.table.generated import Generator
from penstock.table.table_options import TableOptions

_KIND = option_kinds.choice("random", "sequence")
_SHARE = option_kinds.number("a number from 0 to 1", lambda share: 0 <= share <= 1)
_DEFAULT_LENGTH = 100
_LARGEST_FLOAT = (2 - 2**-23) * 2.0**127
_LARGEST_DOUBLE = (2 - 2**-52) * 2.0**1023


@dataclass(frozen=True, slots=True)
class Column:
    """The generator of a column, and the number of values if it is bounded."""

    generator: Generator
    count: int | None = None


@dataclass(frozen=True, slots=True)
class _Field:
    """The options of one column."""

    options: TableOptions
    name: str

    @property
    def seed(self) -> bytes:
        """The seed of its random values, which do not depend on other columns."""
        return f"{self.options.table}\0{self.name}".encode()

    def key(self, option: str) -> str:
        return f"fields.{self.name}.{option}"


def read_column(options: TableOptions, name: str, type_info: TypeInformation) -> Column:
    """Read the options of one column."""
    field = _Field(options, name)
    kind = options.read(field.key("kind"), _KIND, "random")
    kinds = _SEQUENCES if kind == "sequence" else _RANDOM
    if type_info not in kinds:
        message = (
            f"table {options.table!r}: datagen has no {kind} values of type {type_info!r} for "
            f"column {name!r}: use numbers or text, and convert them in a map()"
        )
        raise InvalidJobError(message)
    column = kinds[type_info](field)
    if kind == "sequence":
        return column
    share = options.read(field.key("null-rate"), _SHARE, 0.0)
    if not share:
        return column
    return Column(partial(generated.or_none, field.seed, share, column.generator))


def _sequence(bits: int, make: Callable[[int], Any], field: _Field) -> Column:
    least, most = _range(bits)
    start = field.options.required(field.key("start"), _whole_number(least, most))
    end = field.options.required(field.key("end"), _whole_number(start, most))
    return Column(partial(generated.counted, start, make), end - start + 1)


def _whole(bits: int, field: _Field) -> Column:
    least, most = _range(bits)
    low = field.options.read(field.key("min"), _whole_number(least, most), least)
    high = field.options.read(field.key("max"), _whole_number(low, most), most)
    return Column(partial(generated.whole, field.seed, low, high))


def _real(largest: float, field: _Field) -> Column:
    # The default minimum is 0: Flink uses Java's MIN_VALUE, the next number above it.
    low = field.options.read(field.key("min"), _number(-largest, largest), 0.0)
    high = field.options.read(field.key("max"), _number(low, largest), largest)
    return Column(partial(generated.real, field.seed, low, high))


def _sized(make: Callable[[bytes, int, bool, int, int], Any], field: _Field) -> Column:
    positive = option_kinds.POSITIVE_INTEGER
    length = field.options.read(field.key("length"), positive, _DEFAULT_LENGTH)
    varies = field.options.read(field.key("var-len"), option_kinds.BOOLEAN, False)
    return Column(partial(make, field.seed, length, varies))


def _past(make: Callable[[int], Any], field: _Field) -> Column:
    duration = option_kinds.NON_NEGATIVE_DURATION
    longest = field.options.read(field.key("max-past"), duration, timedelta())
    millis = longest // timedelta(milliseconds=1)
    return Column(partial(generated.past, field.seed, millis, make))


def _present(make: Callable[[int], Any], field: _Field) -> Column:
    return Column(partial(generated.past, field.seed, 0, make))


def _truth(field: _Field) -> Column:
    return Column(partial(generated.truth, field.seed))


def _range(bits: int) -> tuple[int, int]:
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def _whole_number(least: int, most: int) -> OptionKind[int]:
    expected = f"a whole number from {least} to {most}"
    return option_kinds.integer(expected, lambda number: least <= number <= most)


def _number(least: float, most: float) -> OptionKind[float]:
    expected = f"a number from {least} to {most}"
    return option_kinds.number(expected, lambda number: least <= number <= most)


_BYTES = Types.PRIMITIVE_ARRAY(Types.BYTE())

_RANDOM: Mapping[TypeInformation, Callable[[_Field], Column]] = {
    Types.BOOLEAN(): _truth,
    Types.BYTE(): partial(_whole, 8),
    Types.SHORT(): partial(_whole, 16),
    Types.INT(): partial(_whole, 32),
    Types.LONG(): partial(_whole, 64),
    Types.FLOAT(): partial(_real, _LARGEST_FLOAT),
    Types.DOUBLE(): partial(_real, _LARGEST_DOUBLE),
    Types.STRING(): partial(_sized, generated.text),
    _BYTES: partial(_sized, generated.octets),
    Types.SQL_TIMESTAMP(): partial(_past, generated.timestamp_of),
    Types.INSTANT(): partial(_past, Instant.of_epoch_milli),
    Types.SQL_DATE(): partial(_present, generated.date_of),
    Types.SQL_TIME(): partial(_present, generated.time_of),
}

_SEQUENCES: Mapping[TypeInformation, Callable[[_Field], Column]] = {
    Types.BYTE(): partial(_sequence, 8, int),
    Types.SHORT(): partial(_sequence, 16, int),
    Types.INT(): partial(_sequence, 32, int),
    Types.LONG(): partial(_sequence, 64, int),
    Types.FLOAT(): partial(_sequence, 64, float),
    Types.DOUBLE(): partial(_sequence, 64, float),
    Types.STRING(): partial(_sequence, 64, str),
    _BYTES: partial(_sequence, 64, generated.eight_bytes),
}
