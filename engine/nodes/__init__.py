"""Node types: their inputs and outputs (`types`), and the runners of those that have effects (`runtime`)."""
