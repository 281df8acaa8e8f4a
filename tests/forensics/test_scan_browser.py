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
