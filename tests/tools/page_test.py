"""The page of `fracgpu report --html` in a real browser.

What it must show is what the program that wrote the recording has added up itself. If the variable PICTURES names a
folder, the tests save pictures of the page there.
"""
import os
import subprocess
import tempfile

import pytest

import browser
from machine import BUILD

PICTURES = os.environ.get("PICTURES")
PROGRAM = browser.find()
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="the Debian package chromium is not installed")

HOSTILE = "</script><img src=x onerror=alert(1)>&amp;\"'"
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def gib(amount):
    return f"{amount / (1 << 30):.1f} GiB"


def number(text):
    """Of an amount, as it is shown."""
    value, unit = text.split()
    return float(value) * UNITS[unit]


class Page:
    def __init__(self, folder):
        self.folder = folder
        self.browser = browser.Browser(PROGRAM)

    def make(self, name, *arguments, change=None):
        """Writes a recording, and its page. Returns the page's path and, of each GPU, what the recording's writer counted."""
        recording, page = (os.path.join(self.folder, name + end) for end in (".recording", ".html"))
        told = subprocess.run([f"{BUILD}/tests/tools/sample_recording", recording, *arguments], check=True,
                              capture_output=True, text=True).stdout
        if change is not None:
            with open(recording, "r+b") as file:
                change(file)
        report = subprocess.run([f"{BUILD}/fracgpu", "report", recording, "--html", page], capture_output=True, check=False)
        assert report.returncode == (0 if change is None else 1), report
        return page, [[int(each) for each in line.split()] for line in told.splitlines()]

    def text(self, selector):
        return self.browser.eval(f"document.querySelector({selector!r}).innerText")

    def click(self, selector):
        self.browser.eval(f"document.querySelector({selector!r}).click()")

    def card(self, name):
        return self.text(f'[data-card="{name}"]')

    def fill(self, selector, text):
        self.browser.eval(f"(() => {{ const box = document.querySelector({selector!r}); box.value = {text!r};"
                          " box.dispatchEvent(new Event('input')); })()")

    def column(self, name):
        return self.browser.eval(f"[...document.querySelectorAll('td[data-name=\"{name}\"]')].map((each) => each.innerText)")

    def box(self, selector):
        """Its left, top, width and height."""
        return self.browser.eval(f"(() => {{ const box = document.querySelector({selector!r}); box.scrollIntoView();"
                                 " const at = box.getBoundingClientRect(); return [at.left, at.top, at.width, at.height]; })()")

    def drawn(self):
        return self.browser.eval("document.getElementById('timeline').toDataURL()")

    def judge_silence(self):
        assert self.browser.messages == [], self.browser.messages
        foreign = [each for each in self.browser.requests if not each.startswith("file://" + self.folder)]
        assert foreign == [], foreign


@pytest.fixture(scope="module")
def chrome():
    with tempfile.TemporaryDirectory(prefix="fracgpu-page-") as folder:
        page = Page(folder)
        page.path, page.sums = page.make("sample")
        yield page
        page.browser.close()


@pytest.fixture
def page(chrome):
    """Shows the sample, and nothing but the test's page is asked for."""
    chrome.browser.open(chrome.path)
    yield chrome
    chrome.judge_silence()


def test_summary(page):
    peak, left, refused = page.sums[0]
    assert page.card("Peak") == gib(peak), (page.card("Peak"), peak)
    assert page.card("Left at the end") == gib(left), (page.card("Left at the end"), left)
    assert page.card("Refused") == str(refused), page.card("Refused")
    assert gib(peak) in page.text("#moment") and "(the peak)" in page.text("#moment"), page.text("#moment")
    parts = [number(each) for each in page.browser.eval(
        "[...document.querySelectorAll('#legend tr')].map((row) => row.cells[2].innerText)") if " " in each]
    # All kinds, and the cap last.
    assert abs(sum(parts[:-1]) - peak) < (1 << 30) * 0.3, (parts, peak)
    shown = page.text("body")
    assert "undefined" not in shown and "NaN" not in shown, shown
    # The other GPU.
    page.browser.eval("(() => { const box = document.getElementById('device'); box.value = '1';"
                      " box.dispatchEvent(new Event('change')); })()")
    assert page.card("Peak") == gib(page.sums[1][0]), (page.card("Peak"), page.sums)
    assert page.card("Refused") == "0"
    page.browser.eval("(() => { const box = document.getElementById('device'); box.value = '0';"
                      " box.dispatchEvent(new Event('change')); })()")


def test_hostile_names(page):
    assert page.browser.eval("document.images.length") == 0
    assert page.browser.eval("document.scripts.length") == 2
    sites = page.column("Call site")
    assert any(each.startswith(HOSTILE) for each in sites), sites
    page.click('[data-table="Marks"]')
    assert HOSTILE in page.column("Note")[0], page.column("Note")
    page.click('[data-table="Call sites"]')


def test_timeline(page):
    chrome = page.browser
    at_first = page.drawn()
    said = page.text("#moment")
    page.click('[data-by="process"]')
    by_process = page.drawn()
    assert by_process != at_first
    assert "python (PID 4711)" in page.text("#legend"), page.text("#legend")
    page.click('[data-by="kind"]')
    assert page.drawn() == at_first
    chrome.eval("document.getElementById('timeline').focus()")
    chrome.key("End")
    assert page.text("#moment") != said
    chrome.key("p")
    assert page.text("#moment") == said
    chrome.key("ArrowLeft")
    assert page.text("#moment") != said
    chrome.key("ArrowRight")
    assert page.text("#moment") == said
    for key in "++-+":
        before = page.drawn()
        chrome.key(key)
        assert page.drawn() != before, key
    before = page.drawn()
    chrome.key("ArrowLeft", shift=True)
    assert page.drawn() != before
    chrome.key("0")
    left, top, width, height = page.box("#timeline")
    chrome.drag(left + width * 0.3, left + width * 0.4, top + height / 2)
    zoomed = page.drawn()
    page.click("#zoom-all")
    assert page.drawn() != zoomed
    chrome.mouse("mousePressed", left + width / 2, top + height / 2)
    chrome.mouse("mouseReleased", left + width / 2, top + height / 2)
    assert page.text("#moment") != said
    page.click('[data-of="moment"]')
    assert "nearest" in page.text("#flame-about") or "at 1" in page.text("#flame-about"), page.text("#flame-about")
    chrome.eval("document.getElementById('timeline').focus()")
    chrome.key("p")
    page.click('[data-of="peak"]')
    chrome.mouse("mouseMoved", 2, 2)


def test_flame(page):
    chrome = page.browser
    assert gib(page.sums[0][0]) in page.text("#flame-about"), page.text("#flame-about")
    page.click('[data-of="left"]')
    assert gib(page.sums[0][1]) in page.text("#flame-about"), page.text("#flame-about")
    page.click('[data-of="allocated"]')
    assert page.card("Allocated in all") in page.text("#flame-about"), page.text("#flame-about")
    page.click('[data-of="peak"]')
    page.fill("#flame-search", "zeros_like")
    found = chrome.eval("[...document.querySelectorAll('.frame.found')].map((each) => each.ariaLabel)")
    assert len(found) == 1 and found[0].startswith("at::native::zeros_like, 3.5 GiB"), found
    assert "is in 3.5 GiB" in page.text("#flame-about"), page.text("#flame-about")
    page.fill("#flame-search", "")
    before = chrome.eval("document.querySelectorAll('.frame').length")
    chrome.eval("document.querySelector('.frame').focus()")
    for _ in range(4):
        chrome.key("ArrowDown")
    focused = chrome.eval("document.activeElement.ariaLabel")
    assert focused.startswith("train (train.py)"), focused
    assert "train (train.py)" in page.text("#flame-detail"), page.text("#flame-detail")
    chrome.key("Enter")
    assert chrome.eval("document.activeElement.ariaLabel") == focused
    assert chrome.eval("document.activeElement.style.width") == "100%"
    chrome.key("Escape")
    assert chrome.eval("document.querySelectorAll('.frame').length") == before


def test_tables(page):
    chrome = page.browser
    amounts = [number(each) for each in page.column("Most at once")]
    assert amounts == sorted(amounts, reverse=True) and len(set(amounts)) > 3, amounts
    header = "[...document.querySelectorAll('th button')].find((each) => each.innerText.startsWith('Left'))"
    chrome.eval(header + ".focus()")
    chrome.key("Enter")
    amounts = [number(each) for each in page.column("Left")]
    assert amounts == sorted(amounts, reverse=True) and amounts[0] > amounts[-1], amounts
    chrome.key("Enter")
    assert [number(each) for each in page.column("Left")] == sorted(amounts)
    assert chrome.eval("document.querySelector('[aria-sort]').ariaSort") == "ascending"
    rows = len(amounts)
    page.fill("#filter", "ADAMW linear")
    assert len(page.column("Left")) == 1 and "1 row." in page.text("#table-about"), page.text("#table-about")
    page.fill("#filter", "nothing is called so")
    assert page.column("Left") == [] and "No rows" in page.text("#table-panel")
    page.fill("#filter", "")
    assert len(page.column("Left")) == rows
    for table, column in (("Processes", "Peak"), ("Pools", "Reserved at most"), ("Refusals", "Asked"), ("Sizes", "From")):
        page.click(f'[data-table="{table}"]')
        values = [number(each) for each in page.column(column)]
        assert values and all(each > 0 for each in values), (table, values)
        if table == "Refusals":
            assert set(page.column("Asked")) == {"4.0 GiB"} and all(page.column("What would have helped"))
            said = page.text("#moment")
            page.click("td .moment")
            assert page.text("#moment") != said, "a moment of a table is chosen in the timeline"
    page.click('[data-table="Call sites"]')


def try_fingers(page):
    """Two that part zoom, one moves along, a tap chooses."""
    left, top, width, _ = page.box("#timeline")
    middle, y = left + width / 2, top + 60

    def touch(kind, *places):
        page.browser.call("Input.dispatchTouchEvent", type=kind,
                          touchPoints=[{"x": x, "y": y, "id": i} for i, x in enumerate(places)])

    at_first = page.drawn()
    touch("touchStart", middle - 20)
    touch("touchStart", middle - 20, middle + 20)
    for step in range(1, 5):
        touch("touchMove", middle - 20 - 10 * step, middle + 20 + 10 * step)
    touch("touchEnd")
    zoomed = page.drawn()
    assert zoomed != at_first
    touch("touchStart", middle)
    for step in range(1, 5):
        touch("touchMove", middle + 15 * step)
    touch("touchEnd")
    assert page.drawn() != zoomed
    said = page.text("#moment")
    touch("touchStart", middle)
    touch("touchEnd")
    assert page.text("#moment") != said
    page.click("#zoom-all")


def test_looks(page):
    """Nothing is wider than the window, whatever its size; the theme is the reader's."""
    for name, width, height, dark, mobile in (("light", 1280, 800, False, False), ("dark", 1280, 800, True, False),
                                              ("small", 390, 844, False, True)):
        page.browser.open(page.path, width, height, dark, mobile)
        assert page.browser.eval("document.documentElement.scrollWidth") <= width, name
        assert page.browser.eval("document.documentElement.dataset.theme") == ("dark" if dark else "light")
        if PICTURES:
            page.browser.picture(os.path.join(PICTURES, name + ".png"))
    try_fingers(page)
    page.click("#theme")
    assert page.browser.eval("document.documentElement.dataset.theme") == "dark"
    # What names nothing for those who hear a page.
    unnamed = page.browser.eval("[...document.querySelectorAll('button, input, select, canvas, [role]')].filter((each) =>"
                                " !(each.ariaLabel || each.innerText || each.labels?.length || each.getAttribute("
                                "'aria-label'))).map((each) => each.outerHTML)")
    assert unnamed == [], unnamed


def test_refused_places(page):
    """A page is written over a page, and over nothing else."""
    recording = page.path.replace(".html", ".recording")
    before = open(recording, "rb").read()
    os.mkfifo(os.path.join(page.folder, "fifo"))
    os.symlink(page.path, os.path.join(page.folder, "link"))
    for place in (recording, page.folder, "/dev/null", os.path.join(page.folder, "fifo"), os.path.join(page.folder, "link"),
                  os.path.join(page.folder, "absent/page.html")):
        report = subprocess.run([f"{BUILD}/fracgpu", "report", recording, "--html", place], capture_output=True, text=True,
                                check=False)
        assert report.returncode == 1 and report.stderr.count("\n") == 1 and not report.stdout, (place, report)
    assert open(recording, "rb").read() == before
    subprocess.run([f"{BUILD}/fracgpu", "report", recording, "--html", page.path], check=True, capture_output=True)


def test_others(page):
    path, _ = page.make("cut", change=lambda file: file.truncate(9000))
    page.browser.open(path)
    assert "precedes" in page.text("#warnings"), page.text("#warnings")
    path, sums = page.make("many", "10000")
    page.browser.open(path)
    size = os.path.getsize(path)
    print(f"the page of a recording with 10,000 stacks more has {size / 1e6:.1f} MB")
    assert size < 16e6
    assert page.card("Peak") == gib(sums[0][0])
    assert page.browser.eval("document.querySelectorAll('tbody tr').length") < 300
    page.click("#zoom-in")
