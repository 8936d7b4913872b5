"""Attacks on our own mechanisms."""
