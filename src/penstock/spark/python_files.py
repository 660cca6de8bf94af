"""Python files of a program on their way to all workers."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from penstock.common.config_options import read
from penstock.common.configuration import Configuration
from penstock.common.pipeline_options import PYTHON_FILES
from penstock.errors import InvalidJobError

_shipped: set[tuple[str, str]] = set()
"""What each Spark application was given already: Spark takes a file once."""


def ship_python_files(session: SparkSession, configuration: Configuration) -> None:
    """Give Spark the files of `python.files`, so that every worker can import from them.

    Raises:
        InvalidJobError: there is no such file.
    """
    context = session.sparkContext
    for file in read(configuration, PYTHON_FILES):
        name = (str(context.applicationId), file)
        if name not in _shipped:
            context.addPyFile(importable(file))
            _shipped.add(name)


def importable(file: str) -> str:
    """Return a file that Spark's workers can import from: a directory or wheel as a zip."""
    if "://" in file:
        return file
    path = Path(file)
    if not path.exists():
        message = f"add_python_file(): there is no {file!r}"
        raise InvalidJobError(message)
    made = Path(tempfile.mkdtemp(prefix="penstock-python-")) / path.stem
    if path.is_dir():
        return shutil.make_archive(str(made), "zip", path)
    if path.suffix == ".whl":
        return shutil.copy(path, f"{made}.zip")
    return file
