"""Write the producers in Go, Java, PHP, Ruby and TypeScript from the fields of a job.

Each producer is one file with one function. It calls `redrive.enqueue` and names only
the options that it was given, so the database decides about all others.
"""

import re
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from redrive.rules.payloads.job_fields import OPTIONS, FieldType
from tools.generated import ROOT, Files, main

EXAMPLES = ROOT / "examples" / "polyglot"
PRODUCERS = {
    "redrive.go": EXAMPLES / "go" / "redrive" / "redrive.go",
    "Redrive.java": EXAMPLES / "java" / "Redrive.java",
    "redrive.php": EXAMPLES / "php" / "redrive.php",
    "redrive.rb": EXAMPLES / "ruby" / "redrive.rb",
    "redrive.ts": EXAMPLES / "node" / "redrive.ts",
}
"""Where each template's file goes."""

SQL: dict[FieldType, str] = {
    "text": "cast({} as text)",
    "integer": "cast({} as int)",
    "number": "cast({} as bigint)",
    "instant": "cast({} as timestamptz)",
    "duration": "make_interval(secs => cast({} as double precision))",
    "object": "cast({} as jsonb)",
    "names": "array(select jsonb_array_elements_text(cast({} as jsonb)))",
}
"""How a parameter becomes an argument of `redrive.enqueue`; {} is the parameter."""

_COMMAND_LINE = re.compile(r", such as \w+(?=\.)| \[default: [^\]]*\]")


class Option(NamedTuple):
    """An option of a producer.

    Attributes:
        name: its name in SQL.
        type: its type on the way to the database.
        text: what it does, as one sentence.
    """

    name: str
    type: FieldType
    text: str

    @property
    def camel(self) -> str:
        """Its name with a capital in place of each underline."""
        first, *others = self.name.split("_")
        return first + "".join(word.capitalize() for word in others)

    @property
    def pascal(self) -> str:
        """Its name for Go."""
        return self.camel[0].upper() + self.camel[1:]

    def sql(self, parameter: str) -> str:
        """Return the SQL expression of its argument."""
        return SQL[self.type].format(parameter)


def options() -> list[Option]:
    """Return the options that SQL's enqueue takes."""
    return [
        Option(name, field.type, _COMMAND_LINE.sub("", field.help))
        for name, field in OPTIONS.items()
        if field.parameter
    ]


def files() -> Files:
    """Return each producer."""
    templates = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - these are programs, not pages
    )
    return {
        path: templates.get_template(f"{name}.jinja").render(options=options())
        for name, path in PRODUCERS.items()
    }


if __name__ == "__main__":
    main(files)
