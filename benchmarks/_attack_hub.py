"""The code that a malicious hub runs in place of fedvine's own: see :mod:`benchmarks._attack`.

It has the key of the server's kit, so sites carry out its requests as far as they would for any
hub; those that tell too much are refused. It attacks before the run that everybody waits for, and
then carries that run out.
"""

from __future__ import annotations

import os
import shutil
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from nvflare.collab import collab

from benchmarks import _attack_sums
from benchmarks._attacker import (
    EVE,
    NOTES,
    VICTIM,
    Victims,
    calls,
    deep,
    empty,
    letter,
    tell,
    told,
)
from fedvine.data.plan import Plan
from fedvine.engines.remote import ask
from fedvine.federation.flare import HUB, _call
from fedvine.federation.flare import Hub as Honest
from fedvine.federation.order import Order
from fedvine.federation.server import read_order
from fedvine.federation.signed import SESSION, Signer

SECONDS = 60.0
OTHER = "JFK"
RUN = "stolen"


class Hub(Honest):
    """Attacks once, and then carries out the run."""

    @collab.main
    def main(self) -> None:
        """Attack, then do what the honest hub does."""
        if not any(line["finding"] == "D1" for line in told(Path(os.environ[NOTES]))):
            hub, proxies = Path(os.environ[HUB]), {p.name: p for p in collab.clients}

            def deliver(name: str, block: bytes, seal: bytes, seconds: float) -> bytes:
                return _call(proxies[name], "handle", seconds, letter=block, seal=seal)

            def greet(name: str, seconds: float) -> bytes:
                return _call(proxies[name], "alive", seconds, letter=b"")

            theft = Theft(hub, read_order(hub, self.run), sorted(proxies), deliver, greet)
            for part in (theft.of_requests, theft.of_runs, theft.of_answers,
                         lambda: _attack_sums.attack(theft)):
                try:
                    part()
                except Exception as error:      # the attack itself is at fault
                    tell("own 6", "the hub's attack broke off", VICTIM, f"{error} " + "".join(
                        traceback.format_exception(error)[-3:]), False)
        super().main()


class Theft:
    """Attempts with the hub's key, on one site; ``ask`` is a request under it."""

    def __init__(self, hub: Path, order: Order, names: list[str],
                 deliver: Callable[[str, bytes, bytes, float], bytes],
                 greet: Callable[[str, float], bytes]) -> None:
        self.kits, self.order, self.names = hub.parent, order, names
        self.deliver, self.greet, self.victims = deliver, greet, Victims(hub.parent)
        self.signer = self.of(RUN)
        method = order.kind()
        self.method = {"name": method.name, **method.model_dump(mode="json")}
        self.terms = {"do": "agree", "run": RUN, "travelled": False, "method": self.method,
                      "protocol": order.protocol.model_dump(mode="json")}

    def of(self, run: str, kit: Path | None = None) -> Signer:
        """Return who signs for a run, with the hub's key or that of another ``kit``."""
        return Signer(kit or self.kits / "server", run, self.deliver, self.greet)

    def ask(self, finding: str, what: str, to: str = VICTIM, signer: Signer | None = None,
            good: Callable[[Any], str | None] = lambda reply: None, **request: Any) -> Any:
        """Try a request that the server signs."""
        return self.victims.attempt(finding, f"the hub {what}", to, lambda: self.send(
            to, letter(**request), signer), good)

    def send(self, to: str, block: bytes, signer: Signer | None = None) -> bytes:
        """Sign a request, with a number above those of all signers so far, and send it."""
        chosen = signer or self.signer
        chosen._number = max(chosen._number, time.time_ns())
        return chosen(to, block, SECONDS)

    def quietly(self, to: str = VICTIM, signer: Signer | None = None, **request: Any) -> Any:
        """Carry out a request that a site may answer, on the way to one that it may not."""
        return ask(lambda name, block, _: self.send(name, block, signer), to, SECONDS, **request)

    # -- requests that the hub did not sign for this site, now ------------------------------------
    def of_requests(self) -> None:
        """Unsealed, altered, repeated, another site's, of other keys, of another process (D1)."""
        session, facts = self.greet(VICTIM, SECONDS), letter(**self.terms)

        def tried(what: str, seal: bytes, body: bytes = facts) -> None:
            self.victims.attempt("D1", f"the hub sends a request {what}", VICTIM,
                                 lambda: self.deliver(VICTIM, body, seal, SECONDS), sealed=False)

        good = self.signer.seal(VICTIM, session, facts)
        tried("without a seal", b"")
        tried("that was altered after it was signed", good, letter(**{**self.terms, "travelled":
                                                                      True}))
        self.deliver(VICTIM, facts, good, SECONDS)
        tried("a second time", good)
        tried("that is sealed for another site", self.signer.seal(OTHER, session, facts))
        tried("that was sealed for an earlier process, as in a run before",
              self.signer.seal(VICTIM, bytes(SESSION), facts))
        kit = self.kits / "stolen"
        shutil.copytree(self.kits / EVE / "startup", kit / "startup", dirs_exist_ok=True)
        for end in ("key", "crt"):
            shutil.copy(kit / "startup" / f"client.{end}", kit / "startup" / f"server.{end}")
        tried("sealed with the key of a site's kit", self.of(RUN, kit).seal(
            VICTIM, session, facts))
        false = self.kits / "false"
        forged(false / "startup", self.kits / "ca" / "rootCA.pem")
        tried("sealed with a key that another authority certifies as the hub's",
              self.of(RUN, false).seal(VICTIM, session, facts))

    # -- runs that the site's policy does not allow (D2) ------------------------------------------
    def of_runs(self) -> None:
        """Ask before it says what it is about; methods, fields and files that may not be."""
        nameless = self.of("never said")
        for do, more in (("facts", {}), ("known", {"bounds": [0.0]}), ("arrivals", {}),
                         ("tables", {"stop": 1e18})):
            self.ask("D2", f"asks for {do} before it has said what the run would do",
                     signer=nameless, do=do, **more)
        for what, method in {
                "wants fedlink, whose rows travel one by one": {"name": "fedlink"},
                "wants uploads without masks (secure = false)": {
                    **self.method, "aggregate": {"secure": False}},
                "wants sums of single edges and persons (grain = 1)": {
                    **self.method, "aggregate": {"secure": True, "grain": 1}},
                "wants noise below the least": {
                    "name": "fedlink_plus", "share": "sums", "clip": 1.0,
                    "aggregate": {"noise": 0.5}},
                "wants rows of fedlink_plus": {"name": "fedlink_plus", "share": "rows"},
                "wants a method that shares nothing to share": {
                    "name": "local", "share": ["model", "users", "items"]}}.items():
            self.ask("D2", what, **{**self.terms, "method": method})
        self.ask("D2", "wants the times at which users were first seen",
                 **{**self.terms, "travelled": True})
        for name in ("../../stolen", "/tmp/stolen.py", "os:system"):
            self.ask("own 5", f"names a file as the method: {name}",
                     **{**self.terms, "method": {"name": name}})
        self.ask("own 5", "agrees to one run under the seal of another",
                 **{**self.terms, "run": "another"})
        self.quietly(**self.terms)
        self.ask("D2", "agrees on masks and opens the run without them",
                 **self.opening({**self.method, "aggregate": {"secure": False}}))
        self.ask("D2", "asks for counts at a thousand times", good=lambda found: (
            "counts are multiples of 10" if (np.asarray(found) % 10 == 0).all() else None),
            do="known", bounds=list(np.linspace(1.3e9, 1.4e9, 1000)))
        self.ask("D8", "provokes an error at a site", do="known", bounds=["a", ["b"]])
        self.ask("own 3", "has a run with terminal codes and tags in its name",
                 signer=self.of("\x1b[2J<b>[red]\n"), do="facts")

    # -- what a run that is allowed does not answer -----------------------------------------------
    def of_answers(self) -> None:
        """Ask for raw edges, private memory, others' queries, and files outside of the kit."""
        pairs = {"src": np.repeat(np.arange(20), 20), "dst": np.tile(np.arange(20), 20),
                 "t": np.full(400, 1e18)}
        bank = {"name": "edgebank"}
        self.quietly(**{**self.terms, "method": bank})
        self.quietly(**self.opening(bank))
        self.quietly(**calls([0, 0, 1], "observe", None, 0))
        self.ask("D2", "asks for every pair that a site has had (asks = -1)",
                 **calls([0, 1, 1], "predict", -1, 0, pairs))
        self.ask("D2", "asks for answers to no queries at all",
                 **calls([0, 1, 2], "predict", None, 0))
        for function in ("dump", "save", "setup", "__reduce__", "model_dump"):
            self.ask("D2", f"calls {function} at a client for its memory",
                     **calls([0, 1, 3], function, None))
        self.ask("D6", "opens a run of the same name and looks for the other one's saves",
                 good=lambda found: "there are none" if found == [] else None, do="moments")
        before = files(self.kits)
        for moment in ("../../../../stolen", "/tmp/stolen", "000001-0001/../../x"):
            self.ask("own 5", f"saves under the name {moment}", do="save", moment=moment)
            self.ask("own 5", f"restores {moment}", do="restore", moment=moment)
        path = self.of("../../../stolen")
        self.quietly(signer=path, **{**self.terms, "run": "../../../stolen", "method": bank})
        self.ask("own 5", "opens a run called ../../../stolen", signer=path, good=lambda _: (
            "all files lie in the site's memory" if files(self.kits) == before else None),
            **{**self.opening(bank), "run": "../../../stolen"})
        for name, function, given in (
                ("fedlink_private", "train", None), ("fedlink_private", "look", None),
                ("fedlink_plus", "explain", None), ("fedlink_plus", "lend", None)):
            method = {**self.method, "name": name} if name == "fedlink_private" else {
                "name": name, "share": "sums", "aggregate": {"noise": 1.0, "grain": 10}}
            self.quietly(**{**self.terms, "method": method})
            self.quietly(**self.opening(method))
            self.ask("own 6", f"calls {function} of {name}, which gives rows or reasons away",
                     **calls([0, 1, 9], function, 0 if function in ("look", "explain") else None,
                             *([] if given is None else [given])))
        for what, bomb in (("lists in lists, a million deep", deep),
                           ("two million empty buffers in 2 MB", empty)):
            self.victims.attempt("own 2", f"the hub sends {what}", VICTIM,
                                 lambda made=bomb: self.send(VICTIM, made()))

    def opening(self, method: dict[str, Any], number: str = "1") -> dict[str, Any]:
        """Return the request that opens a run of the whole year in one stage."""
        plan = Plan((1.3e9, 1.4e9, 1.5e9), 0, 0).facts()
        return {"do": "open", "run": RUN, "number": number, "plan": plan, "seed": 0, "stages": 2,
                "protocol": self.terms["protocol"], "method": method, "clients": self.names,
                "elsewhere": None}


def files(kits: Path) -> list[Path]:
    """Return what lies outside of the victim's memory."""
    return sorted(p for p in [*kits.iterdir(), *kits.parent.iterdir(), *(kits / VICTIM).iterdir()])


def forged(folder: Path, root: Path) -> None:
    """Write a key with a certificate in the hub's name and that of the ``root``, by neither."""
    import datetime

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.x509.oid import NameOID
    folder.mkdir(parents=True, exist_ok=True)
    key, now = rsa.generate_private_key(65537, 2048), datetime.datetime.now(datetime.UTC)
    title = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    issuer = x509.load_pem_x509_certificate(root.read_bytes()).subject
    made = (x509.CertificateBuilder().subject_name(title).issuer_name(issuer)
            .public_key(key.public_key()).serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=30)).sign(key, hashes.SHA256()))
    pem = serialization.Encoding.PEM
    (folder / "server.crt").write_bytes(made.public_bytes(pem))
    (folder / "server.key").write_bytes(key.private_bytes(
        pem, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()))
