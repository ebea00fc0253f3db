"""The examples in the documentation, to be run."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def examples(document: str, language: str) -> list[str]:
    """Return the code blocks of a language in a document of `docs/`, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", (DOCS / document).read_text(), re.DOTALL | re.MULTILINE)
