"""State as data: `read_state` and the formats for `spark.read`; `SavepointWriter` writes it."""

from penstock.spark.state.session import read_state as read_state
from penstock.spark.state.session import register as register
from penstock.spark.state.writing.report import SavepointReport as SavepointReport
from penstock.spark.state.writing.rows import broadcast_state as broadcast_state
from penstock.spark.state.writing.rows import event_time_timers as event_time_timers
from penstock.spark.state.writing.rows import keyed_state as keyed_state
from penstock.spark.state.writing.rows import operator_list_state as operator_list_state
from penstock.spark.state.writing.rows import processing_time_timers as processing_time_timers
from penstock.spark.state.writing.rows import union_list_state as union_list_state
from penstock.spark.state.writing.rows import window_state as window_state
from penstock.spark.state.writing.savepoint_writer import SavepointWriter as SavepointWriter
