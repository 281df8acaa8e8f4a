"""What the site needs beside these pages: its first page is the README, links to code lead to the
code host (where `repo_url` names one, else they are plain text), and `llms.txt` lists the pages.
"""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+([^)#]+)(#[^)]*)?\)")


def on_files(files: Any, config: Any) -> Any:
    """The README as the first page; what it links to lies one folder higher there."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    text = re.sub(r"\]\((?!docs/|https?:|#)", "](../", text).replace("](docs/", "](")
    files.append(File.generated(config, "index.md", content=text))
    return files


def on_page_markdown(markdown: str, config: Any, **_: Any) -> str:
    """Links out of this folder."""
    host = (config.repo_url or "").rstrip("/")
    where = rf"[\1]({host}/blob/main/\2\3)" if host else r"\1"
    return OUTSIDE.sub(where, markdown)


def on_post_build(config: Any) -> None:
    """`llms.txt` (llmstxt.org): each page with its first sentence."""
    lines = [f"# {config.site_name}", "", f"> {config.site_description}", ""]
    for path in sorted((ROOT / "docs").glob("*.md")):
        title, _, body = path.read_text(encoding="utf-8").partition("\n")
        first = " ".join(body.strip().split("\n\n")[0].split())
        lines.append(f"- [{title.lstrip('# ')}]({path.stem}/index.html): {first}")
    (Path(config.site_dir) / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
