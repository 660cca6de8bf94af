from penstock.datastream import connectors
from penstock.datastream.connectors import (
    base,
    datagen,
    discard,
    file_system,
    number_seq,
    socket,
    two_phase,
)


def test_every_public_connector_is_found_in_the_package_too() -> None:
    modules = (base, datagen, discard, number_seq, socket, two_phase)
    names = {name for module in modules for name in module.__all__}
    assert names < set(connectors.__all__)
    policies = {"DefaultRollingPolicy", "OnCheckpointRollingPolicy"}
    assert set(file_system.__all__) - policies < set(connectors.__all__)
    assert all(hasattr(connectors, name) for name in connectors.__all__)
