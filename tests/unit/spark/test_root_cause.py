from penstock.spark.root_cause import root_cause

DISK_FULL = """An error occurred while calling z:PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 5.0 failed 4 \
times, most recent failure: Lost task 0.3 in stage 5.0 (TID 30) (localhost executor driver): \
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 1, in main
    process()
OSError: [Errno 28] No space left on device

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(x.scala:1)
\tat org.apache.spark.api.python.PythonRunner$$anon$3.read(PythonRunner.scala:2)

Driver stacktrace:
"""
CRASHED = """: org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 in \
stage 7 failed 4 times, most recent failure: Lost task 1.3 in stage 7.0 (TID 9): \
org.apache.spark.SparkException: Python worker exited unexpectedly (crashed).
\tat org.apache.spark.api.python.BasePythonRunner
"""
LOST = """An error occurred while calling z:PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: ResultStage 8 (collect) \
has failed the maximum allowable number of times: 1. Most recent failure reason:
org.apache.spark.shuffle.MetadataFetchFailedException: Missing an output location for shuffle 3
\tat org.apache.spark.MapOutputTracker$.validateStatus(MapOutputTracker.scala:1)
"""


def test_the_cause_of_a_python_error_is_its_last_line() -> None:
    assert root_cause(DISK_FULL) == "OSError: [Errno 28] No space left on device"


def test_a_traceback_at_the_end_of_the_report_is_found_too() -> None:
    report = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "worker.py", line 1, in main
    import penstock
ModuleNotFoundError: No module named 'penstock'
"""
    assert root_cause(report) == "ModuleNotFoundError: No module named 'penstock'"


def test_the_cause_of_a_crash_is_the_line_about_it() -> None:
    assert root_cause(CRASHED).endswith("Python worker exited unexpectedly (crashed).")
    assert "\n" not in root_cause(CRASHED)


def test_an_empty_report_still_gives_a_cause() -> None:
    assert root_cause("") == "no reason given"


def test_lost_shuffle_files_are_named_as_the_cause() -> None:
    assert root_cause(LOST) == (
        "shuffle files are lost: org.apache.spark.shuffle.MetadataFetchFailedException: "
        "Missing an output location for shuffle 3"
    )
