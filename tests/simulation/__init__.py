"""A seeded simulation of the whole bot: the real one, with nothing real around it.

The core, the middleware, the conversation, catch-up, the outbox, the service, the engine and the SQLite store are those
that run in production, put together by the same `Bot`. Simulated is what lies outside: Slack (`slack.py`, the model
of the local workspace without its server), the clock and the order in which things happen (`timeline.py`), the network
and the death of the process (`life.py`), and people (`people.py`). Everything runs on one thread, and everything that
chance decides comes from one seed: the same seed gives the same run, byte for byte.

A run has two parts. First everything that can go wrong does: deliveries come twice, late, in another order or never,
acknowledgements and answers are lost, Slack limits and fails, sockets close, clocks jump, and the process dies between
any two of its inputs and outputs. Then all faults end, people answer what is asked, and once nothing is left to do
`checks.py` looks at what is in Slack and in the store.
"""
