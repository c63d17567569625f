"""Tests of what a release is made of, and of the files with which it is deployed."""
