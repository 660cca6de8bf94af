"""The calls of Flink's REST API that have no meaning here: they answer why."""

from __future__ import annotations

from penstock.serve.http.answers import RestError
from penstock.serve.http.calls import NOT_SUPPORTED, Call, Endpoint

_APPLICATIONS = "a program is one process and its jobs are its own: there are no applications"
_DATASETS = "nothing caches intermediate results between jobs"
_RESCALING = "a job gets another parallelism when it is started from a savepoint"
_LOGS = "drivers and executors log where Spark and the shell that started them put it"
_VERTEX = "/jobs/:jobid/vertices/:vertexid"

UNSUPPORTED: dict[tuple[str, str], str] = {
    ("GET", "/applications/overview"): _APPLICATIONS,
    ("GET", "/applications/:applicationid"): _APPLICATIONS,
    ("POST", "/applications/:applicationid/cancel"): _APPLICATIONS,
    ("GET", "/applications/:applicationid/exceptions"): _APPLICATIONS,
    ("GET", "/applications/:applicationid/jobmanager/config"): _APPLICATIONS,
    ("DELETE", "/cluster"): "whoever started the server ends it: no call does",
    ("GET", "/datasets"): _DATASETS,
    ("GET", "/datasets/delete/:triggerid"): _DATASETS,
    ("DELETE", "/datasets/:datasetid"): _DATASETS,
    ("POST", "/jars/:jarid/run-application"): _APPLICATIONS,
    ("GET", "/jobmanager/thread-dump"): "the server and drivers are Python processes",
    ("POST", "/jobs"): "its body is a serialized Java object",
    ("PATCH", "/jobs/:jobid/clientHeartbeat"): "no job depends on the client that started it",
    ("POST", "/jobs/:jobid/coordinators/:operatorUid"): "its body is a serialized Java object",
    ("GET", "/jobs/:jobid/jobmanager/log-url"): _LOGS,
    ("GET", "/jobs/:jobid/rescales/config"): _RESCALING,
    ("GET", "/jobs/:jobid/rescales/details/:rescaleuuid"): _RESCALING,
    ("GET", "/jobs/:jobid/rescales/history"): _RESCALING,
    ("GET", "/jobs/:jobid/rescales/overview"): _RESCALING,
    ("GET", "/jobs/:jobid/rescales/summary"): _RESCALING,
    ("PATCH", "/jobs/:jobid/rescaling"): _RESCALING,
    ("GET", "/jobs/:jobid/rescaling/:triggerid"): _RESCALING,
    ("GET", "/jobs/:jobid/resource-requirements"): _RESCALING,
    ("PUT", "/jobs/:jobid/resource-requirements"): _RESCALING,
    ("GET", "/jobs/:jobid/taskmanagers/:taskmanagerid/log-url"): _LOGS,
    ("GET", f"{_VERTEX}/flamegraph"): "tasks run in Spark's Python workers, which are not sampled",
    ("GET", "/taskmanagers/:taskmanagerid/logs"): _LOGS,
    ("GET", "/taskmanagers/:taskmanagerid/thread-dump"): "Spark's UI has the threads of executors",
}
"""By method and path, why there is no such call."""


def _refusal(method: str, path: str, reason: str) -> Endpoint:
    def refuse(call: Call) -> object:
        raise RestError(NOT_SUPPORTED, f"{method} {path} is not supported: {reason}")

    return Endpoint(method, path, refuse, f"Not supported: {reason}", status=NOT_SUPPORTED)


ENDPOINTS = [_refusal(*call, reason) for call, reason in UNSUPPORTED.items()]
