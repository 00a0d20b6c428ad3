"""A Django project of one app: orders, each confirmed by a job."""
