"""An orders pipeline, Kafka → keyed state → Kafka and PostgreSQL, whose every part is killed.

`python -m tests.crash.orders --seeds 1-50` plays schedules of faults and prints a line for each.
"""
