"""Tests of the local workspace."""
