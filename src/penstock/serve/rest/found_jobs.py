"""Finds the job, vertex or checkpoint that the path of a call names.

Ids are compared with those that there are; they never become paths.
"""

from __future__ import annotations

import time

from penstock.client.job_overview import ShownCheckpoint
from penstock.serve.http.answers import RestError
from penstock.serve.http.calls import Call
from penstock.serve.jobs.cached_job import CachedJob, JobView
from penstock.serve.jobs.snapshots import checkpoint_of
from penstock.serve.jobs.vertices import Vertex, vertices_of

LONGEST_NUMBER = 18


def job_of(call: Call) -> tuple[CachedJob, JobView]:
    """Return the job in the path of a call, as it is now.

    Raises:
        RestError: there is none with this id.
    """
    id_ = call.path["jobid"]
    found = call.context.jobs.find(id_)
    if found is None:
        raise RestError(404, f"Job {id_} not found")
    return found


def vertex_of(call: Call) -> tuple[CachedJob, JobView, Vertex]:
    """Return the vertex in the path of a call, and its job.

    Raises:
        RestError: there is no such job or vertex.
    """
    cached, job = job_of(call)
    id_ = call.path["vertexid"]
    for vertex in vertices_of(job.facts):
        if vertex.is_called(id_):
            return cached, job, vertex
    raise RestError(404, f"JobVertex {id_} not found")


def number_of(call: Call, name: str) -> int:
    """Return a number in the path of a call.

    Raises:
        RestError: it is not a number.
    """
    text = call.path[name]
    if not (text.isascii() and text.isdecimal() and len(text) <= LONGEST_NUMBER):
        message = f"Cannot resolve path parameter ({name}) from value {text!r}: not a number"
        raise RestError(400, message)
    return int(text)


def subtask_of(call: Call) -> tuple[CachedJob, JobView, Vertex, int]:
    """Return the subtask in the path of a call, its vertex and its job.

    Raises:
        RestError: there is no such job, vertex or subtask.
    """
    cached, job, vertex = vertex_of(call)
    index = number_of(call, "subtaskindex")
    if index >= vertex.parallelism:
        raise RestError(404, f"Subtask {index} of vertex {vertex.id} not found")
    return cached, job, vertex, index


def snapshot_of(call: Call) -> tuple[JobView, ShownCheckpoint]:
    """Return the checkpoint in the path of a call, and its job.

    Raises:
        RestError: there is no such job, or nothing is recorded of the checkpoint.
    """
    cached, job = job_of(call)
    id_ = number_of(call, "checkpointid")
    found = checkpoint_of(cached, job, id_, time.time())
    if found is None:
        raise RestError(404, f"Could not find checkpointing statistics for checkpoint {id_}.")
    return job, found
