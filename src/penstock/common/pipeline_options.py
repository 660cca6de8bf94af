"""Keys about a program as a whole: its chains, identities, parameters and Python files."""

from __future__ import annotations

from datetime import timedelta

from penstock.common.config_options import ConfigOption
from penstock.common.configuration import Configuration
from penstock.common.option_kinds import BOOLEAN, NON_NEGATIVE_DURATION, OptionKind

__all__ = [
    "AUTO_GENERATE_UIDS",
    "AUTO_WATERMARK_INTERVAL",
    "GLOBAL_JOB_PARAMETERS",
    "OPERATOR_CHAINING",
    "PIPELINE_OPTIONS",
    "PYTHON_FILES",
]


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
    "Whether steps without an exchange between them share a stage.",
    ("pipeline.operator-chaining",),
)
AUTO_GENERATE_UIDS = ConfigOption(
    "pipeline.auto-generate-uids",
    BOOLEAN,
    True,
    "Whether a step may come without a uid; if not, a job with such a step is refused.",
)
AUTO_WATERMARK_INTERVAL = ConfigOption(
    "pipeline.auto-watermark-interval",
    NON_NEGATIVE_DURATION,
    timedelta(milliseconds=200),
    "How often a watermark generator of one's own is asked while no records come; 0 for never.",
)
GLOBAL_JOB_PARAMETERS: ConfigOption[dict[str, str]] = ConfigOption(
    "pipeline.global-job-parameters",
    PAIRS,
    {},
    "What `RuntimeContext.get_job_parameter` finds, beside the keys of the configuration.",
)
PYTHON_FILES: ConfigOption[list[str]] = ConfigOption(
    "python.files",
    FILES,
    [],
    "Python files, directories, zips and wheels that every worker can import from.",
)

PIPELINE_OPTIONS: tuple[ConfigOption[object], ...] = (
    OPERATOR_CHAINING,
    AUTO_GENERATE_UIDS,
    AUTO_WATERMARK_INTERVAL,
    GLOBAL_JOB_PARAMETERS,
    PYTHON_FILES,
)
