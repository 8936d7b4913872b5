"""Experiments: run, measure, keep and show."""
