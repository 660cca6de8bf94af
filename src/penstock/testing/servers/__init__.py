"""Real servers on loopback ports, for tests, demos and benchmarks that kill them.

Each server has its own data directory and port, keeps both across kills and restarts, and never
outlives the process that started it.
"""
