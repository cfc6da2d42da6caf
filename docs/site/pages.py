"""The repository's Markdown files as pages of the site."""

import re
import shutil
from pathlib import Path

START = {"English": "index.md", "中文": "README.zh-CN.md"}
TOP = ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")
GUIDES = (
    "tutorial", "tutorial.zh-CN", "own-mechanism", "own-mechanism.zh-CN", "study", "study.zh-CN", "watch", "watch.zh-CN",
    "ranking", "ranking.zh-CN", "own-results", "own-results.zh-CN", "explain", "explain.zh-CN", "scaling", "scaling.zh-CN",
    "inspect", "extrapolate", "audit", "symmetries", "block", "joints", "own-module", "port", "hugging-face", "notebooks",
    "report", "resume", "gpu", "clusters",
)  # fmt: skip
"""In the order in which a newcomer needs them."""
_LINK = re.compile(r"(!?\[(?:[^\]\[]|\[[^\]]*\])*\])\(([^)\s]+)\)")
_FENCE = re.compile(r"(^```.*?^```$)", re.M | re.S)
_ELSEWHERE = ("http://", "https://", "mailto:", "#")


def copy(root: Path, out: Path) -> dict[str, object]:
    """Copy every page and every file that one links to, to the same places below `out`.

    Returns:
        The navigation: titles with pages or further sections.
    """
    paths = [root / name for name in ("README.md", "README.zh-CN.md", *TOP)]
    paths += sorted((root / "docs").rglob("*.md"))
    paths += sorted((root / "src").rglob("*.md"))
    for path in paths:
        place = out / path.relative_to(root)
        place = out / "index.md" if place == out / "README.md" else place
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(_page(path, root, out), encoding="utf-8")
    shutil.copy(root / "docs" / "site" / "site.css", out / "site.css")
    return {
        "Start": START,
        "Guides": _guides(out),
        "Study files": {"Every field": "docs/study-file.md"},
        "Studies": _titled(out, "docs/studies/*.md"),
        "Words and sources": {
            "Glossary": "docs/glossary.md",
            "术语表": "docs/glossary.zh-CN.md",
            "Sources": "docs/sources.md",
            "来源": "docs/sources.zh-CN.md",
        },
        "Measurements": {
            "Benchmarks": "docs/benchmarks.md",
            "Biases under joints": "docs/bias-table.md",
            "Shipped residuals": "docs/shipped-residuals.md",
            "Learned numbers": "docs/learned-numbers.md",
        },
        "Inside": {
            "Architecture": "ARCHITECTURE.md",
            "Contributing": "CONTRIBUTING.md",
            "Release": "docs/release.md",
            **_titled(out, "src/**/derivation.md"),
            "Decisions": _titled(out, "docs/decisions/*.md"),
            "Changes": "CHANGELOG.md",
        },
    }


def copy_notebooks(folder: Path, out: Path) -> dict[str, str]:
    """Copy executed notebooks (HTML), if there are any. Returns them for the navigation."""
    pages = sorted(folder.glob("*.html"))
    if pages:
        out.mkdir(parents=True, exist_ok=True)
    for path in pages:
        shutil.copy(path, out / path.name)
        page = f"# {path.stem}\n\n[Open the executed notebook]({path.name}), which was run when this site was built.\n"
        (out / f"{path.stem}-page.md").write_text(page, encoding="utf-8")
    return {path.stem: f"notebooks/{path.stem}-page.md" for path in pages}


def _page(path: Path, root: Path, out: Path) -> str:
    """Text of a page. Files that it links to are copied; a link to a folder becomes its text."""

    def linked(match: re.Match[str]) -> str:
        text, address = match[1], match[2]
        if address.startswith(_ELSEWHERE):
            return match[0]
        file = address.partition("#")[0]
        target = (path.parent / file).resolve()
        if not target.exists():
            raise SystemExit(f"docs: {path.relative_to(root)}: expected a link to a file, got {address!r}.")
        if target.is_dir():
            return text[1:-1]
        if target.suffix != ".md":
            place = out / target.relative_to(root)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(target, place)
        if target == root / "README.md":
            address = address.replace("README.md", "index.md")
        return f"{text}({address})"

    parts = _FENCE.split(path.read_text(encoding="utf-8"))
    return "".join(part if part.startswith("```") else _LINK.sub(linked, part) for part in parts)


def _guides(out: Path) -> dict[str, str]:
    """All guides in the order of `GUIDES`.

    Raises:
        SystemExit: one has no place there, or is gone.
    """
    titled = _titled(out, "docs/guide/*.md")
    by_name = {Path(page).stem: title for title, page in titled.items()}
    if by_name.keys() != set(GUIDES):
        wrong = sorted(by_name.keys() ^ set(GUIDES))
        raise SystemExit(f"docs/site/pages.py: expected every guide once in GUIDES, got these in one of both: {wrong}")
    return {by_name[name]: titled[by_name[name]] for name in GUIDES}


def _titled(out: Path, pattern: str) -> dict[str, str]:
    """Pages by title: the text of their first heading."""
    by_title = {}
    for path in sorted(out.glob(pattern)):
        heading = re.search(r"^# (.+)$", path.read_text(encoding="utf-8"), re.M)
        by_title[heading[1].replace("`", "") if heading else path.stem] = str(path.relative_to(out))
    return by_title
