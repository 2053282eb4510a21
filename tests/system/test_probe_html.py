"""The HTML report in a real Chromium: drawn whole, light and dark, narrow and wide, asking nobody for anything."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ollamactl.report import tune_html
from ollamactl.report.probe_html import page
from tests import tunings
from tests.probes import probe

BROWSER = next((p for n in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(n))), None)

FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
         "--disable-background-networking")  # fmt: skip
FLAT = "[...document.querySelectorAll('svg.timeline rect')].filter(r => r.getBoundingClientRect().width <= 0).length"
OUTSIDE = """
[...document.querySelectorAll('svg')].filter(s => {
  const o = s.getBoundingClientRect();
  return [...s.querySelectorAll('rect,text,polygon,circle,path')].some(e => {
    const b = e.getBoundingClientRect();
    return b.left < o.left - 1 || b.right > o.right + 1 || b.top < o.top - 1 || b.bottom > o.bottom + 1;
  });
}).map(s => s.getAttribute('aria-label'))
"""


class Browser:
    """Chromium, told what to do over its debugging pipe (descriptors 3 and 4, messages end with NUL)."""

    def __init__(self, profile: Path) -> None:
        assert BROWSER is not None
        ours, theirs = os.pipe(), os.pipe()
        argv = [BROWSER, *FLAGS, "--remote-debugging-pipe", f"--user-data-dir={profile}"]
        script = f'exec "$@" 3<&{ours[0]} 4>&{theirs[1]} {ours[0]}<&- {theirs[1]}>&-'
        # Where a pipe lies at 3 or 4 already, the shell's redirections come out the same.
        self.process = subprocess.Popen(
            ["bash", "-c", script, "sh", *argv], pass_fds=(ours[0], theirs[1]), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(ours[0])
        os.close(theirs[1])
        self.write, self.read = ours[1], theirs[0]
        self.rest, self.number, self.events, self.session = b"", 0, [], ""  # type: ignore[var-annotated]
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> Any:
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        while (got := self._next()).get("id") != self.number:
            self.events.append(got)
        assert "error" not in got, got
        return got["result"]

    def wait(self, method: str) -> None:
        while not any(e.get("method") == method for e in self.events):
            self.events.append(self._next())

    def _next(self) -> Any:
        while b"\0" not in self.rest:
            more = os.read(self.read, 1 << 16)
            assert more, "Chromium has ended"
            self.rest += more
        message, _, self.rest = self.rest.partition(b"\0")
        return json.loads(message)

    def show(self, path: Path, width: int, scheme: str) -> None:
        self.events.clear()
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Page.navigate", url=path.as_uri())
        self.wait("Page.loadEventFired")

    def eval(self, expression: str) -> Any:
        got = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in got, got
        return got["result"].get("value")

    def close(self) -> None:
        os.close(self.write)
        os.close(self.read)
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if BROWSER is None:
        why = "no Chromium here (Debian: apt-get install chromium)"
        if os.environ.get("OLLAMACTL_LAB") == "required":
            pytest.fail(why, pytrace=False)
        pytest.skip(why)
    found = Browser(tmp_path_factory.mktemp("profile"))
    yield found
    found.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "probe.html"
    path.write_text(page(probe(sweep=(1, 2, 4, 8), cold=8)))
    return path


def pixels(browser: Browser) -> list[tuple[int, int, int]]:
    """The screen's pixels, of a PNG without interlacing as Chromium writes them."""
    data = base64.b64decode(browser.call("Page.captureScreenshot", format="png")["data"])
    width, depth, kind = int.from_bytes(data[16:20], "big"), data[24], data[25]
    assert depth == 8 and kind in (2, 6)
    each = 3 if kind == 2 else 4
    at, packed = 8, b""
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        if data[at + 4 : at + 8] == b"IDAT":
            packed += data[at + 8 : at + 8 + size]
        at += size + 12
    raw, stride = zlib.decompress(packed), width * each
    above = bytearray(stride)
    found = []
    for y in range(0, len(raw), stride + 1):
        line, form = bytearray(raw[y + 1 : y + 1 + stride]), raw[y]
        for x in range(stride):
            left = line[x - each] if x >= each else 0
            up, corner = above[x], above[x - each] if x >= each else 0
            if form == 1:
                line[x] = (line[x] + left) & 255
            elif form == 2:
                line[x] = (line[x] + up) & 255
            elif form == 3:
                line[x] = (line[x] + (left + up) // 2) & 255
            elif form == 4:
                a, b, c = abs(up - corner), abs(left - corner), abs(left + up - 2 * corner)
                line[x] = (line[x] + (left if a <= b and a <= c else up if b <= c else corner)) & 255
        above = line
        found += [(line[x], line[x + 1], line[x + 2]) for x in range(0, stride, each * 7)]
    return found


def light(colour: tuple[int, ...]) -> float:
    """Relative luminance, WCAG 2."""
    parts = [(c / 255 / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4) for c in colour[:3]]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def rgb(text: str) -> tuple[int, ...]:
    return tuple(int(float(x)) for x in text.partition("(")[2].rstrip(")").split(",")[:3])


@pytest.mark.parametrize("width", [360, 1200])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_drawn_whole(browser: Browser, report: Path, scheme: str, width: int) -> None:
    browser.show(report, width, scheme)
    assert browser.eval("document.querySelectorAll('svg.timeline').length") == 5
    assert browser.eval("document.querySelectorAll('g.request').length") == 8 + 1 + 2 + 4 + 8
    assert browser.eval("document.querySelectorAll('svg.curve').length") == 2
    assert browser.eval(FLAT) == 0  # every bar has a size
    assert browser.eval(OUTSIDE) == []  # nothing lies outside its drawing
    # the page itself never scrolls sideways
    assert browser.eval("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_follow_the_scheme_and_can_be_told_apart(browser: Browser, report: Path, scheme: str) -> None:
    browser.show(report, 400, scheme)  # every pixel of it is looked at below
    back = rgb(browser.eval("getComputedStyle(document.body).backgroundColor"))
    assert (light(back) > 0.5) == (scheme == "light")
    text = ["body", "dt", "th", ".soft"]
    for selector in text:
        colour = rgb(browser.eval(f"getComputedStyle(document.querySelector('{selector}')).color"))
        high, low = sorted((light(colour), light(back)), reverse=True)
        assert (high + 0.05) / (low + 0.05) >= 4.5, selector
    fills = {
        k: rgb(browser.eval(f"getComputedStyle(document.querySelector('rect.{k}')).fill"))
        for k in ("served", "queued")
    }
    for colour in fills.values():
        high, low = sorted((light(colour), light(back)), reverse=True)
        assert (high + 0.05) / (low + 0.05) >= 3.0
    seen = pixels(browser)
    assert seen.count(back[:3]) > len(seen) / 3  # type: ignore[arg-type]
    assert len(set(seen)) > 20


def test_it_asks_nobody_for_anything(browser: Browser, report: Path) -> None:
    browser.show(report, 1200, "light")
    asked = [e["params"]["request"]["url"] for e in browser.events if e.get("method") == "Network.requestWillBeSent"]
    assert asked == [report.as_uri()]
    said = [e for e in browser.events if e.get("method") in ("Log.entryAdded", "Runtime.exceptionThrown")]
    assert said == []


def test_a_thousand_requests_are_drawn(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "many.html"
    path.write_text(page(probe(sweep=(1000,), slots=16)))
    browser.show(path, 1200, "light")
    assert browser.eval("document.querySelectorAll('g.request').length") == 1000
    assert browser.eval("document.querySelector('svg.timeline').getBoundingClientRect().height < 1100")


@pytest.mark.parametrize("width", [360, 1200])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_search_for_slots_is_drawn_whole(browser: Browser, tmp_path: Path, scheme: str, width: int) -> None:
    path = tmp_path / "tune.html"
    path.write_text(tune_html.page(tunings.report()))
    browser.show(path, width, scheme)
    assert browser.eval("document.querySelectorAll('svg.curve').length") == 4  # two for each load
    assert browser.eval("document.querySelectorAll('svg.curve circle').length") == 3 * 5 + 3 * 3
    assert browser.eval("document.querySelectorAll('table.loads tbody tr').length") == 5 + 3
    assert browser.eval(OUTSIDE) == []
    assert browser.eval("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert "--parallel 4 --model qwen3:8b" in browser.eval("document.querySelector('code').textContent")
    back = rgb(browser.eval("getComputedStyle(document.body).backgroundColor"))
    assert (light(back) > 0.5) == (scheme == "light")
    asked = [e["params"]["request"]["url"] for e in browser.events if e.get("method") == "Network.requestWillBeSent"]
    assert asked == [path.as_uri()]
