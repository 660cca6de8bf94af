"""Finds the submitted job that a call is about."""

from __future__ import annotations

from penstock.serve.http.calls import Call
from penstock.serve.jobs.hex_ids import hex_id, is_hex_id
from penstock.serve.submission.calls.rest_errors import submissions_of
from penstock.serve.submission.records import SubmissionDir


def submission_of(call: Call) -> SubmissionDir:
    """Return the submitted job in the path of a call, by its id, ours or Flink's.

    Raises:
        UnknownSubmissionError: there is none.
    """
    submissions, id_ = submissions_of(call), call.path["jobid"]
    if is_hex_id(id_):
        for job in submissions.jobs():
            if hex_id(job.job) == id_:
                return job
    return submissions.find(id_)
