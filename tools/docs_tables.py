"""Write the tables of the docs that repeat the code: settings and telemetry events."""

from redrive.settings import PREFIX, Settings
from redrive.worker.supervisor import telemetry
from tools.generated import ROOT, Files, between_marks, main

SETTINGS = ROOT / "docs" / "settings.md"
OBSERVABILITY = ROOT / "docs" / "observability.md"


def settings() -> str:
    """Return the table of all settings, made from their fields."""
    lines = ["| variable | default | what |", "|---|---|---|"]
    for name, field in Settings.model_fields.items():
        default = "" if field.default is None else f"`{field.default}`"
        lines.append(f"| `{PREFIX}{name.upper()}` | {default} | {field.description} |")
    return "\n".join(lines) + "\n"


def events() -> str:
    """Return the table in the docstring of telemetry."""
    lines = (telemetry.__doc__ or "").splitlines()
    return "".join(f"{line}\n" for line in lines if line.startswith("|"))


def files() -> Files:
    """Return both pages."""
    return {
        SETTINGS: between_marks(SETTINGS, "settings", settings()),
        OBSERVABILITY: between_marks(OBSERVABILITY, "events", events()),
    }


if __name__ == "__main__":
    main(files)
