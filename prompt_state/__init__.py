"""What each conversation thread waits for: model, store, who may answer, which prompt a reply answers."""
