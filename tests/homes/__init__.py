"""Homes of released versions, which every later release opens: see README.md."""
