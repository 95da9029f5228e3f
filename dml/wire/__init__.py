"""Communication: the only stage in which numbers leave a worker.

plans/ and costs/ are pure arithmetic; comm/ sends messages; collectives/, reducers/ and
server/ are built on messages, memory/ on shared windows, mesh/ on JAX devices.
"""
