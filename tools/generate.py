"""Write every file that is made from others, or is a copy: `make generate`.

With --check nothing is written, and each file that is stale is named. Each generator does the same
for its own files, as a program.
"""

from tools import chart_copies, docs_tables, generated, metrics_page, values_table
from tools.dashboards import generate as dashboards

GENERATORS = (
    dashboards.files,
    chart_copies.files,
    values_table.files,
    docs_tables.files,
    metrics_page.files,
)
"""In this order: the copies and the page of metrics are made from the dashboards."""

if __name__ == "__main__":
    generated.main(*GENERATORS)
