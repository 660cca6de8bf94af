from __future__ import annotations

import pytest

from penstock.errors import ConfigurationError
from penstock.graph.groups import Transport
from penstock.spark.transport import ClusterFacts, choose_transport, why_unfit

HERE, THERE = "10.0.0.1", "10.0.0.2"
FIT = {"spark.stage.maxConsecutiveAttempts": "1"}
UNFIT = "the SparkSession has a setting"


def cluster(*executors: str, is_local: bool = False, unfit: str | None = None) -> ClusterFacts:
    return ClusterFacts(is_local, HERE, frozenset(executors), unfit)


@pytest.mark.parametrize(
    ("facts", "chosen", "why"),
    [
        (cluster(is_local=True), Transport.CHANNEL, "everything runs in this process"),
        (cluster(HERE), Transport.CHANNEL, f"all executors are on the driver's host {HERE}"),
        (cluster(HERE, THERE), Transport.SHUFFLE, f"executors are on {THERE}"),
        (cluster(THERE), Transport.SHUFFLE, f"executors are on {THERE}"),
        (cluster(), Transport.SHUFFLE, "no executor is known yet"),
        (
            cluster(THERE, unfit=UNFIT),
            Transport.CHANNEL,
            f"{UNFIT}; its hosts must share the work-dir",
        ),
        (
            cluster(HERE, unfit=UNFIT),
            Transport.CHANNEL,
            f"all executors are on the driver's host {HERE}",
        ),
    ],
)
def test_auto_goes_by_where_executors_are(facts: ClusterFacts, chosen: Transport, why: str) -> None:
    assert choose_transport(None, facts) == (chosen, why)


@pytest.mark.parametrize("wanted", list(Transport))
def test_what_the_user_says_is_done_anywhere(wanted: Transport) -> None:
    for facts in (cluster(is_local=True), cluster(HERE), cluster(THERE)):
        assert choose_transport(wanted, facts)[0] is wanted


def test_a_shuffle_that_could_mix_two_executions_is_refused() -> None:
    reason = why_unfit({})
    assert reason is not None
    with pytest.raises(ConfigurationError) as caught:
        choose_transport(Transport.SHUFFLE, cluster(THERE, unfit=reason))
    assert str(caught.value) == (
        "penstock.exchange is 'shuffle', and the SparkSession has "
        "spark.stage.maxConsecutiveAttempts=unset where it must be 1: a stage that runs again "
        "would mix two executions of one micro-batch"
    )
    assert choose_transport(Transport.CHANNEL, cluster(THERE, unfit=reason))


def test_leaving_executors_are_no_excuse_for_running_a_stage_again() -> None:
    leaving = {**FIT, "spark.decommission.enabled": "true"}
    assert why_unfit(FIT) is None
    assert "spark.stage.ignoreDecommissionFetchFailure=false" in (why_unfit(leaving) or "")
    counted = {**leaving, "spark.stage.ignoreDecommissionFetchFailure": "false"}
    assert why_unfit(counted) is None
