"""Write the tables of the docs that say what the code says: settings, and events of telemetry."""

from redrive.settings import PREFIX, Settings
from redrive.worker.supervisor import telemetry
from tools.generated import ROOT, Files, between_marks, main

SETTINGS = ROOT / "docs" / "settings.md"
OBSERVABILITY = ROOT / "docs" / "observability.md"


def settings() -> str:
    """Every setting of the environment, from its field."""
    lines = ["| variable | default | what |", "|---|---|---|"]
    for name, field in Settings.model_fields.items():
        default = "" if field.default is None else f"`{field.default}`"
        lines.append(f"| `{PREFIX}{name.upper()}` | {default} | {field.description} |")
    return "\n".join(lines) + "\n"


def events() -> str:
    """The table in the docstring of telemetry."""
    lines = (telemetry.__doc__ or "").splitlines()
    return "".join(f"{line}\n" for line in lines if line.startswith("|"))


def files() -> Files:
    """Both pages."""
    return {
        SETTINGS: between_marks(SETTINGS, "settings", settings()),
        OBSERVABILITY: between_marks(OBSERVABILITY, "events", events()),
    }


if __name__ == "__main__":
    main(files)
