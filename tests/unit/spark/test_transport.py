from __future__ import annotations

import pytest

from penstock.errors import ConfigurationError
from penstock.graph.regions import Transport
from penstock.spark.transport import ClusterFacts, choose_transport, shuffle_obstacle

HERE, THERE = "10.0.0.1", "10.0.0.2"
SUITABLE = {"spark.stage.maxConsecutiveAttempts": "1"}
OBSTACLE = "the SparkSession has a setting"


def cluster(*executors: str, is_local: bool = False, obstacle: str | None = None) -> ClusterFacts:
    return ClusterFacts(is_local, HERE, frozenset(executors), obstacle)


@pytest.mark.parametrize(
    ("facts", "chosen", "why"),
    [
        (cluster(is_local=True), Transport.CHANNEL, "everything runs in this process"),
        (cluster(HERE), Transport.CHANNEL, f"all executors are on the driver's host {HERE}"),
        (cluster(HERE, THERE), Transport.SHUFFLE, f"executors are on {THERE}"),
        (cluster(THERE), Transport.SHUFFLE, f"executors are on {THERE}"),
        (cluster(), Transport.SHUFFLE, "no executor is known yet"),
        (
            cluster(THERE, obstacle=OBSTACLE),
            Transport.CHANNEL,
            f"{OBSTACLE}; its hosts must share the work-dir",
        ),
        (
            cluster(HERE, obstacle=OBSTACLE),
            Transport.CHANNEL,
            f"all executors are on the driver's host {HERE}",
        ),
    ],
)
def test_auto_depends_on_where_executors_are(
    facts: ClusterFacts, chosen: Transport, why: str
) -> None:
    assert choose_transport(None, facts) == (chosen, why)


@pytest.mark.parametrize("wanted", list(Transport))
def test_the_setting_of_the_user_wins_everywhere(wanted: Transport) -> None:
    for facts in (cluster(is_local=True), cluster(HERE), cluster(THERE)):
        assert choose_transport(wanted, facts)[0] is wanted


def test_a_shuffle_that_could_mix_two_executions_is_refused() -> None:
    reason = shuffle_obstacle({})
    assert reason is not None
    with pytest.raises(ConfigurationError) as caught:
        choose_transport(Transport.SHUFFLE, cluster(THERE, obstacle=reason))
    assert str(caught.value) == (
        "penstock.exchange is 'shuffle', and the SparkSession has "
        "spark.stage.maxConsecutiveAttempts=unset where it must be 1: a Spark stage that runs "
        "again would mix two executions of one micro-batch"
    )
    assert choose_transport(Transport.CHANNEL, cluster(THERE, obstacle=reason))


def test_decommissioned_executors_must_not_make_a_stage_run_again() -> None:
    leaving = {**SUITABLE, "spark.decommission.enabled": "true"}
    assert shuffle_obstacle(SUITABLE) is None
    assert "spark.stage.ignoreDecommissionFetchFailure=false" in (shuffle_obstacle(leaving) or "")
    counted = {**leaving, "spark.stage.ignoreDecommissionFetchFailure": "false"}
    assert shuffle_obstacle(counted) is None
