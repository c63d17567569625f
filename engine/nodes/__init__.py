"""Node types: what each takes and gives (`types`), and the runners of those that have effects (`runtime`)."""
