"""The benchmark: Redrive and its peers in turn, against one Postgres, with the same stopwatch
(docs/performance.md).
"""
