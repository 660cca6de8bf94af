import pickle

import pytest

from penstock.common import Types
from penstock.common.time import Duration, Time
from penstock.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)


def test_a_descriptor_without_a_type_is_pickled() -> None:
    assert ValueStateDescriptor("a").type_info == Types.PICKLED_BYTE_ARRAY()
    assert ListStateDescriptor("a").type_info == Types.LIST(Types.PICKLED_BYTE_ARRAY())


def test_descriptors_have_names_and_pickle() -> None:
    descriptor = MapStateDescriptor("a", Types.STRING(), Types.LONG())
    assert descriptor.get_name() == "a"
    assert pickle.loads(pickle.dumps(descriptor)).type_info == descriptor.type_info
    with pytest.raises(ValueError, match="needs a name"):
        ValueStateDescriptor("", Types.LONG())


def test_what_cannot_reduce_or_aggregate_is_rejected() -> None:
    with pytest.raises(TypeError, match="a reducing state needs"):
        ReducingStateDescriptor("a", 5, Types.LONG())
    with pytest.raises(TypeError, match="AggregateFunction"):
        AggregatingStateDescriptor("a", max, Types.LONG())


def test_a_ttl_is_held_as_it_was_built() -> None:
    config = (
        StateTtlConfig.new_builder(Time.seconds(1))
        .update_ttl_on_read_and_write()
        .return_expired_if_not_cleaned_up()
        .use_processing_time()
        .cleanup_full_snapshot()
        .cleanup_incrementally(10, True)
        .cleanup_in_rocksdb_compact_filter(1000, Duration.of_days(1))
        .disable_cleanup_in_background()
        .set_ttl(Time.seconds(5))
        .build()
    )
    descriptor = ValueStateDescriptor("a", Types.LONG())
    descriptor.enable_time_to_live(config)
    assert config.is_enabled()
    assert config.get_ttl() == Time.seconds(5)
    assert config.get_update_type() is StateTtlConfig.UpdateType.OnReadAndWrite
    assert config.get_state_visibility() is (
        StateTtlConfig.StateVisibility.ReturnExpiredIfNotCleanedUp
    )
    strategies = config.get_cleanup_strategies()
    assert strategies.in_full_snapshot()
    assert not strategies.is_cleanup_in_background()
    assert strategies.get_incremental_cleanup_strategy() is not None
    assert strategies.get_rocksdb_compact_filter_cleanup_strategy() is not None
