"""Where sessions are kept: one port (`engine.storage.port`), several backends, one contract suite for all."""
