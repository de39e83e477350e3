"""The explorer in a real Chromium: by keyboard, on a phone, in the dark, with hostile names.

NSCACHING_SCREENSHOTS=FOLDER writes the pictures of the documentation there, of the runs that
NSCACHING_SCREENSHOT_RUNS names (two folders of the embedded graph, with a space between).
"""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from nscaching.serve.runs import open_runs
from serving import Running, folders, sample_paths, service  # noqa: F401  (fixtures)

CHROMIUM = Path(os.environ.get("NSCACHING_CHROMIUM", "/usr/bin/chromium"))
FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)
SHOTS = os.environ.get("NSCACHING_SCREENSHOTS", "")
WIDTHS = {"wide": 1280, "phone": 390}

pytestmark = pytest.mark.skipif(not CHROMIUM.exists(), reason=f"no Chromium at {CHROMIUM}")


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=FLAGS.split())
        yield opened
        opened.close()


class Tab:
    """A tab that notes what must not happen."""

    def __init__(self, browser, running, width=1280, scheme="light", script=True):
        size = {"width": width, "height": 860}
        self.context = browser.new_context(
            viewport=size, color_scheme=scheme, java_script_enabled=script
        )
        self.base, self.wrong = f"http://127.0.0.1:{running.port}", []
        self.page = self.context.new_page()
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        self.page.on("dialog", lambda dialog: self.wrong.append("dialog") or dialog.dismiss())
        self.page.on("request", self._see)

    def _hear(self, message):
        if message.type in ("error", "warning"):
            self.wrong.append(f"console: {message.text}")

    def _see(self, request):
        if not request.url.startswith(self.base + "/"):
            self.wrong.append(f"request to {request.url}")

    def open(self, path):
        answer = self.page.goto(self.base + path)
        assert answer.ok, path
        if "/map" in path:
            self.page.locator(".map output", has_text="entities").wait_for()
        return self.page

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.context.close()
        if kind is None:
            assert self.wrong == []


def test_search_and_question_by_keyboard(browser, service):  # noqa: F811
    with Tab(browser, service) as tab:
        page = tab.open("/r/world")
        page.keyboard.press("/")
        page.keyboard.type("portug")
        page.locator("[role=option]").first.wait_for()
        assert page.locator("header [role=combobox]").get_attribute("aria-expanded") == "true"
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        page.wait_for_url("**/entity?name=Portug*")
        assert page.locator("h1").inner_text().startswith("Portug")
        page = tab.open("/r/world/question")
        page.get_by_label("Head").fill("Portugal")
        page.get_by_label("Relation").fill("spea")
        page.locator("[role=option]").first.wait_for()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        assert page.get_by_label("Relation").input_value() == "speaks"
        page.keyboard.press("Enter")
        page.wait_for_url("**/question?head=Portugal&relation=speaks*")
        assert page.locator(".ranked li").count() == 10
        page.locator(".ranked a.why").first.click()
        page.get_by_role("heading", name="Similar facts").wait_for()


def test_all_of_it_is_there_without_script(browser, service):  # noqa: F811
    with Tab(browser, service, script=False) as tab:
        page = tab.open("/r/world")
        page.get_by_label("Search", exact=True).fill("portugal")
        page.get_by_role("button", name="Search").click()
        page.get_by_role("link", name="Portugal", exact=True).click()
        assert page.locator("h1").inner_text() == "Portugal"
        page = tab.context.pages[0]
        page.goto(tab.base + "/r/world/map")
        assert page.locator(".map img").evaluate("image => image.naturalWidth") > 0


def test_the_map_moves_and_its_link_can_be_shared(browser, service):  # noqa: F811
    from playwright.sync_api import expect

    with Tab(browser, service) as tab:
        page = tab.open("/r/world/map?name=Portugal")
        page.wait_for_url("**left=**")
        canvas = page.locator("canvas")
        canvas.focus()
        before = page.url
        page.keyboard.press("+")
        page.keyboard.press("ArrowLeft")
        page.wait_for_url(lambda url: url != before)
        words = page.locator(".map output")
        page.wait_for_timeout(300)
        shared, shown = page.url, words.inner_text()
        with Tab(browser, service) as other:
            opened = other.open(shared.removeprefix(tab.base))
            expect(opened.locator(".map output")).to_have_text(shown)


def test_hostile_names_are_only_text(browser, service):  # noqa: F811
    with Tab(browser, service, width=390) as tab:
        for path in sample_paths():
            if "hostile" in path:
                page = tab.open(path)
                assert "obeyed" not in page.title() or "document.title" in page.title()
                assert page.locator("main script, main [onclick], main b u").count() == 0
                assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
        page = tab.open("/r/hostile")
        page.get_by_label("Search", exact=True).fill("script")
        page.locator("[role=option]").first.wait_for()
        assert page.locator("[role=option] script").count() == 0


def serious(page):
    """Return what axe-core finds that hinders people."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [
        (one["id"], one["nodes"][0]["html"][:200], one["nodes"][0]["failureSummary"][:300])
        for one in found
        if one["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize(("width", "scheme"), [("wide", "light"), ("phone", "dark")])
def test_every_view_fits_and_hinders_nobody(browser, service, width, scheme):  # noqa: F811
    with Tab(browser, service, WIDTHS[width], scheme) as tab:
        for path in [*sample_paths(), "/r/world/report"]:
            if "hostile" in path:
                continue
            page = tab.open(path)
            size = page.evaluate("document.documentElement.scrollWidth")
            assert size <= WIDTHS[width], path
            dark = page.evaluate(
                "getComputedStyle(document.body).backgroundColor.match(/\\d+/g)[0] < 60"
            )
            assert dark == (scheme == "dark")
            assert serious(page) == [], path
        page.evaluate(
            "document.querySelector('h1').style.color = 'gray'; document.body.lang = 'xx-'"
        )
        page.evaluate("document.querySelector('main').prepend(document.createElement('input'))")
        assert serious(page) != []  # axe-core does look


def test_a_page_is_small(browser, service):  # noqa: F811
    sizes = []
    with Tab(browser, service) as tab:
        for path in (
            "/r/world",
            "/r/world/entity?name=Spain",
            "/r/world/map",
            "/r/world/relations",
        ):
            seen = []
            note = lambda response, seen=seen: seen.append(response)  # noqa: E731
            tab.page.on("response", note)
            tab.open(path)
            tab.page.remove_listener("response", note)
            sizes.append(sum(int(each.headers["content-length"]) for each in seen))
    assert max(sizes) < 300_000


PICTURES = {
    "home": "/",
    "run": "/r/{a}",
    "search": "/r/{a}/search?q=south",
    "entity": "/r/{a}/entity?name=Portugal",
    "question": "/r/{a}/question?head=Madagascar&relation=speaks",
    "explain": "/r/{a}/explain?head=Madagascar&relation=speaks&tail=English",
    "relations": "/r/{a}/relations",
    "relation": "/r/{a}/relation?name=speaks",
    "cache": "/r/{a}/cache?head=Madagascar&relation=speaks",
    "map": "/r/{a}/map",
    "compare": "/compare?a={a}&b={b}&head=Madagascar&relation=speaks",
    "report": "/r/{a}/report",
}
DARK = ("entity", "map")  # which are shown in the dark too


@pytest.mark.skipif(not SHOTS, reason="NSCACHING_SCREENSHOTS names no folder for pictures")
@pytest.mark.parametrize("width", WIDTHS)
def test_pictures_of_the_documentation(browser, width):
    from PIL import Image

    runs = open_runs([Path(p) for p in os.environ["NSCACHING_SCREENSHOT_RUNS"].split()])
    running, folder = Running(runs), Path(SHOTS)
    names = dict(zip("ab", [run.slug for run in runs], strict=True))
    try:
        for scheme in ("light", "dark"):
            with Tab(browser, running, WIDTHS[width], scheme) as tab:
                for name, path in PICTURES.items():
                    if scheme == "dark" and name not in DARK:
                        continue
                    page = tab.open(path.format(**names))
                    page.wait_for_timeout(300)
                    taken = Image.open(io.BytesIO(page.screenshot(full_page=True))).convert("RGB")
                    taken = taken.crop((0, 0, taken.width, min(taken.height, 1500)))
                    dark = "-dark" * (scheme == "dark")
                    file = folder / f"serve-{name}-{WIDTHS[width]}{dark}.png"
                    taken.quantize(48, dither=Image.Dither.NONE).save(file, optimize=True)
    finally:
        running.stop()
