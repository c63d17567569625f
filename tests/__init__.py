"""Tests, by package. `support` has what several of them share."""
