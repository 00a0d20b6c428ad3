"""Rules for how an attempt ends: categories, policies and settlements."""
