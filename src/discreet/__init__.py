"""Reinforcement learning that keeps its users' secrets."""
