"""The findings of a scan in a real browser: the filter, one click to the
evidence, and nothing foreign that actions.
"""

import pytest

from forensics import scan
from forensics.records import Step
from forensics.records.tables import write_trajectories
from tests.forensics.report_hostile import ALL
from tests.forensics.test_report_browser import (
    browser,  # noqa: F401
    open_page,
    pytestmark,  # noqa: F401
    requests,
    shown,
)
from tests.forensics.test_scan import episode, fake_scanner


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Ten runs that peek and win, ten that only try and lose; every text that a
    log holds is hostile.
    """
    folder = tmp_path_factory.mktemp("scan")
    runs = [
        episode("a", f"{n} {ALL}", 0, won=n < 10, cheats=n < 10, tried=n >= 10) for n in range(20)
    ]
    seen = Step(role="tool", text=f"{ALL}\nthe copied line of the answer\n{ALL}")
    runs = [
        run.model_copy(
            update={
                "steps": (*run.steps[:2], seen, run.steps[3]),
                "submission": "the copied line of the answer",
                "id": f"{n}",
            }
        )
        for n, run in enumerate(runs)
    ]
    write_trajectories(folder / "a.parquet", runs)
    scan(folder / "a.parquet", out=folder / "case", scanner=fake_scanner, formats=("html",))
    return (folder / "case" / "report.html").as_uri()


def choose(browser, by, value):  # noqa: F811
    browser.execute_script(
        "const s = document.querySelector(`[data-by=${arguments[0]}]`); s.value = arguments[1];"
        "s.dispatchEvent(new Event('change', {bubbles: true}))",
        by,
        value,
    )


def test_findings_are_filtered(browser, page):  # noqa: F811
    open_page(browser, page)
    assert len(shown(browser, ".finding")) == 20
    choose(browser, "level", "credited")
    assert len(shown(browser, ".finding")) == 10
    choose(browser, "outcome", "lost")
    assert shown(browser, ".finding") == []
    choose(browser, "level", "attempt")
    assert len(shown(browser, ".finding")) == 10
    assert (
        browser.execute_script("return document.querySelector('.filters .count').textContent")
        == "10 shown"
    )


def test_findings_are_filtered_by_family_and_by_model(browser, page):  # noqa: F811
    open_page(browser, page)
    for by in ("family", "model"):
        choices = f"return document.querySelectorAll('[data-by={by}] option').length"
        assert browser.execute_script(choices) == 2
        choose(browser, by, "0")
        assert len(shown(browser, ".finding")) == 20
    assert browser.execute_script("return document.querySelectorAll('.alone').length") == 20


def test_a_finding_is_one_click_from_its_marked_evidence(browser, page):  # noqa: F811
    open_page(browser, page)
    browser.execute_script("document.querySelector('.finding .cited > summary').click()")
    each = "m => [m.offsetParent !== null, m.textContent]"
    marks = f"return [...document.querySelectorAll('#finding-0 mark')].map({each})"
    assert browser.execute_script(marks) == [[True, "the copied line of the answer"]]


def test_nothing_foreign_runs(browser, page):  # noqa: F811
    open_page(browser, page)
    browser.execute_script("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    browser.execute_script(
        "document.querySelectorAll('*').forEach(e => e.dispatchEvent(new Event('mouseover')))"
    )
    assert browser.execute_script("return typeof window.pwned") == "undefined"
    assert browser.execute_script("return document.scripts.length") == 1
    assert {url.split("#")[0] for url in requests(browser)} == {page}
    assert browser.get_log("browser") == []


PATCH = """diff --git a/tests/test_a.py b/tests/test_a.py
--- a/tests/test_a.py
+++ b/tests/test_a.py
@@ -8,3 +9,3 @@
 def test_b():
-    assert f(1) == 2
+    assert f(1) == 9
"""


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Six runs that changed tests, on the page that people mostly see."""
    from tests.forensics.test_scan_profile import scanned

    case = scanned(tmp_path_factory.mktemp("plain"), ["edits"] * 6 + ["clean"] * 4, patch=PATCH)
    return (case / "report.html").as_uri()


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 400])
def test_the_first_screen_holds_the_headline_and_the_first_card(browser, plain, width, dark):  # noqa: F811
    open_page(browser, plain, width=width, dark=dark, wall=False)
    below = "return document.querySelector(arguments[0]).getBoundingClientRect().bottom"
    assert browser.execute_script(below, "#headline") < 400
    assert browser.execute_script(below, "#finding-0 > summary") < 800
    removed = 'mark[data-label="removed"]'
    assert browser.execute_script(below, f"#finding-0 {removed}") < 800
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert shown(browser, ".sources") == []


@pytest.mark.parametrize("width", [1280, 400])
def test_hostile_text_never_scrolls_sideways(browser, page, width):  # noqa: F811
    open_page(browser, page, width=width)
    browser.execute_script("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
