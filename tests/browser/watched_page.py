"""Pages of the dashboard that record what must not happen: errors, and requests elsewhere."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request

PAGES = ("overview", "components", "checkpoints", "attempts", "state", "advice")
_WIDE, _PHONE = {"width": 1280, "height": 860}, {"width": 390, "height": 844}


class WatchedPages:
    """Opens pages, each in a context of its own."""

    def __init__(self, browser: Browser, url: str) -> None:
        self._browser = browser
        self.url = url
        self.errors: list[str] = []
        self.elsewhere: list[str] = []
        self.expects_lost_connections = False
        """Whether the server is gone meanwhile: the browser logs that."""
        self._contexts: list[BrowserContext] = []

    def open(
        self, path: str = "#/", *, phone: bool = False, dark: bool = False, **more: Any
    ) -> Page:
        context = self._browser.new_context(
            viewport=_PHONE if phone else _WIDE,  # type: ignore[arg-type]
            has_touch=phone,
            color_scheme="dark" if dark else "light",
            **more,
        )
        self._contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(15_000)
        page.on("console", self._logged)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", self._requested)
        page.goto(self.url + path)
        return page

    def close(self) -> None:
        for context in self._contexts:
            context.close()
        assert self.elsewhere == [], "the dashboard asks its own server only"
        assert self.errors == []

    def _logged(self, message: ConsoleMessage) -> None:
        is_connection = "net::ERR" in message.text or "Failed to load resource" in message.text
        if message.type == "error" and not (is_connection and self.expects_lost_connections):
            self.errors.append(message.text)

    def _requested(self, request: Request) -> None:
        if not request.url.startswith((self.url, "data:")):
            self.elsewhere.append(request.url)


def address(job: str, page: str = "overview", detail: str = "") -> str:
    return f"#/jobs/{job}/{page}" + (f"/{detail}" if detail else "")
