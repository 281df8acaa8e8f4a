"""The pictures of the README and the page on the site, of what `make real` writes:
`python docs/pictures.py out/real/undeclared`.

1. The case's page, as `forensics report --format html` draws it today, is the site's example.
2. Its first screen is photographed in a headless Chromium (`chromium`, `chromedriver`).
3. What `forensics report` prints of it, up to the sources, becomes a drawing of a terminal.
"""

import argparse
import io
import re
import shutil
import subprocess
import sys
from pathlib import Path

from PIL import Image
from rich.console import Console
from rich.text import Text

DOCS = Path(__file__).parent
SCREEN = (1180, 880)
FLAGS = ("--headless=new", "--no-sandbox", "--hide-scrollbars")
LINES = 24  # of the terminal


def page(case: Path, out: Path) -> Path:
    """The case's page, copied."""
    words = [sys.executable, "-m", "forensics", "report", str(case), "--format", "html"]
    subprocess.run(words, check=True)
    return Path(shutil.copy(case / "report.html", out / "real-model-case.html"))


def screen(html: Path, out: Path) -> None:
    """The first screen of a page."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    for flag in FLAGS:
        options.add_argument(flag)
    service = webdriver.ChromeService(shutil.which("chromedriver"))
    driver = webdriver.Chrome(options=options, service=service)
    try:
        size = {"width": SCREEN[0], "height": SCREEN[1], "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        driver.get(html.absolute().as_uri())
        picture = Image.open(io.BytesIO(driver.get_screenshot_as_png()))
        picture.convert("RGB").quantize(128).save(out / "real-model.png", optimize=True)
    finally:
        driver.quit()


def terminal(case: Path, out: Path) -> None:
    """What the command prints."""
    words = [sys.executable, "-m", "forensics", "report", str(case)]
    told = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    console = Console(record=True, width=100, file=io.StringIO(), force_terminal=True)
    console.print(Text("$ forensics report case", style="bold"))
    for line in told.splitlines()[:LINES]:
        console.print(Text(line))
    drawn = console.export_svg(title="forensics", unique_id="report")
    drawn = re.sub(r"@font-face \{.*?\}", "", drawn, flags=re.DOTALL)  # from a network
    (out / "terminal.svg").write_text(drawn, encoding="utf-8")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", type=Path)
    parser.add_argument("--out", type=Path, default=DOCS)
    given = parser.parse_args(arguments)
    screen(page(given.case, given.out), given.out)
    terminal(given.case, given.out)


if __name__ == "__main__":
    main()
