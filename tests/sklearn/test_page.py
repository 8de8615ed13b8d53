"""The page about the estimators lists the checks that fail, with their reasons."""

from pathlib import Path

from fedvine.sklearn.checks import LINK_CHECKS, NODE_CHECKS

PAGE = Path(__file__).parents[2] / "docs" / "howto-estimators.md"


def test_the_page_has_the_lists():
    listed = [line for line in PAGE.read_text().splitlines() if "| `check_" in line]
    assert listed == [f"| `{name}` | `{check}` | {reason} |" for name, checks in (
        ("NodeClassifier", NODE_CHECKS), ("LinkForecaster", LINK_CHECKS))
        for check, reason in sorted(checks.items())]
