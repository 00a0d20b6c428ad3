"""Dispatch of jobs to runners: capacity, suspects and trials."""
