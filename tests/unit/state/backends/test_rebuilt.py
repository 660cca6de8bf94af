"""A store says whether it was found on its host or built out of all its files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from penstock.state.backends.base import StateBackend
from penstock.state.backends.refs import StagedName, StateLocation, StateRef
from penstock.state.backends.registry import create_state_backend
from penstock.state.delta import Delta


@pytest.fixture(params=["hashmap", "rocksdb"])
def backend(request: pytest.FixtureRequest) -> StateBackend:
    return create_state_backend(request.param)


@pytest.fixture
def place(tmp_path: Path) -> StateLocation:
    return StateLocation(tmp_path / "shared", tmp_path / "node-1")


def was_rebuilt(backend: StateBackend, place: StateLocation, ref: StateRef) -> bool:
    with backend.open(place, ref) as store:
        return store.was_rebuilt


def after(backend: StateBackend, place: StateLocation, ref: StateRef, value: bytes) -> StateRef:
    version = ref.version + 1
    name = StagedName("a1", version, 0, 0, version)
    staged = backend.stage(place, Delta([b"\0\0\0\1key"], [value]), name, version)
    return backend.publish(ref, version, staged)


def test_a_store_that_is_there_or_catches_up_was_not_rebuilt(
    backend: StateBackend, place: StateLocation
) -> None:
    ref = StateRef(0)
    assert not was_rebuilt(backend, place, ref)
    for version in range(1, 4):
        ref = after(backend, place, ref, b"%d" % version)
        assert not was_rebuilt(backend, place, ref)
        assert not was_rebuilt(backend, place, ref)


def test_a_host_that_has_no_store_rebuilds_it_once(
    backend: StateBackend, place: StateLocation
) -> None:
    ref = after(backend, place, StateRef(0), b"1")
    assert not was_rebuilt(backend, replace(place, local_dir=place.local_dir / "0"), StateRef(0))
    elsewhere = replace(place, local_dir=place.local_dir.with_name("node-2"))
    assert was_rebuilt(backend, elsewhere, ref)
    assert not was_rebuilt(backend, elsewhere, after(backend, place, ref, b"2"))


def test_a_state_without_any_file_needs_no_rebuilding(
    backend: StateBackend, place: StateLocation
) -> None:
    assert not was_rebuilt(backend, place, StateRef(7))


def test_an_old_version_is_rebuilt_next_to_the_store(
    backend: StateBackend, place: StateLocation
) -> None:
    first = after(backend, place, StateRef(0), b"1")
    second = after(backend, place, first, b"2")
    assert was_rebuilt(backend, place, second)
    assert was_rebuilt(backend, place, first), "a zombie asks for it"
    assert not was_rebuilt(backend, place, second)
