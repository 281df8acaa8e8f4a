"""The page of grades in a real browser: nothing foreign runs, nothing is
fetched, bars have lengths, narrow.
"""

import pytest

from tests.forensics import test_report_browser as house
from tests.forensics.test_report_browser import browser  # noqa: F401
from tests.probes.test_grades_page import graded_run, page

pytestmark = house.pytestmark


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    path = tmp_path_factory.mktemp("grades") / "grades.html"
    path.write_text(page(graded_run(), graded_run("other", 1.0, 3.0)), encoding="utf-8")
    return path.as_uri()


@pytest.mark.parametrize("dark", [False, True])
def test_nothing_runs_and_nothing_is_fetched(browser, address, dark):  # noqa: F811
    house.open_page(browser, address, dark=dark)
    assert [url for url in house.requests(browser) if url != address] == []
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
    assert browser.execute_script("return document.querySelectorAll('img, script').length") == 0
    assert "<script>alert(1)</script>" in browser.execute_script(
        "return document.querySelector('#run-0').innerText"
    )


def test_bars_start_in_the_middle_and_grow_with_the_grade(browser, address):  # noqa: F811
    house.open_page(browser, address)
    found = browser.execute_script(
        "return [...document.querySelectorAll('#run-0 .meter')].map(b => { const o ="
        " b.getBoundingClientRect(), i = b.firstElementChild.getBoundingClientRect(); return"
        " [(i.left - o.left) / o.width, i.width / o.width] })"
    )
    (up_left, up_width), (down_left, down_width) = found
    assert up_left == pytest.approx(0.5, abs=0.01) and down_left + down_width == pytest.approx(
        0.5, abs=0.01
    )
    assert 0 < up_width < down_width <= 0.51


def test_a_narrow_page_does_not_scroll_sideways(browser, address):  # noqa: F811
    house.open_page(browser, address, width=390)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 390
