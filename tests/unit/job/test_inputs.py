from penstock.channel.log import END_OF_INPUT, Bounds, ChannelLog, Entry, EntryKind, barrier
from penstock.channel.segment import Segment, Slice
from penstock.checkpoint.cut import Passing
from penstock.ids import ChannelId, CheckpointId
from penstock.job.inputs import Barriers, ChannelInput, Taken

CHANNEL = ChannelId(0)


def log_of_two_entries() -> ChannelLog:
    log = ChannelLog(Bounds(1000, 1000))
    for name in ("first", "second"):
        piece = [Slice(0, 1, 1, 0)]
        log.append(Entry(EntryKind.DATA, (Segment(name, 1, [piece, piece]),)))
    return log


def take(given: ChannelInput) -> Taken:
    taken = given.take(100, Barriers, is_full=False)
    assert taken is not None
    return taken


def test_a_forward_channel_is_taken_entry_by_entry_to_keep_order_across_subtasks() -> None:
    taken = take(ChannelInput({CHANNEL: log_of_two_entries()}, 2, forward=[CHANNEL]))
    assert taken.consumed == {CHANNEL: 1}


def test_other_channels_and_single_subtasks_take_all_that_fits() -> None:
    for parallelism, forward in ((2, []), (1, [CHANNEL])):
        taken = take(ChannelInput({CHANNEL: log_of_two_entries()}, parallelism, forward))
        assert taken.consumed == {CHANNEL: 2}


def test_a_barrier_triggered_while_an_input_looks_at_its_log_is_not_passed_over() -> None:
    log = ChannelLog(Bounds(1000, 1000))
    given = ChannelInput({CHANNEL: log}, 1)
    n = CheckpointId(1)
    live: dict[CheckpointId, Passing] = {}

    def look() -> Barriers:
        # Between the two readings: triggered, and the source has sent its barrier.
        known = dict(live)
        if not live:
            live[n] = Passing.ALIGNED
            log.append(barrier(n))
        return Barriers(known)

    assert given.take(100, look, is_full=False) is None
    taken = given.take(100, look, is_full=False)
    assert taken is not None
    assert taken.barrier == n


def test_a_recording_whose_checkpoint_failed_keeps_no_files() -> None:
    log = log_of_two_entries()
    log.append(barrier(CheckpointId(1)))
    given = ChannelInput({CHANNEL: log}, 2)
    overtaken = given.take(
        100, lambda: Barriers({CheckpointId(1): Passing.UNALIGNED}), is_full=False
    )
    assert overtaken is not None
    assert overtaken.recording is not None
    given.published(overtaken, 0)
    taken = given.take(100, lambda: Barriers({}, CheckpointId(1)), is_full=False)
    assert taken is not None
    gone = [s.name for _, entry in given.published(taken, 2) for s in entry.segments]
    assert gone == [], "a checkpoint under way may still copy them"
    overtaken.recording.end()
    log.append(END_OF_INPUT)
    last = given.take(100, lambda: Barriers({}, CheckpointId(1)), is_full=False)
    assert last is not None
    gone = [s.name for _, entry in given.published(last, 0) for s in entry.segments]
    assert gone == ["first", "second"]
