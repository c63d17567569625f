"""A seeded simulation of a fleet: several workers at once over one store, whose transactions it interleaves.

The engine, the dispatcher and the store of each worker are the real ones. Simulated is what lies between them
(`server.py`): leases that a server ends where it hears nothing, rows that become visible out of the order of their
ids, partitions; wake-ups that are lost, late or doubled; processes that die, freeze, wake up as zombies, and are of
another release (`worker.py`); and people (`world.py`). One seed decides everything.
"""
