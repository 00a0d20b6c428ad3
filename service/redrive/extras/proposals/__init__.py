"""Proposals of agents, which people start or reject."""
