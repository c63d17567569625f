"""Everybody at every door: who gets in, by a table that a person wrote, through the bot's own path."""
