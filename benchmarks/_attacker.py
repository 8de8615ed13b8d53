"""Write down attempts of an attack, from all processes of ``scripts/attack`` alike.

An attempt is a line of JSON: the finding, the words for what was tried, whom it was tried on, the
answer, whether it was refused, and the line of a site's account (or of a log) that shows it.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

import fedvine as package
from fedvine.core.message import dumps, loads, pack, unpack
from fedvine.engines.remote import sentence
from fedvine.federation.account import FOLDER, Account
from fedvine.federation.site_file import MEMORY

NOTES = "ATTACK_NOTES"      # of the environment: the file of the attempts
PHASE = "ATTACK_PHASE"      # which run it is, "hub" or "site"
EVE, VICTIM = "LGA", "EWR"
_TURN = threading.Lock()


def tell(finding: str, what: str, to: str, answer: str, held: bool, shown: str = "") -> None:
    """Write an attempt; ``shown`` is the line that shows it."""
    line = json.dumps({"finding": finding, "what": what, "to": to, "answer": answer[:600],
                       "held": held, "shown": shown[:600]})
    with _TURN, open(os.environ[NOTES], "a") as file:
        file.write(line + "\n")


def told(file: Path) -> list[dict[str, Any]]:
    """Return the attempts so far."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


class Victims:
    """The sites of an attack, by the folder of their kits, to see what their accounts say."""

    def __init__(self, kits: Path) -> None:
        self.kits = kits

    def lines(self, site: str) -> list[dict[str, Any]]:
        """Return the refusals in a site's account."""
        return [line for line in Account(self.kits / site / MEMORY / FOLDER).lines()
                if line["kind"] == "refused"]

    def attempt(self, finding: str, what: str, to: str, send: Callable[[], bytes],
                good: Callable[[Any], str | None] = lambda reply: None, *, sealed: bool = True
                ) -> Any:
        """Send a request, and write down what became of it.

        It must be refused for what it is, and not for its seal if that is to be a good one.

        Args:
            finding: its number.
            what: it tries, in words.
            to: the site.
            send: returns the answer's bytes.
            good: of a reply that came, says why nothing was won by it; None where something was.
            sealed: whether the server has signed the request.

        Returns:
            The reply, None where the request was refused.
        """
        before = len(self.lines(to))
        try:
            answer = unpack(loads(send()))
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        new = self.lines(to)[before:]
        shown = f"{to}, {account_line(new[-1])}" if new else f"{to}: no line"
        if "error" in answer:
            said = answer["error"]
            coded = isinstance(said, list)
            tell(finding, what, to, sentence(said) if coded else str(said),
                 coded and (said[0] == "seal") != sealed, shown)
            return None
        why = good(answer["reply"])
        tell(finding, what, to, f"answered, and {why}" if why else "ANSWERED", why is not None,
             shown if new else f"{to}: a line of what left")
        return answer["reply"]


def account_line(line: dict[str, Any]) -> str:
    """Return a line of an account as text."""
    return f"{line['at'][11:19]} {line['function']} {line['kind']} {line['code']}: {line['why']}"


def letter(**request: Any) -> bytes:
    """Return the bytes of a request."""
    return dumps(pack(request))


def calls(place: list[int], function: str, asks: int | None, *given: Any) -> dict[str, Any]:
    """Return the request that calls a client function."""
    body = pack(list(given))
    return {"do": "call", "place": place, "function": function, "asks": asks, "once": None,
            "skeleton": body.skeleton, "buffers": list(body.buffers)}


def empty() -> bytes:
    """Return two megabytes that state two million empty buffers, 300 MB where they are read."""
    header = msgspec.msgpack.encode([1, *[0] * 2_000_000])
    return len(header).to_bytes(4, "little") + header + b"\x90"


def deep() -> bytes:
    """Return lists in lists, a million deep."""
    skeleton = b"\x91" * 1_000_000 + b"\xc0"
    header = msgspec.msgpack.encode([len(skeleton)])
    return len(header).to_bytes(4, "little") + header + skeleton


def spoilt(folder: Path) -> Path:
    """Copy fedvine, with a site's desk and a hub that are the attacker's; return the folder."""
    code = folder / "code"
    shutil.copytree(Path(package.__file__).parent, code / "fedvine",
                    ignore=shutil.ignore_patterns("__pycache__"))
    with open(code / "fedvine" / "federation" / "flare.py", "a") as file:
        file.write(f"\n\nif os.environ.get('{PHASE}') == 'hub' and HUB in os.environ:\n"
                   "    from benchmarks._attack_flare import Gate\n"
                   "    from benchmarks._attack_hub import Hub\n")
    with open(code / "fedvine" / "federation" / "site_flare.py", "a") as file:
        file.write("\n\nos.environ['ATTACK_JOIN'] = str(os.getpid())\n")
    with open(code / "fedvine" / "federation" / "flare_site.py", "a") as file:
        file.write("\n\nif os.environ.get('FEDVINE_SITE', '').endswith('/"
                   f"{EVE}'):\n    from benchmarks._attack_site import Desk, Gate\n"
                   "if os.environ.get('FEDVINE_SITE', '').endswith('/JFK'):\n"
                   "    from benchmarks._attack_flare import begin_inside\n    begin_inside()\n")
    return code
