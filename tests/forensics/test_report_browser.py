"""The page in a real browser: nothing foreign runs, nothing is fetched, and it
works by keyboard, on paper, narrow.
"""

import json
import shutil

import pytest

from forensics.report import write_reports
from tests.forensics.report_case import CasePlan, build_case
from tests.forensics.report_hostile import hostile_case

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-quic", "--window-size=1280,900",
)  # fmt: skip
pytestmark = [
    pytest.mark.skipif(
        not (CHROMIUM and DRIVER),
        reason="no Chromium with its driver on this machine",
    ),
    pytest.mark.timeout(900),
]


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    profile = tmp_path_factory.mktemp("profile")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()
    shutil.rmtree(profile, ignore_errors=True)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folders = {
        "phantom": build_case(tmp_path_factory.mktemp("phantom")),
        "mixed": build_case(
            tmp_path_factory.mktemp("mixed"), CasePlan(label="mixed", seeds=3, tasks=20)
        ),
        "hostile": hostile_case(tmp_path_factory.mktemp("hostile")),
    }
    return {name: write_reports(folder, ["html"])[0].as_uri() for name, folder in folders.items()}


def open_page(
    browser, address: str, *, width: int = 1280, dark: bool = False, wall: bool = True
) -> None:
    """Load afresh; what was logged before is dropped. `wall`: unfold what lies
    behind the first screen.
    """
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": [theme]})
    browser.get("about:blank")
    requests(browser), browser.get_log("browser")
    browser.get(address)
    for summary in browser.find_elements("css selector", "#wall > summary"):  # pages of cases
        if wall and not summary.find_element("xpath", "..").get_property("open"):
            summary.send_keys(" ")


def requests(browser) -> list[str]:
    """Addresses that left the page since the last look; what its policy refused never did."""
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    refused = {
        e["params"]["requestId"] for e in events if e["params"].get("blockedReason") == "csp"
    }
    sent = [e["params"] for e in events if e["method"] == "Network.requestWillBeSent"]
    urls = [request["request"]["url"] for request in sent if request["requestId"] not in refused]
    return [url for url in urls if not url.startswith(("about:", "data:"))]


def shown(browser, selector: str) -> list[str]:
    """Ids of the elements that can be seen."""
    script = (
        "return [...document.querySelectorAll(arguments[0])].filter(e => e.offsetParent !=="
        " null).map(e => e.id)"
    )
    return browser.execute_script(script, selector)


def use_everything(browser) -> None:
    browser.execute_script("document.querySelector('[data-expand]').click()")
    browser.execute_script("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    browser.execute_script("document.querySelectorAll('a, [data-twin]').forEach(e => e.click())")
    browser.execute_script(
        "document.querySelectorAll('*').forEach(e => e.dispatchEvent(new Event('mouseover')))"
    )


@pytest.mark.parametrize("name", ["phantom", "hostile"])
def test_nothing_foreign_runs_and_nothing_is_fetched(browser, pages, name):
    open_page(browser, pages[name])
    use_everything(browser)
    assert browser.title == "Phantom: is the gain real?"
    assert browser.execute_script("return typeof window.pwned") == "undefined"
    assert browser.execute_script("return document.scripts.length") == 1
    asked = {url.split("#")[0] for url in requests(browser)}
    assert asked == {pages[name]}
    assert [
        entry["message"] for entry in browser.get_log("browser")
    ] == []  # no refusal by the policy, no error
    assert browser.current_url.split("#")[0] == pages[name]


def test_text_that_slipped_through_would_still_be_stopped_by_the_policy(browser, pages):
    open_page(browser, pages["phantom"])
    browser.execute_script("""
        const script = document.createElement('script'); script.textContent = 'window.pwned = 1';
        document.body.append(script);
        const add = (text) => document.body.insertAdjacentHTML('beforeend', text);
        add('<img src="https://example.invalid/x" onload="window.pwned=1">');
        add('<p id="styled" style="color:red" onclick="window.pwned=1">x</p>');
        document.getElementById('styled').click();
        fetch('https://example.invalid/y').catch(() => null);
    """)
    assert (
        browser.execute_async_script("setTimeout(() => arguments[0](typeof window.pwned), 200)")
        == "undefined"
    )
    assert {url.split("#")[0] for url in requests(browser)} == {pages["phantom"]}
    refused = " ".join(entry["message"] for entry in browser.get_log("browser"))
    assert all(rule in refused for rule in ("script-src", "style-src", "default-src"))


def test_one_run_is_shown_and_the_keyboard_moves_on(browser, pages):
    from selenium.webdriver.common.keys import Keys

    open_page(browser, pages["phantom"])
    assert shown(browser, ".run") == ["run-0"]
    browser.execute_script("document.querySelector('.list a').focus()")
    for key, run in (
        (Keys.ARROW_DOWN, "run-1"),
        (Keys.END, "run-9"),
        (Keys.ARROW_DOWN, "run-9"),
        (Keys.HOME, "run-0"),
    ):
        browser.switch_to.active_element.send_keys(key)
        assert shown(browser, ".run") == [run]
        assert (
            browser.execute_script("return document.activeElement.getAttribute('href')")
            == f"#{run}"
        )
    assert (
        browser.execute_script("return document.querySelectorAll('.list a[tabindex=\"0\"]').length")
        == 1
    )


@pytest.mark.parametrize("name", ["phantom", "mixed"])
def test_what_decides_fits_on_one_screen(browser, pages, name):
    open_page(browser, pages[name], wall=False)
    ends = "return document.querySelector('.next').getBoundingClientRect().bottom"
    assert browser.execute_script(ends) <= 800
    assert not browser.execute_script("return document.getElementById('wall').open")


@pytest.mark.parametrize("name", ["phantom", "mixed", "hostile"])
@pytest.mark.parametrize("width", [1280, 360])
def test_the_page_never_scrolls_sideways(browser, pages, name, width):
    open_page(browser, pages[name], width=width)
    use_everything(browser)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width


def test_without_scripts_every_run_can_be_read(browser, pages):
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        open_page(browser, pages["phantom"])
        seen = [e.is_displayed() for e in browser.find_elements("css selector", ".run, .twin")]
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    assert len(seen) == 10 * 3 and all(seen)
