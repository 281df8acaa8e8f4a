"""The page of a diff in a real browser: nothing foreign runs, nothing is
fetched, both themes, narrow.
"""

import pytest

from crosscoders.study.diff_page import write_page
from tests.crosscoders.study_folder import written
from tests.forensics import test_report_browser as house
from tests.forensics.test_report_browser import browser  # noqa: F401

pytestmark = house.pytestmark


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    return write_page(written(tmp_path_factory.mktemp("diff"))).as_uri()


@pytest.mark.parametrize("dark", [False, True])
def test_nothing_runs_and_nothing_is_fetched(browser, address, dark):  # noqa: F811
    house.open_page(browser, address, dark=dark)
    browser.execute_script("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    assert [url for url in house.requests(browser) if url != address] == []
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
    assert browser.execute_script("return document.querySelectorAll('img, script').length") == 0
    assert "<img src=x" in browser.execute_script(
        "return document.querySelector('#latent-3').innerText"
    )


def test_a_latent_opens_by_keyboard(browser, address):  # noqa: F811
    house.open_page(browser, address)
    opened = browser.execute_script(
        "const d = document.querySelector('#latent-3'); d.querySelector('summary').focus();"
        "return [d.open, document.activeElement.tagName]"
    )
    assert opened == [False, "SUMMARY"]
    keys = pytest.importorskip("selenium.webdriver.common.keys").Keys
    browser.switch_to.active_element.send_keys(keys.ENTER)
    assert browser.execute_script("return document.querySelector('#latent-3').open") is True
