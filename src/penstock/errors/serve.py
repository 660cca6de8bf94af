"""Errors of `penstock serve`, and of programs that are uploaded to it and run by it."""

from penstock.errors.base import PenstockError
from penstock.errors.configuration import ConfigurationError


class TokensFileError(ConfigurationError):
    """The file with the tokens of a server cannot be used."""

    path: str
    reason: str
    template = (
        "tokens file {path!r} cannot be used: {reason}; it needs mode 0600 and lines such as "
        "'operator TOKEN' or 'reader TOKEN' with tokens of at least 20 characters"
    )


class UnprotectedServerError(ConfigurationError):
    """A server would let everybody in the network control jobs."""

    host: str
    template = (
        "{host!r} is not a loopback address: set penstock.serve.tokens-file, or --tokens, so that "
        "only those with a token see and control jobs"
    )


class ServerAddressError(ConfigurationError):
    """A server cannot listen on its address."""

    host: str
    port: int
    reason: str
    template = (
        "the server cannot listen on {host} port {port}: {reason}; choose another with --port"
    )


class UnprotectedSubmissionError(ConfigurationError):
    """A server would let every user of its machine run programs as the server's user."""

    user: str
    template = (
        "without tokens every user of this machine could submit programs that run as {user!r}: set "
        "penstock.serve.tokens-file, or --tokens"
    )


class SubmissionError(PenstockError):
    """A request about uploaded programs or submitted jobs cannot be carried out."""


class InvalidProgramError(SubmissionError):
    """An uploaded file is no program that can be run."""

    name: str
    reason: str
    template = "{name!r} is not accepted as a program: {reason}"


class ProgramTooLargeError(SubmissionError):
    """An uploaded program is larger than the server accepts."""

    limit: int
    template = (
        "the program has more than {limit} bytes, unpacked: leave out what it does not need, or "
        "raise penstock.serve.submission.max-program-bytes"
    )


class UnknownProgramError(SubmissionError):
    """No uploaded program has this id."""

    program: str
    template = "no uploaded program has the id {program!r}: GET /jars lists all"


class InvalidSubmissionError(SubmissionError):
    """A request to run a program is malformed."""

    reason: str
    template = "the job cannot be submitted: {reason}"


class DuplicateJobSubmissionError(SubmissionError):
    """A job id was given twice, also if the first job has ended."""

    job: str
    template = (
        "job {job} has been submitted already: restart it, or submit the program under another id"
    )


class ProgramFailedError(SubmissionError):
    """A submitted program ended without starting a job."""

    job: str
    reason: str
    log: str
    template = "the program of job {job} {reason}; the end of its log:\n{log}"


class ProcessNotStartedError(SubmissionError):
    """The system does not start the process of a submitted job."""

    job: str
    reason: str
    template = (
        "the process of job {job} cannot be started: {reason}; make room on the server's machine "
        "and try again"
    )


class UnknownSubmissionError(SubmissionError):
    """A job was not submitted to this server."""

    job: str
    template = "job {job!r} was not submitted to this server, which can neither restart nor log it"


class RestartRefusedError(SubmissionError):
    """A submitted job cannot be started again as the request says."""

    job: str
    reason: str
    template = "job {job} is not started again: {reason}"


class PlanFailedError(SubmissionError):
    """A program's plan cannot be shown, because the program fails."""

    program: str
    reason: str
    template = "the plan of {program!r} cannot be shown: {reason}"


class ServerAlreadyRunningError(SubmissionError):
    """Another server uses the directory of uploaded programs."""

    directory: str
    template = (
        "another server uses {directory}: stop it, or set penstock.serve.upload-dir to a directory "
        "of its own"
    )
