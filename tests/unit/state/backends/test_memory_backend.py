from pathlib import Path

import pytest

from penstock.errors import StateTooLargeError
from penstock.state.backends.memory import MemoryBackend
from penstock.state.backends.refs import StagedName, StateLocation, StateRef
from penstock.state.delta import Delta
from penstock.state.key_groups import routed_key
from penstock.state.registry.meta_info import StateMetaInfo, registry_key, table_prefix

PLACE = StateLocation(Path("/nowhere"), Path("/nowhere"))
NAME = StagedName("a", 1, 0, 0, 0)


def put(backend: MemoryBackend, sizes: dict[str, int]) -> StateRef:
    entries = {}
    for table, (state, size) in enumerate(sizes.items(), start=1):
        entries[registry_key(state)] = StateMetaInfo(table, "value state", "String").encode()
        entries[table_prefix(table) + routed_key(b"k", 0)] = b"x" * size
    keys = sorted(entries)
    delta = Delta(keys, [entries[key] for key in keys])
    return backend.publish(StateRef(0), 1, backend.stage(PLACE, delta, NAME, 1))


def test_a_state_above_the_limit_is_rejected_with_the_way_out() -> None:
    with pytest.raises(StateTooLargeError) as caught:
        put(MemoryBackend("count"), {"small": 10, "large": 5 * 1024 * 1024})
    assert caught.value.state == "large"
    assert str(caught.value).startswith("step 'count': state 'large' takes 5242886 bytes")
    assert str(caught.value).endswith("set state.backend.type: hashmap")


def test_the_limit_holds_for_each_state_by_itself() -> None:
    ref = put(MemoryBackend("count", largest_state=1000), {"one": 900, "two": 900})
    assert ref.inline is not None


def test_only_staged_bytes_can_be_published() -> None:
    with pytest.raises(TypeError, match="stages bytes"):
        MemoryBackend().publish(StateRef(0), 1, "name")  # type: ignore[arg-type]
