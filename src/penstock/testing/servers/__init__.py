"""Real servers on loopback ports, to be killed: for tests, the demo and the benches.

Each one has its own data directory and port, keeps both over kills and restarts, and never
outlives the process that started it.
"""
