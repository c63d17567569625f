"""The fold, by what the events are about; `engine.fold` puts it together."""
