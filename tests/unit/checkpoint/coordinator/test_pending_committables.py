from penstock.checkpoint.coordinator.pending_checkpoint import PendingCommittables
from penstock.checkpoint.storage.metadata import CommittableState
from penstock.ids import CheckpointId

ONE, TWO, THREE = (CommittableState(n, b"%d" % n) for n in (1, 2, 3))


def pending(*committables: CommittableState) -> PendingCommittables:
    made = PendingCommittables()
    made.add("sink", committables)
    return made


def test_a_checkpoint_commits_what_was_prepared_up_to_it_and_nothing_later() -> None:
    some = pending(ONE, TWO, THREE)
    assert some.of("sink", CheckpointId(2)) == [ONE, TWO]
    assert some.upto(CheckpointId(2)) == {"sink": [ONE, TWO]}
    assert some.all() == {"sink": [ONE, TWO, THREE]}


def test_what_is_committed_is_forgotten_with_all_before_it() -> None:
    some = pending(ONE, TWO, THREE)
    some.committed(CheckpointId(2))
    assert some.all() == {"sink": [THREE]}
    some.committed(CheckpointId(2))
    assert some.all() == {"sink": [THREE]}


def test_committables_are_kept_by_sink() -> None:
    some = pending(TWO)
    some.add("other", [ONE])
    assert some.upto(CheckpointId(1)) == {"other": [ONE]}
    assert some.of("sink", CheckpointId(1)) == []
    assert some.of("unknown", CheckpointId(9)) == []


def test_a_sink_without_committables_has_nothing_pending() -> None:
    assert pending().upto(CheckpointId(9)) == {}
