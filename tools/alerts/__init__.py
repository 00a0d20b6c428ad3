"""The alert rules tried against time: the real rule engine over series that are made up."""
