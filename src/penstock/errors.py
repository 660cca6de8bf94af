"""Every error penstock raises on purpose.

Errors cross processes, so each one hands its facts to ``Exception.args`` in the order of
its constructor (which is what makes it pickle) and builds its text only when asked.
"""

_LONGEST_VALUE = 200


class _Shown(str):
    """The repr of a value that itself may not pickle; showing it twice changes nothing."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class Called(_Shown):
    """Stands for a record where there is none: a function failed in one of its other methods."""

    __slots__ = ()


def _on(shown: _Shown) -> str:
    return f"in {shown}" if isinstance(shown, Called) else f"on record {shown}"


def _show(value: object) -> _Shown:
    if isinstance(value, Called):
        return value
    try:
        text = repr(value)
    except Exception as error:
        text = f"<{type(value).__name__} whose repr raises {type(error).__name__}>"
    if len(text) > _LONGEST_VALUE:
        text = text[: _LONGEST_VALUE - 1] + "…"
    return _Shown(text)


class PenstockError(Exception):
    """Root of all errors raised by penstock."""


class ConfigurationError(PenstockError):
    """A configuration cannot be used as it is."""


class UnknownOptionError(ConfigurationError):
    """A configuration holds a key that neither penstock nor Flink knows."""

    def __init__(self, key: str, nearest: str | None = None) -> None:
        super().__init__(key, nearest)
        self.key = key
        self.nearest = nearest

    def __str__(self) -> str:
        hint = f"; did you mean {self.nearest!r}?" if self.nearest else ""
        return f"unknown configuration key {self.key!r}{hint}"


class OptionValueError(ConfigurationError):
    """The value of a known configuration key does not parse."""

    def __init__(self, key: str, value: object, expected: str) -> None:
        self.shown = _show(value)
        super().__init__(key, self.shown, expected)
        self.key = key
        self.expected = expected

    def __str__(self) -> str:
        return f"configuration key {self.key!r} needs {self.expected}; got {self.shown}"


class TypeMismatchError(PenstockError):
    """A value does not fit the type declared for it.

    ``path`` names the place inside the record (``"f1.amount"``), empty for the record itself.
    """

    def __init__(self, path: str, value: object, type_info: object) -> None:
        self.shown = _show(value)
        super().__init__(path, self.shown, type_info)
        self.path = path
        self.type_info = type_info

    def __str__(self) -> str:
        where = f"field {self.path!r}" if self.path else "the record"
        return f"{where} does not fit its declared type {self.type_info!r}; got {self.shown}"


class InvalidJobError(PenstockError):
    """A program cannot be run as it was written; the text says what to change."""


class DuplicateUidError(InvalidJobError):
    """Two steps of one job carry the same uid."""

    def __init__(self, uid: str, first: str, second: str) -> None:
        super().__init__(uid, first, second)
        self.uid = uid
        self.first = first
        self.second = second

    def __str__(self) -> str:
        return (
            f"uid {self.uid!r} is given twice: at {self.first} and at {self.second}; "
            "every step needs a uid of its own"
        )


class UnserializableFunctionError(InvalidJobError):
    """A function cannot be shipped to the tasks because of something it captured."""

    def __init__(self, step: str, captured: str, reason: str) -> None:
        super().__init__(step, captured, reason)
        self.step = step
        self.captured = captured
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"step {self.step!r} cannot be shipped to the tasks: it captures {self.captured} "
            f"({self.reason}); create it in open() instead"
        )


class UserFunctionError(PenstockError):
    """A user function raised; ``user_traceback`` holds its own frames only."""

    def __init__(self, step: str, record: object, cause: str, user_traceback: str) -> None:
        self.shown = _show(record)
        super().__init__(step, self.shown, cause, user_traceback)
        self.step = step
        self.cause = cause
        self.user_traceback = user_traceback

    def __str__(self) -> str:
        return (
            f"step {self.step!r} failed {_on(self.shown)}: {self.cause}\n"
            f"{self.user_traceback.rstrip()}"
        )


class StepError(PenstockError):
    """A step could not go on for a reason of penstock's own; names the step and the record."""

    def __init__(self, step: str, record: object, cause: str) -> None:
        self.shown = _show(record)
        super().__init__(step, self.shown, cause)
        self.step = step
        self.cause = cause

    def __str__(self) -> str:
        return f"step {self.step!r} stopped {_on(self.shown)}: {self.cause}"


class MicroBatchFailedError(PenstockError):
    """A micro-batch failed in every try it was given."""

    def __init__(self, stage: str, batch: int, tries: int, cause: str) -> None:
        super().__init__(stage, batch, tries, cause)
        self.stage = stage
        self.batch = batch
        self.tries = tries
        self.cause = cause

    def __str__(self) -> str:
        return (
            f"stage {self.stage!r}: micro-batch {self.batch} failed in all {self.tries} tries; "
            f"the last one said: {self.cause}"
        )


class CorruptSegmentError(PenstockError):
    """A channel segment is not what its producer wrote."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"channel segment {self.path} cannot be read: {self.reason}"


class RuntimeSetupError(PenstockError):
    """What penstock runs on is missing or of the wrong version; says what to install."""


class JobCancelledError(PenstockError):
    """The job was cancelled before it finished."""

    def __init__(self, job_name: str) -> None:
        super().__init__(job_name)
        self.job_name = job_name

    def __str__(self) -> str:
        return f"job {self.job_name!r} was cancelled"


class ConnectorError(PenstockError):
    """A source or sink cannot do its work."""


class LostStagedFileError(ConnectorError):
    """A file that a task staged is not what the task left behind."""

    def __init__(self, path: str, expected_size: int, size: int) -> None:
        super().__init__(path, expected_size, size)
        self.path = path
        self.expected_size = expected_size
        self.size = size

    def __str__(self) -> str:
        return f"staged file {self.path} needs {self.expected_size} bytes; got {self.size}"


class LostReceiverError(ConnectorError):
    """Nobody is there any more to receive what a job collects."""

    def __init__(self, step: str) -> None:
        super().__init__(step)
        self.step = step

    def __str__(self) -> str:
        return (
            f"step {self.step!r} collects values for a program that is gone; "
            "keep the sink alive while the job runs, in the process that runs it"
        )


class StateTypeMismatchError(TypeMismatchError):
    """A value put into keyed state does not fit the type its descriptor declares."""

    def __init__(
        self, step: str, state: str, key: object, path: str, value: object, type_info: object
    ) -> None:
        super().__init__(path, value, type_info)
        self.step = step
        self.state = state
        self.shown_key = _show(key)
        self.args = (step, state, self.shown_key, path, self.shown, type_info)

    def __str__(self) -> str:
        where = f", field {self.path!r}," if self.path else ""
        return (
            f"step {self.step!r}, state {self.state!r}, key {self.shown_key}{where} "
            f"does not fit its declared type {self.type_info!r}; got {self.shown}"
        )


class UnstableKeyError(PenstockError):
    """A key is of a class whose bytes may differ from process to process."""

    def __init__(self, step: str, key: object) -> None:
        self.shown = _show(key)
        self.class_name = key.class_name if isinstance(key, _KeyOfClass) else _class_name(type(key))
        super().__init__(step, _KeyOfClass(self.shown, self.class_name))
        self.step = step

    def __str__(self) -> str:
        where = f"step {self.step!r}: " if self.step else ""
        return (
            f"{where}a key must be a str, int, float, bool, bytes, Decimal, date, time, datetime, "
            f"Row, None, or a plain tuple, list or dict of these; got {self.shown} of class "
            f"{self.class_name}; {_key_advice(self.class_name)}"
        )


class _KeyOfClass(_Shown):
    """A shown key that still knows its class."""

    __slots__ = ("class_name",)
    class_name: str

    def __new__(cls, shown: str, class_name: str) -> "_KeyOfClass":
        key = super().__new__(cls, shown)
        key.class_name = class_name
        return key

    def __reduce__(self) -> tuple[type["_KeyOfClass"], tuple[str, str]]:
        return _KeyOfClass, (str(self), self.class_name)


def _class_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _key_advice(class_name: str) -> str:
    if class_name.startswith("numpy."):
        return "turn a numpy scalar into a Python value in the key selector: int(x), float(x)"
    if class_name.startswith("datetime."):
        return "use a naive time or one with a fixed offset: x.astimezone(timezone.utc)"
    return "let the key selector return one of those: str(x), x.name, tuple(x), …"


class StateDeclaredTwiceError(PenstockError):
    """One state name is declared with two kinds or types."""

    def __init__(self, step: str, state: str, known: str, declared: str) -> None:
        super().__init__(step, state, known, declared)
        self.step = step
        self.state = state
        self.known = known
        self.declared = declared

    def __str__(self) -> str:
        return (
            f"step {self.step!r}: state {self.state!r} is known as {self.known} and now declared "
            f"as {self.declared}; give one of the two another name"
        )


class StateTypeChangedError(PenstockError):
    """A state is declared with a type that what is stored of it cannot become."""

    def __init__(self, step: str, state: str, stored: str, declared: str, reason: str) -> None:
        super().__init__(step, state, stored, declared, reason)
        self.step = step
        self.state = state
        self.stored = stored
        self.declared = declared
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"step {self.step!r}: state {self.state!r} is stored as {self.stored} and now declared "
            f"as {self.declared}: {self.reason}; declare the stored type again, or give the new "
            "state another name and fill it from the old one"
        )


class NotASavepointError(PenstockError):
    """A path was given as that of a savepoint, and it is none."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"{self.path} is no savepoint: {self.reason}; it was left as it is: give the "
            "directory that holds a savepoint's _metadata"
        )


class CorruptStateError(PenstockError):
    """A state file is damaged, cut short or not the one that was written."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"state file {self.path} cannot be used: {self.reason}; it was left as it is"


class StateTooLargeError(PenstockError):
    """A state has outgrown the memory backend."""

    def __init__(self, step: str, state: str, size: int, limit: int) -> None:
        super().__init__(step, state, size, limit)
        self.step = step
        self.state = state
        self.size = size
        self.limit = limit

    def __str__(self) -> str:
        return (
            f"step {self.step!r}: state {self.state!r} takes {self.size} bytes, more than the "
            f"{self.limit} the memory backend keeps; set state.backend.type: hashmap"
        )


class OperatorStateTooLargeError(StateTooLargeError):
    """A list of operator state is too large to travel with every micro-batch."""

    def __str__(self) -> str:
        return (
            f"step {self.step!r}: operator state {self.state!r} takes {self.size} bytes, more than "
            f"the {self.limit} that may travel with every micro-batch; keep what grows in keyed "
            "state, behind a key_by()"
        )


class OperatorStateTypeMismatchError(TypeMismatchError):
    """An element put into operator state does not fit the type its descriptor declares."""

    def __init__(self, step: str, state: str, path: str, value: object, type_info: object) -> None:
        super().__init__(path, value, type_info)
        self.step = step
        self.state = state
        self.args = (step, state, path, self.shown, type_info)

    def __str__(self) -> str:
        where = f", field {self.path!r}" if self.path else ""
        return (
            f"step {self.step!r}, operator state {self.state!r}: an element{where} does not fit "
            f"its declared type {self.type_info!r}; got {self.shown}"
        )


class MissingPathError(ConnectorError):
    """A path to read from does not exist."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return f"path {self.path!r} does not exist"


class UnwritablePathError(ConnectorError):
    """A sink cannot write below the path it was given."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"cannot write below {self.path!r}: {self.reason}"


class ChangedFileError(ConnectorError):
    """A file that is being read has become shorter."""

    def __init__(self, path: str, expected_size: int, size: int) -> None:
        super().__init__(path, expected_size, size)
        self.path = path
        self.expected_size = expected_size
        self.size = size

    def __str__(self) -> str:
        return (
            f"file {self.path} must not change once it was seen; "
            f"needs at least {self.expected_size} bytes, got {self.size}"
        )


class TextDecodingError(ConnectorError):
    """A file holds bytes that are no text in its charset."""

    def __init__(self, path: str, offset: int, charset: str, reason: str) -> None:
        super().__init__(path, offset, charset, reason)
        self.path = path
        self.offset = offset
        self.charset = charset
        self.reason = reason

    def __str__(self) -> str:
        return f"file {self.path} is no {self.charset} text at byte {self.offset}: {self.reason}"


class SocketConnectionError(ConnectorError):
    """A socket source cannot connect, or has lost its connection."""

    def __init__(self, host: str, port: int, reason: str) -> None:
        super().__init__(host, port, reason)
        self.host = host
        self.port = port
        self.reason = reason

    def __str__(self) -> str:
        return f"no connection to {self.host}:{self.port}: {self.reason}"


class CorruptIngestionLogError(ConnectorError):
    """An ingestion log is damaged in a way no crash can explain; it is left untouched."""

    def __init__(self, path: str, offset: int, reason: str) -> None:
        super().__init__(path, offset, reason)
        self.path = path
        self.offset = offset
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"ingestion log {self.path} cannot be used, at byte {self.offset}: {self.reason}; "
            "put back a good copy, or move the log away to go on without its records"
        )


class LockedIngestionLogError(ConnectorError):
    """Another process, or another attempt of the job, still writes an ingestion log."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return f"ingestion log {self.path} is in use; stop the job that writes it first"


class FencedError(PenstockError):
    """Another driver has taken over the job; this one must write nothing more."""

    def __init__(self, job: str, attempt: str, by_attempt: str) -> None:
        super().__init__(job, attempt, by_attempt)
        self.job = job
        self.attempt = attempt
        self.by_attempt = by_attempt

    def __str__(self) -> str:
        if self.attempt == self.by_attempt:
            what = f"another driver was first to start attempt {self.attempt}"
        else:
            what = f"another driver took over with attempt {self.by_attempt}"
        return (
            f"job {self.job!r}: {what}, so this driver (attempt {self.attempt}) stops; "
            "nothing is lost: the other one goes on from the last checkpoint"
        )


class CorruptJournalError(PenstockError):
    """An entry of a job's journal is missing or damaged in a way no crash can explain."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"journal entry {self.path} cannot be used: {self.reason}; put back a good copy, or "
            "start the job under another id from one of its checkpoints or savepoints"
        )


class CorruptMetadataError(PenstockError):
    """The metadata of a checkpoint or savepoint is damaged, cut short, or no such file."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"checkpoint metadata {self.path} cannot be used: {self.reason}; "
            "put back a good copy, or restore from another checkpoint or savepoint"
        )


class UnknownJobError(PenstockError):
    """A directory of checkpoints holds no job of this name or id."""

    def __init__(self, directory: str, wanted: str, known: tuple[str, ...]) -> None:
        super().__init__(directory, wanted, known)
        self.directory = directory
        self.wanted = wanted
        self.known = known

    def __str__(self) -> str:
        there = f"it has {', '.join(self.known)}" if self.known else "it has none at all"
        return (
            f"no job {self.wanted!r} in {self.directory}: {there}; "
            "give one of these, or the checkpoint directory the job runs with"
        )


class AmbiguousJobError(PenstockError):
    """A name fits several jobs."""

    def __init__(self, directory: str, wanted: str, fitting: tuple[str, ...]) -> None:
        super().__init__(directory, wanted, fitting)
        self.directory = directory
        self.wanted = wanted
        self.fitting = fitting

    def __str__(self) -> str:
        return (
            f"several jobs in {self.directory} are named {self.wanted!r}; "
            f"give the id of one: {', '.join(self.fitting)}"
        )


class JobAlreadyRunningError(PenstockError):
    """Another driver runs the job right now."""

    def __init__(self, job: str, host: str, pid: int, since: str) -> None:
        super().__init__(job, host, pid, since)
        self.job = job
        self.host = host
        self.pid = pid
        self.since = since

    def __str__(self) -> str:
        return (
            f"job {self.job!r} already runs: process {self.pid} on {self.host} was heard of at "
            f"{self.since}; cancel or stop it first, or run this program under another job id"
        )


class CommitFailedError(ConnectorError):
    """A sink could not commit; ``kind`` is "failed", or "unknown" if it may have happened."""

    def __init__(self, step: str, kind: str, count: int, reason: str) -> None:
        super().__init__(step, kind, count, reason)
        self.step = step
        self.kind = kind
        self.count = count
        self.reason = reason

    def __str__(self) -> str:
        what = "1 commit" if self.count == 1 else f"{self.count} commits"
        if self.kind == "unknown":
            return (
                f"step {self.step!r}: nobody knows whether {what} took place: {self.reason}; "
                "restore the checkpoint: commits that took place are not repeated"
            )
        return (
            f"step {self.step!r}: {what} failed: {self.reason}; nothing was dropped, the "
            "checkpoint still holds them: remove the cause and restore it"
        )


class LostPendingFileError(ConnectorError):
    """A file that waited for its commit is gone, and it is not under its final name either."""

    def __init__(self, pending: str, final: str) -> None:
        super().__init__(pending, final)
        self.pending = pending
        self.final = final

    def __str__(self) -> str:
        return (
            f"pending file {self.pending} is gone and there is no {self.final}; put one of the "
            "two back (if the final file was moved away, an empty file in its place will do)"
        )


class OccupiedPathError(ConnectorError):
    """Another file lies where a finished one should go."""

    def __init__(self, pending: str, final: str) -> None:
        super().__init__(pending, final)
        self.pending = pending
        self.final = final

    def __str__(self) -> str:
        return (
            f"pending file {self.pending} cannot become {self.final}: another file is there, and "
            "existing files are never overwritten; move that file away"
        )


class CheckpointFailedError(PenstockError):
    """A checkpoint or savepoint that somebody asked for did not complete."""

    def __init__(self, checkpoint: int, reason: str) -> None:
        super().__init__(checkpoint, reason)
        self.checkpoint = checkpoint
        self.reason = reason

    def __str__(self) -> str:
        which = f"checkpoint {self.checkpoint}" if self.checkpoint else "the checkpoint"
        return f"{which} did not complete: {self.reason}; the job goes on, ask again"


class TooManyFailedCheckpointsError(PenstockError):
    """More checkpoints failed in a row than the job tolerates."""

    def __init__(self, tolerable: int, checkpoint: int, reason: str) -> None:
        super().__init__(tolerable, checkpoint, reason)
        self.tolerable = tolerable
        self.checkpoint = checkpoint
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"checkpoint {self.checkpoint} failed: {self.reason}; "
            f"execution.checkpointing.tolerable-failed-checkpoints is {self.tolerable}"
        )


class NonRestoredStateError(PenstockError):
    """A snapshot holds state of operators that the job does not have."""

    def __init__(self, path: str, operators: tuple[str, ...]) -> None:
        super().__init__(path, operators)
        self.path = path
        self.operators = operators

    def __str__(self) -> str:
        return (
            f"{self.path} holds state that no step of this job takes over: "
            f"{', '.join(self.operators)}; give the steps their uid() back, or drop that state "
            "with --allow-non-restored-state"
        )


class RestoreMismatchError(PenstockError):
    """An operator cannot take over the state it had."""

    def __init__(self, step: str, path: str, reason: str) -> None:
        super().__init__(step, path, reason)
        self.step = step
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"step {self.step!r} cannot be restored from {self.path}: {self.reason}"


class BadCheckpointError(PenstockError):
    """The checkpoint to restore is damaged, and an older one cannot be taken unharmed."""

    def __init__(self, checkpoint: int, damage: str, older: int | None) -> None:
        super().__init__(checkpoint, damage, older)
        self.checkpoint = checkpoint
        self.damage = damage
        self.older = older

    def __str__(self) -> str:
        said = f"checkpoint {self.checkpoint} cannot be restored: {self.damage}"
        if self.older is None:
            return (
                f"{said}; there is no older one: mend the file, restore a savepoint with -s, or "
                "begin anew with --fresh, which deletes nothing"
            )
        return (
            f"{said}; sinks may have committed what belongs to it, so going back to checkpoint "
            f"{self.older} would emit that twice: mend the file, or accept duplicates with "
            "-D penstock.recovery.accept-duplicates=true"
        )


class ConfigurationFileError(ConfigurationError):
    """A file of settings is missing or holds something that cannot be used."""

    def __init__(self, path: str, line: int | None, reason: str) -> None:
        super().__init__(path, line, reason)
        self.path = path
        self.line = line
        self.reason = reason

    def __str__(self) -> str:
        where = self.path if self.line is None else f"{self.path}, line {self.line}"
        return f"configuration file {where}: {self.reason}"
