"""Node types: what each takes and gives (`specs`), and the runners of those that have effects (`port`)."""
