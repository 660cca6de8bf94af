"""Reads the state of jobs as DataFrames: `read_state`, and the formats for `spark.read`."""

from penstock.spark.state.session import read_state as read_state
from penstock.spark.state.session import register as register
