"""A headless Chromium that tests drive through its debugging pipe: no package is needed for it."""

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome")


def program() -> str | None:
    """Return the path of a Chromium, None where there is none."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """One page of a browser. ``said`` has what the page logged, and errors of its script."""

    def __init__(self, profile: Path) -> None:
        ours, theirs = os.pipe(), os.pipe()         # requests, answers
        kept = [os.dup(fd) for fd in (ours[0], theirs[1])]
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$0" "$@" 3<&{kept[0]} 4>&{kept[1]}', program(), "--headless=new",
             "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
             "--no-first-run", "--disable-extensions", "--disable-background-networking",
             "--force-color-profile=srgb", f"--user-data-dir={profile}", "--remote-debugging-pipe",
             "about:blank"],
            pass_fds=kept, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True)
        for fd in (ours[0], theirs[1], *kept):
            os.close(fd)
        self._to, self._from, self._text, self._number = ours[1], theirs[0], b"", 0
        self.said: list[str] = []
        target = next(t for t in self._call("Target.getTargets")["targetInfos"]
                      if t["type"] == "page")
        self._session = self._call("Target.attachToTarget", targetId=target["targetId"],
                                   flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        """End the browser and its processes."""
        with contextlib.suppress(OSError, RuntimeError):
            self._call("Browser.close")
        self._process.wait(600)
        for fd in (self._to, self._from):
            os.close(fd)

    def call(self, method: str, **values):
        """Return the answer to a command of the page."""
        return self._call(method, self._session, **values)

    def _call(self, method, session=None, **values):
        self._number += 1
        os.write(self._to, json.dumps({"id": self._number, "method": method, "params": values,
                                       **({"sessionId": session} if session else {})}
                                      ).encode() + b"\0")
        while True:
            message = self._read()
            if message.get("id") == self._number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']['message']}")
                return message["result"]
            self._note(message)

    def _read(self):
        while b"\0" not in self._text:
            if not select.select([self._from], [], [], 300)[0]:
                raise RuntimeError("The browser does not answer.")
            more = os.read(self._from, 1 << 20)
            if not more:
                raise RuntimeError("The browser has ended.")
            self._text += more
        line, self._text = self._text.split(b"\0", 1)
        return json.loads(line)

    def _note(self, message):
        values = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            self.said.append(json.dumps(values["exceptionDetails"].get("exception", {}).get(
                "description", values["exceptionDetails"]["text"])))
        elif message.get("method") == "Runtime.consoleAPICalled":
            self.said.append(" ".join(str(a.get("value")) for a in values["args"]))
        elif message.get("method") == "Log.entryAdded":
            self.said.append(values["entry"]["text"])

    def open(self, url: str, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Open a page in a window of this size."""
        self.size(width, height, dark)
        self.call("Page.navigate", url=url)

    def size(self, width: int, height: int = 900, dark: bool = False) -> None:
        """Give the window this size and colour scheme."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def value(self, expression: str):
        """Return the value of an expression of the page."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True,
                          awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(found["result"].get("description", expression))
        return found["result"].get("value")

    def until(self, expression: str, patience: float = 300) -> None:
        """Wait until an expression of the page is true."""
        ends = time.monotonic() + patience
        while not self.value(f"!!({expression})"):
            if time.monotonic() > ends:
                raise TimeoutError(f"{expression} is not so; the page says: "
                                   f"{self.value('document.body.innerText')} {self.said}")
            time.sleep(0.05)

    def key(self, key: str, code: int, text: str = "") -> None:
        """Press a key."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, text=text if
                      kind == "keyDown" else "", windowsVirtualKeyCode=code)

    def type(self, text: str) -> None:
        """Type text where the cursor is."""
        self.call("Input.insertText", text=text)

    def picture(self, file: Path, whole: bool = True) -> None:
        """Write a PNG of the page, or of what the window shows of it."""
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(found["data"]))
