"""Renders samples in the text format that Prometheus scrapes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from penstock.serve.prometheus.samples import JobSnapshot, Sample, samples

CONTENT_TYPE = CONTENT_TYPE_LATEST


def render(jobs: Iterable[JobSnapshot]) -> bytes:
    """Return the metrics of running jobs, with the content type `CONTENT_TYPE`."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Samples(samples(jobs)))
    return generate_latest(registry)


class _Samples(Collector):
    def __init__(self, found: Iterable[Sample]) -> None:
        self._found = list(found)

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        families: dict[str, GaugeMetricFamily] = {}
        seen = set()
        for sample in self._found:
            # Two names of user metrics may become the same, and a scrape fails with a series twice.
            series = sample.name, *sorted(sample.labels.items())
            if series in seen:
                continue
            seen.add(series)
            family = families.get(sample.name)
            if family is None:
                family = families[sample.name] = GaugeMetricFamily(sample.name, sample.help)
            family.add_sample(sample.name, dict(sample.labels), sample.value)
        yield from families.values()
