"""Logged trajectories: where they come from, who is in them how often, and how they are counted."""
