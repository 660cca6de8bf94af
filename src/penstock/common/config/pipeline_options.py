"""Options of a program as a whole: chaining, uids, job parameters and Python files."""

from __future__ import annotations

from datetime import timedelta

from penstock.common.config.option_kinds import BOOLEAN, NON_NEGATIVE_DURATION, OptionKind
from penstock.common.config_options import ConfigOption
from penstock.common.configuration import Configuration


def _parse_pairs(value: object) -> dict[str, str]:
    if isinstance(value, dict):
        return {str(key): str(item) for key, item in value.items()}
    pairs = [pair.partition(":") for pair in str(value).split(",") if pair.strip()]
    if not all(colon for _, colon, _ in pairs):
        raise ValueError(value)
    return {key.strip(): item.strip() for key, _, item in pairs}


def _parse_files(value: object) -> list[str]:
    if isinstance(value, list):
        return [str(item) for item in value]
    text = str(value)
    if text.strip().startswith("["):
        return Configuration.parse_list_value(text)
    return [part.strip() for part in text.split(",") if part.strip()]


PAIRS = OptionKind("pairs such as `key1:value1,key2:value2`", _parse_pairs)
FILES = OptionKind("paths with commas between them", _parse_files)

OPERATOR_CHAINING = ConfigOption(
    "pipeline.operator-chaining.enabled",
    BOOLEAN,
    True,
    "Whether steps without an exchange between them are chained into one stage.",
    ("pipeline.operator-chaining",),
)
AUTO_GENERATE_UIDS = ConfigOption(
    "pipeline.auto-generate-uids",
    BOOLEAN,
    True,
    "Whether steps may lack a uid; if false, a job with such a step is rejected.",
)
AUTO_WATERMARK_INTERVAL = ConfigOption(
    "pipeline.auto-watermark-interval",
    NON_NEGATIVE_DURATION,
    timedelta(milliseconds=200),
    "How often a custom watermark generator is called while no records arrive; 0 for never.",
)
QUERYABLE_STATE = ConfigOption(
    "penstock.queryable-state.enabled",
    BOOLEAN,
    False,
    "Whether all keyed states of the job can be looked up; if false, those can for which the "
    "program calls `set_queryable`.",
)
GLOBAL_JOB_PARAMETERS: ConfigOption[dict[str, str]] = ConfigOption(
    "pipeline.global-job-parameters",
    PAIRS,
    {},
    "What `RuntimeContext.get_job_parameter` returns, besides the keys of the configuration.",
)
PYTHON_FILES: ConfigOption[list[str]] = ConfigOption(
    "python.files",
    FILES,
    [],
    "Python files, directories, zips and wheels to import from in every worker.",
)
