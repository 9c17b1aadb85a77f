"""A real browser for the tests: Chromium of the system under Playwright, and axe's accessibility rules."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.clients import foreign

CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
AXE = "4.14.1"
WIDE, NARROW = 1440, 390
LOOKS = ("color-contrast", "link-in-text-block", "scrollable-region-focusable", "target-size")
"""axe's rules that depend on colours and widths; the others see the same page again."""
CAN_BE_REACHED = """(() => {
  const kinds = "a[href],button,input:not([type=hidden],[type=radio]:not(:checked)),select,textarea,summary,[tabindex='0']";
  const all = [...document.querySelectorAll(kinds)]
    .filter(e => e.checkVisibility() && !e.disabled && e.tabIndex >= 0 && !e.closest(".CodeMirror"));
  for (const e of all) e.dataset.wanted = "1";
  return all.length;
})()"""
REACHED = """(() => {
  const e = document.activeElement;
  if (e && getComputedStyle(e).outlineStyle !== "none") delete e.dataset.wanted;
  return document.querySelectorAll("[data-wanted]").length;
})()"""


def need_chromium() -> str:
    """The program; skips the test, with the reason, where there is none."""
    pytest.importorskip("playwright.sync_api", reason="playwright is not installed (pip install playwright)")
    path_found = next((path for name in CHROMIUM if (path := shutil.which(name))), None)
    if path_found is None:
        pytest.skip("no Chromium is installed (Debian's package `chromium`)")
    return path_found


def axe_source() -> str:
    """axe-core from the npm registry, fetched once."""
    npm = foreign.need("npm")

    def install(folder: Path) -> None:
        (folder / "package.json").write_text("{}")
        command = [npm, "install", "--no-audit", "--no-fund", "--no-package-lock", f"axe-core@{AXE}"]
        foreign.fetch_or_skip(command, folder, f"npm cannot fetch axe-core {AXE}")

    folder = foreign.made(f"axe-{AXE}", install)
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text()


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser."""
    from playwright.sync_api import sync_playwright

    path = need_chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        try:
            yield browser
        finally:
            browser.close()


class Seen:
    """One window. problems: what its console reported, and dialogs that scripts opened."""

    def __init__(
        self, browser: Any, width: int, theme: str = "light", lang: str = "en-GB", *, scripts: bool = True
    ) -> None:
        self.context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=theme,
            locale=lang,
            java_script_enabled=scripts,
        )
        self.width = width
        self.page = self.context.new_page()
        self.page.set_default_timeout(30_000)
        self.problems: list[str] = []
        self.page.on("console", self._note)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("dialog", self._dialog)

    def _note(self, message: Any) -> None:
        # The status of a page that says what is missing is no problem of the page.
        if (
            message.type in ("error", "warning")
            and re.search(r"status of (4\d\d|50[123])", message.text) is None
        ):
            self.problems.append(message.text)

    def _dialog(self, dialog: Any) -> None:
        self.problems.append(f"a script opened a dialog: {dialog.message}")
        dialog.dismiss()

    def turn(self, width: int, theme: str) -> None:
        """The same page in a window of another width, in other colours."""
        self.width = width
        self.page.set_viewport_size({"width": width, "height": 900})
        self.page.emulate_media(color_scheme=theme)

    def check(self) -> None:
        """No script failed, nothing was blocked, and nothing is wider than the window."""
        assert self.problems == [], (self.page.url, self.problems)
        width = self.page.evaluate("document.documentElement.scrollWidth")
        assert width <= self.width, (self.page.url, width)

    def check_rules(self, axe: str, *rules: str) -> None:
        """axe finds nothing serious. rules: only these."""
        if not self.page.evaluate("'axe' in window"):
            self.page.evaluate(axe)
        options: dict[str, object] = {"resultTypes": ["violations"]}
        if rules:
            options["runOnly"] = {"type": "rule", "values": list(rules)}
        violations = self.page.evaluate("options => axe.run(document, options)", options)["violations"]
        serious = [
            (rule["id"], node["target"], node["html"][:200])
            for rule in violations
            if rule["impact"] in ("serious", "critical")
            for node in rule["nodes"]
        ]
        assert serious == [], (self.page.url, json.dumps(serious, indent=1)[:3000])

    def check_keyboard(self) -> None:
        """Tab reaches everything that can be clicked or typed into, and shows where it is."""
        wanted = self.page.evaluate(CAN_BE_REACHED)
        self.page.evaluate("document.activeElement.blur()")
        for _ in range(2 * wanted + 20):  # a page may begin in its middle, at the field that has the focus
            self.page.keyboard.press("Tab")
            if self.page.evaluate(REACHED) == 0:
                break
        left = self.page.evaluate(
            "[...document.querySelectorAll('[data-wanted]')].map(e => e.outerHTML.slice(0, 120))"
        )
        assert left == [], (self.page.url, left)

    def walk(self, home: str, paths: Iterable[str], axe: str, *, keyboard: bool = False) -> None:
        """Every page wide and narrow, light and dark."""
        for path in paths:
            self.turn(WIDE, "light")
            self.page.goto(home + path)
            assert self.page.locator("h1").count() == 1, path
            self.page.evaluate("for (const one of document.querySelectorAll('main details')) one.open = true")
            self.check()
            self.check_rules(axe)
            if keyboard:
                self.check_keyboard()
            for width, theme in ((WIDE, "dark"), (NARROW, "dark"), (NARROW, "light")):
                self.turn(width, theme)
                self.check()
                self.check_rules(axe, *LOOKS)

    def close(self) -> None:
        self.context.close()
