"""What is released: one version everywhere, a changelog that knows it, links that lead there."""

from tools import release, versions
from tools.generated import ROOT
from tools.package import with_absolute_links

CHANGELOG = """# Changelog

## [Unreleased]

## [1.2.0] - 2026-12-01

### Added

- Something.

## [1.1.0] - 2026-11-01

- Something else.
"""


def test_a_release_has_what_the_changelog_says_of_it():
    assert release.notes(CHANGELOG, "1.2.0") == "### Added\n\n- Something."
    assert release.notes(CHANGELOG, "1.1.0") == "- Something else."
    assert release.trouble("v1.2.0", "1.2.0", CHANGELOG) is None


def test_a_tag_that_is_not_the_version_or_has_no_changelog_is_refused():
    assert "tag v1.2.0" in str(release.trouble("v1.3.0", "1.2.0", CHANGELOG))
    assert "[1.0.0]" in str(release.trouble("v1.0.0", "1.0.0", CHANGELOG))
    assert release.notes(CHANGELOG, "Unreleased") is None


def test_each_place_of_the_version_is_found():
    """A place that is written otherwise would keep an old one, and nothing would be stale."""
    found = {
        place: versions.NAMED.findall((ROOT / place).read_text())
        for place in versions.PLACES
    }

    assert {place for place, names in found.items() if not names} == set()
    assert found["helm/redrive/Chart.yaml"] == ["version: ", "appVersion: "]
    assert "ARG VERSION=" in found["Dockerfile"]


def test_links_to_files_become_links_to_the_release_and_others_stay():
    page = "[a](docs/a.md#b) ![c](c.png) [d](https://d.example/) [e](#e)"

    assert with_absolute_links(page, "https://git.example/me/x", "v1.0.0") == (
        "[a](https://git.example/me/x/blob/v1.0.0/docs/a.md#b)"
        " ![c](https://git.example/me/x/raw/v1.0.0/c.png) [d](https://d.example/) [e](#e)"
    )
