"""The commands at the hub of a real federation: kit, serve, status."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from fedvine.cli.run import stopped_as_by_ctrl_c
from fedvine.cli.site import private
from fedvine.core.errors import FedvineError
from fedvine.core.units import names_in

kit = typer.Typer(no_args_is_help=True, help="Certificates and kits, in four plain steps.")


@kit.command("fingerprint")
def kit_fingerprint(folder: Annotated[Path, typer.Argument(metavar="KIT", help="This site's kit.")]
                ) -> None:
    """Print this site's line of the roster: its name and its key's fingerprint (site)."""
    from fedvine.federation.roster import own_line
    print(own_line(folder))
    print("Read it out to a person at every other site, by telephone or face to face, and write "
          "down theirs; not through the hub.\nA text file with one such line for every site, this "
          "one too, is the roster: fedvine join KIT --roster FILE", file=sys.stderr)


@kit.command("local")
def kit_local(
    folder: Annotated[Path, typer.Argument(help="A new folder.")] = Path("federation"),
    clients: Annotated[str, typer.Option(help="How many, or their names with commas.")] = "3",
) -> None:
    """Make a loopback federation for trying out: a server, an admin, and clients."""
    from fedvine.federation import kits as kits
    names = ([f"client-{i + 1}" for i in range(int(clients))] if clients.isdigit()
             else names_in(clients))
    made = kits.local(folder, names)
    print(f"Kits in {folder}: {', '.join(made)}.\nRoot certificate "
          f"{kits.fingerprint(made['server'])}\nNext: fedvine serve EXPERIMENT.toml --kit "
          f"{folder} --clients {len(names)}, and for "
          f"each client fedvine join {folder}/{names[0]} --data TABLE --src ... --dst ... "
          "--time ...")


@kit.command("init")
def kit_init(
    folder: Annotated[Path, typer.Argument(help="A new folder, at the hub.")],
    host: Annotated[str, typer.Option(help="The name or address that sites reach.")],
    name: Annotated[str, typer.Option(help="The federation's name.")] = "fedvine",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Where sites connect.")] = 8002,
    admin_port: Annotated[int, typer.Option(min=1, max=65535,
                                            help="Where the operator connects.")] = 8003,
    admin_host: Annotated[str, typer.Option(
        help="The address at which the operator's port is open.")] = "127.0.0.1",
) -> None:
    """Make the root certificate, and the kits of server and admin (hub, step 1)."""
    from fedvine.federation import kits as kits
    made = kits.init(folder, name, host, port, admin_port, admin_host)
    print(f"Root certificate {kits.fingerprint(made['server'])}\nTell every site this fingerprint "
          f"by telephone. Keep {folder}/ca where nobody else reads.\nNext, at each site: "
          f"fedvine kit request SITE --federation {name}")


@kit.command("request")
def kit_request(
    site: Annotated[str, typer.Argument(help="This site's name.")],
    federation: Annotated[str, typer.Option(help="The federation's name.")] = "fedvine",
    folder: Annotated[Path | None, typer.Option(help="A new folder [default: SITE].")] = None,
) -> None:
    """Make a private key that stays here, and a request to send to the hub (site, step 2)."""
    from fedvine.federation import kits as kits
    asked = kits.request(folder or Path(site), site, federation)
    print(f"Send {asked} to the hub; {asked.parent}/{site}.key stays here.\nNext, at the hub: "
          f"fedvine kit approve HUB {asked.name}")


@kit.command("approve")
def kit_approve(
    hub: Annotated[Path, typer.Argument(help="The hub's folder.")],
    request: Annotated[Path, typer.Argument(help="A site's request.")],
    replace: Annotated[str | None, typer.Option(
        metavar="SITE", help="Sign another key for this site, though its old one has not signed "
        "the request: its people said so by telephone.")] = None,
) -> None:
    """Sign a site's request, once you are sure that it is the site's (hub, step 3)."""
    from fedvine.federation import kits as kits
    answer = kits.approve(hub, request, replace)
    if replace is not None:
        print(f"ATTENTION: whoever holds the key of this request is {replace} from now on. Its old "
              "certificate is valid until its date, too: if the old key was stolen, withdraw "
              f"{replace} and let the site ask under another name.", file=sys.stderr)
    print(f"Send {answer} back.\nNext, at the site: fedvine kit pack {answer.name} --fingerprint "
          f"..., or to renew a kit: fedvine kit renew KIT --answer {answer.name} --fingerprint ...")


@kit.command("pack")
def kit_pack(
    answer: Annotated[Path, typer.Argument(help="The hub's signed answer.")],
    fingerprint: Annotated[str, typer.Option(
        help="The root certificate's fingerprint, as heard by telephone.")],
    folder: Annotated[Path | None, typer.Option(
        help="The request's folder, with the key.")] = None,
    kit_folder: Annotated[Path | None, typer.Option(
        "--out", help="A new folder for the kit [default: SITE-kit].")] = None,
) -> None:
    """Make the kit, hardened, ready for fedvine join (site, step 4)."""
    from fedvine.federation import kits as kits
    site = answer.name.removesuffix(".signed.zip")
    made = kits.pack(answer, folder or Path(site), kit_folder or Path(f"{site}-kit"), fingerprint)
    print(f"The kit is {made}.\nNext: fedvine join {made} --data TABLE --src ... --dst ... "
          "--time ...")


@kit.command("list")
def kit_list(hub: Annotated[Path, typer.Argument(help="The hub's folder.")]) -> None:
    """List the certificates and the dates until which they are valid (hub)."""
    from rich.markup import escape
    from rich.table import Table

    from fedvine.core.text import Terminal
    from fedvine.federation.certificates import listed
    table = Table("name", "valid until", "", "SHA-256 of the certificate", box=None)
    for c in listed(hub):
        table.add_row(escape(c.name), f"{c.until:%Y-%m-%d}", "withdrawn" if c.withdrawn else "",
                      c.fingerprint[:23] + " ...")
    Terminal().print(table)


@kit.command("withdraw")
def kit_withdraw(
    hub: Annotated[Path, typer.Argument(help="The hub's folder.")],
    site: Annotated[str, typer.Argument(help="Whose certificate is not to be let in any more.")],
) -> None:
    """Refuse a site from now on, also with a valid certificate (hub)."""
    from fedvine.federation.certificates import withdraw
    told = withdraw(hub, site)
    print(f"{site} is refused from now on" + ("; the running server has let go of it." if told else
          "; the server will know when it starts."))


@kit.command("renew")
def kit_renew(
    folder: Annotated[Path, typer.Argument(metavar="KIT", help="This site's kit.")],
    answer: Annotated[Path | None, typer.Option(help="The hub's signed answer, once it is "
                                                "here.")] = None,
    fingerprint: Annotated[str | None, typer.Option(
        help="The root certificate's fingerprint, with --answer.")] = None,
    federation: Annotated[str, typer.Option(help="The federation's name.")] = "fedvine",
) -> None:
    """Make a new key and request; with the hub's --answer put the certificate in place (site)."""
    from fedvine.federation.certificates import renew, renewed
    if answer is None:
        asked = renew(folder, federation)
        print(f"Send {asked} to the hub, which runs fedvine kit approve; then here: fedvine kit "
              f"renew {folder} --answer ... --fingerprint ...")
        return
    if fingerprint is None:
        raise FedvineError("Give the root certificate's fingerprint, as heard by telephone, with "
                           "--fingerprint.")
    renewed(folder, answer, fingerprint)
    print(f"{folder} has its new certificate; start fedvine join again. Rosters stay as they are.")


@kit.command("systemd")
def kit_systemd(
    folder: Annotated[Path, typer.Argument(help="A site's kit, or with --experiment the hub's "
                                           "folder.")],
    user: Annotated[str, typer.Option(help="Who runs it.")] = "fedvine",
    experiment: Annotated[Path | None, typer.Option(help="Hub: what to serve.")] = None,
    clients: Annotated[int, typer.Option(min=1, help="Hub: how many sites.")] = 1,
    out: Annotated[Path | None, typer.Option(help="Hub: the run folder.")] = None,
) -> None:
    """Print a systemd unit for fedvine join, or for fedvine serve."""
    from fedvine.federation.launch import join_unit, serve_unit
    print(join_unit(folder, user) if experiment is None else
          serve_unit(folder, user, experiment, clients, out or Path("runs") / experiment.stem),
          end="")


@private()
def serve(
    experiment: Annotated[Path, typer.Argument(help="A TOML file: method, stages, seed.")],
    folder: Annotated[Path, typer.Option("--kit", help="The folder with server and admin.")],
    clients: Annotated[int, typer.Option(min=1, help="How many sites to wait for.")],
    out: Annotated[Path | None, typer.Option(help="The run folder.")] = None,
    quorum: Annotated[float | None, typer.Option(
        min=0.01, max=1.0, help="Share of the clients that a call needs.")] = None,
    deadline: Annotated[float | None, typer.Option(
        min=1.0, help="Seconds that a call may take.")] = None,
    patience: Annotated[float, typer.Option(
        min=1.0, help="Seconds to wait for sites that are away.")] = 3600.0,
    live: Annotated[bool, typer.Option(
        "--live", help="Do not end: read the sites' tables again, and learn the stages that are "
        "whole.")] = False,
    settings: Annotated[list[str] | None, typer.Option(
        "--set", metavar="KEY=VALUE", help="Put a value into the experiment.")] = None,
) -> None:
    """Run an experiment across real machines until it is finished, also if processes die."""
    from rich.live import Live

    from fedvine.core.text import Terminal
    from fedvine.federation.dashboard import Dashboard
    from fedvine.federation.launch import read_order
    from fedvine.federation.spare import own_pages
    from fedvine.federation.supervisor import Supervisor
    stopped_as_by_ctrl_c()
    own_pages()
    target = out or Path("runs") / f"{experiment.stem}-federation"
    order = read_order(experiment, target, settings, quorum=quorum, deadline=deadline,
                       live=live or None)
    console = Terminal()
    board = Dashboard(console)
    with (Live(board, console=console, refresh_per_second=2) if console.is_terminal else
          contextlib.nullcontext(), Supervisor(folder, board.say, show=board.show,
                                                 patience=patience) as supervisor):
        supervisor.go(order, clients)

    from fedvine.results.view import RunView
    RunView.read(target).show(console)
    print(f"Kept in {target}")


@private()
def match(
    folder: Annotated[Path, typer.Option("--kit", help="The folder with server and admin.")],
    clients: Annotated[int, typer.Option(min=2, help="How many sites to wait for.")],
    out: Annotated[Path, typer.Option(help="The folder for what was found.")] = Path("runs/match"),
    patience: Annotated[float, typer.Option(
        min=1.0, help="Seconds to wait for sites that are away.")] = 3600.0,
) -> None:
    """Count the users that sites have in common, as multiples of their grain, and nothing else."""
    from fedvine.federation.match import FILE
    from fedvine.federation.order import Order
    from fedvine.federation.supervisor import Supervisor
    stopped_as_by_ctrl_c()
    with Supervisor(folder, print, patience=patience) as supervisor:
        supervisor.go(Order(out=str(out.absolute()), method={"name": "local"}, travelled=False,
                            match=True, quorum=0.01), clients)
    found = json.loads((out / FILE).read_text("utf-8"))
    for first, second, count in found["common"]:
        print(f"{first} and {second}: {count:,} users in common")
    for pair, why in found["lacking"].items():
        print(f"{pair}: not counted, as {why}", file=sys.stderr)
    print(f"Each is a multiple of 10 or of the first site's grain, rounded down. Kept in "
          f"{out / FILE}.")


def status(folder: Annotated[Path, typer.Argument(help="The folder with server and admin.")]
           ) -> None:
    """Print the state of a federation's runs."""
    from fedvine.core.text import shown
    from fedvine.core.units import seconds, size
    from fedvine.federation.dashboard import how, refusals, update, waits
    files = sorted((folder / "hub").glob("*.state.json"))
    if not files:
        raise FedvineError(f"{folder} has served no run yet.")
    for file in files:
        state = json.loads(file.read_text("utf-8"))
        waiting = f", {waits(state)}" if "next" in state else ""
        place = (f", stage {state['t'] + 1} of {state['stages']}, round {state['r']} of "
                 f"{state['R']}" if "t" in state else waiting)
        print(f"{file.name.removesuffix('.state.json')}: {state['state']}{place}"
              f", {seconds(time.time() - state['time'])} ago{' - ' if state['why'] else ''}"
              f"{state['why']}")
        for name, client in sorted((state.get("clients", {}) if "t" in state else {}).items()):
            print(f"  {name}: {how(client)}, "
                  f"{seconds(client['seconds'])}, {size(client['down'])} down, "
                  f"{size(client['up'])} up{', ' if 'norm' in client else ''}{update(client)}")
        for name, why in sorted(refusals(state).items()):
            print(shown(f"  {name}: {why}"))
