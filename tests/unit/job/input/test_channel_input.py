from penstock.channel.log import END_OF_INPUT, Bounds, ChannelLog, Entry, EntryKind, barrier
from penstock.channel.segment import Segment, Slice
from penstock.checkpoint.barriers.alignment import NO_BARRIER, BarrierHandling
from penstock.checkpoint.coordinator.view import CoordinatorView
from penstock.ids import ChannelId, CheckpointId
from penstock.job.input.channel_input import ChannelInput
from penstock.job.input.stage_input import MicroBatchInput

CHANNEL = ChannelId(0)


def log_of_two_entries() -> ChannelLog:
    log = ChannelLog(Bounds(1000, 1000))
    for name in ("first", "second"):
        piece = [Slice(0, 1, 1, 0)]
        log.append(Entry(EntryKind.DATA, (Segment(name, 1, [piece, piece]),)))
    return log


def polled(reader: ChannelInput) -> MicroBatchInput:
    batch = reader.poll(100, NO_BARRIER, CoordinatorView)
    assert batch is not None
    return batch


def test_a_forward_channel_is_read_entry_by_entry_to_keep_order_across_subtasks() -> None:
    batch = polled(ChannelInput({CHANNEL: log_of_two_entries()}, 2, forward=[CHANNEL]))
    assert batch.consumed == {CHANNEL: 1}


def test_other_channels_and_single_subtasks_read_all_that_fits() -> None:
    for parallelism, forward in ((2, []), (1, [CHANNEL])):
        batch = polled(ChannelInput({CHANNEL: log_of_two_entries()}, parallelism, forward))
        assert batch.consumed == {CHANNEL: 2}


def test_a_barrier_triggered_while_an_input_reads_its_log_is_not_skipped() -> None:
    log = ChannelLog(Bounds(1000, 1000))
    reader = ChannelInput({CHANNEL: log}, 1)
    n = CheckpointId(1)
    live: dict[CheckpointId, BarrierHandling] = {}

    def read_view() -> CoordinatorView:
        # Between the two reads: the checkpoint is triggered, and the source emits its barrier.
        known = dict(live)
        if not live:
            live[n] = BarrierHandling.ALIGNED
            log.append(barrier(n))
        return CoordinatorView(barriers=known)

    assert reader.poll(100, NO_BARRIER, read_view) is None
    batch = reader.poll(100, NO_BARRIER, read_view)
    assert batch is not None
    assert batch.barrier == n


def test_channel_state_of_a_failed_checkpoint_keeps_no_files() -> None:
    log = log_of_two_entries()
    log.append(barrier(CheckpointId(1)))
    reader = ChannelInput({CHANNEL: log}, 2)
    unaligned = CoordinatorView(barriers={CheckpointId(1): BarrierHandling.UNALIGNED})
    overtaken = reader.poll(100, NO_BARRIER, lambda: unaligned)
    assert overtaken is not None
    assert overtaken.channel_state is not None
    reader.notify_published(overtaken, 0)
    batch = reader.poll(100, CheckpointId(1), CoordinatorView)
    assert batch is not None
    deleted = [s.name for _, entry in reader.notify_published(batch, 2) for s in entry.segments]
    assert deleted == [], "a pending checkpoint may still copy them"
    overtaken.channel_state.release()
    log.append(END_OF_INPUT)
    last = reader.poll(100, CheckpointId(1), CoordinatorView)
    assert last is not None
    deleted = [s.name for _, entry in reader.notify_published(last, 0) for s in entry.segments]
    assert deleted == ["first", "second"]
