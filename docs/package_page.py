"""The readme as the package index shows it: a build step of pyproject.toml. An index has no other file of the repository.

A link to a file of the repository becomes an address below `Source` of `project.urls` at the version's tag. Without such an
address its text stays, with the file's name; a picture is left out. Links within the page and addresses are kept.
"""

import re
from pathlib import Path
from typing import Any

try:
    from hatchling.metadata.plugin.interface import MetadataHookInterface
except ModuleNotFoundError:  # the function below is tested where hatchling is not installed
    MetadataHookInterface = object

_CODE_OR_LINK = re.compile(
    r"""^```.*?^```$ | ^(?:[ ]{4}[^\n]*\n)+       # blocks of code
    | (?P<picture>!?)\[(?P<words>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<target>[^)\s]+)\)
    | `[^`\n]*`                                  # code in a line; after links, whose words may be code
    """,
    re.S | re.M | re.X,
)


def page(text: str, source: str | None, version: str) -> str:
    """A Markdown text without relative addresses.

    Args:
        text: the readme.
        source: address of the repository; None if it has none.
        version: of the release, whose tag the addresses name.
    """

    def replaced(match: re.Match[str]) -> str:
        picture, words, target = match["picture"], match["words"], match["target"]
        if target is None or target.startswith(("http://", "https://", "mailto:", "#")):
            return match[0]
        if source is not None:
            way = "raw" if picture else "blob"
            return f"{picture}[{words}]({source.rstrip('/')}/{way}/v{version}/{target})"
        if picture:
            return ""
        plain = words.replace("`", "")
        return f"`{target}`" if plain in target else f"{words} (`{target}`)"

    return _CODE_OR_LINK.sub(replaced, text)


class PackagePage(MetadataHookInterface):  # type: ignore[misc]
    """Sets `readme` of the package."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the field."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        source = metadata.get("urls", {}).get("Source")
        metadata["readme"] = {"content-type": "text/markdown", "text": page(text, source, metadata["version"])}
