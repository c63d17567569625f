"""The fold, by what the events are about; `engine.journal.fold` puts it together."""
