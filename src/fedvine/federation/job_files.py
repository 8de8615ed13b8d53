"""The three files of a FLARE job, which the hub submits and every site writes for itself again."""

from __future__ import annotations

import io
import json
import re
import zipfile
from typing import Any

from fedvine.core.errors import FedvineError

#: The classes that a job may name: at the server the second and the third, at a site the others.
CLASSES = ("nvflare.collab.runtime.executor.CollabExecutor",
           "fedvine.federation.flare.Controller",
           "fedvine.federation.flare.Hub", "fedvine.federation.flare_site.Desk")
META, SERVER, CLIENT = "meta.json", "config_fed_server.json", "config_fed_client.json"
NAME = "fedvine "       # and the run's: a job's name
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# FLARE's signatures of the operator, beside the files; FLARE checks them at a site.
_SIGNED = {f"{folder}{name}" for folder in ("", "config/") for name in (
    ".__nvfl_sig.json", ".__nvfl_submitter.crt")}
# What FLARE adds to meta.json when a job is submitted and scheduled; no launcher, no code.
_ADDED = {"study", "submitter_name", "submitter_org", "submitter_role", "job_folder_name", "job_id",
          "submit_time", "submit_time_iso", "start_time", "duration", "data_storage_format",
          "status", "schedule_history", "schedule_count", "last_schedule_time", "job_clients"}
MOST = 1_000_000        # bytes of a file of a job


def checked(run: str) -> str:
    """Return a plain name ``run``, which becomes a path; raise :class:`FedvineError` for others."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,80}", str(run)):
        raise FedvineError(f"{run!r} is no name of a run; refused.")
    return run


def is_job(number: Any) -> bool:
    """Return whether this is FLARE's name of a job, which becomes a folder in a kit."""
    return isinstance(number, str) and _UUID.fullmatch(number) is not None


def job_files(run: str, clients: int) -> dict[str, str]:
    """Return the text of the three files of a job that carries ``run``; no code, no data."""
    common = {"format_version": 2, "task_data_filters": [], "task_result_filters": []}
    files = {
        META: {"name": f"{NAME}{checked(run)}", "resource_spec": {}, "min_clients": clients,
               "deploy_map": {"app": ["@ALL"]}},
        SERVER: {
            **common, "workflows": [{"id": "controller", "path": CLASSES[1], "args": {
                "needed": clients, "server_obj_id": "hub", "collab_obj_ids": [], "props": {}}}],
            "components": [{"id": "hub", "path": CLASSES[2], "args": {"run": run}}]},
        CLIENT: {
            **common, "executors": [{"tasks": ["*"], "executor": {"path": CLASSES[0], "args": {
                "client_obj_id": "desk", "collab_obj_ids": [], "props": {}}}}],
            "components": [{"id": "desk", "path": CLASSES[3], "args": {}}]}}
    return {name: json.dumps(content, indent=1) for name, content in files.items()}


def own_job(meta: Any, number: Any) -> dict[str, str]:
    """Return a site's own files for the job ``number``, of which the hub says ``meta``.

    Raises :class:`FedvineError` where the hub says anything that they do not say.
    """
    if not is_job(number):
        raise FedvineError(f"a job called {str(number)[:80]!r}, which is no job's number")
    if not isinstance(meta, dict) or meta.get("job_id") != number:
        raise FedvineError("a job without its description")
    clients, name = meta.get("min_clients"), str(meta.get("name"))
    if type(clients) is not int or not 0 < clients <= 10_000 or not name.startswith(NAME):
        raise FedvineError(f"a job called {name[:80]!r}, which is no run's")
    files = job_files(name.removeprefix(NAME), clients)
    known = json.loads(files[META])
    if found := sorted(str(key)[:40] for key in meta.keys() - known.keys() - _ADDED):
        raise FedvineError(f"a job with {', '.join(found[:3])} in its description")
    if changed := [key for key in known if meta.get(key) != known[key]]:
        raise FedvineError(f"a job with another {changed[0]} than a run's")
    return files


def own_app(meta: Any, number: Any, deployed: Any) -> bytes:
    """Return the site's own archive of a job's app, in place of the hub's archive ``deployed``.

    Raises :class:`FedvineError` unless the archive has these files alone, byte by byte, and FLARE's
    signatures of them.
    """
    files = own_job(meta, number)
    try:
        with zipfile.ZipFile(io.BytesIO(deployed)) as archive:
            found = archive.infolist()
            names = [one.filename for one in found]
            wanted = {f"config/{name}": files[name].encode() for name in (SERVER, CLIENT)}
            other = [name for name in names if name not in {*wanted, "config/", *_SIGNED}]
            if other or len({*names}) < len(names):
                raise FedvineError(f"a job with the file {(other or names)[0][:80]!r}")
            if max(one.file_size for one in found) > MOST:
                raise FedvineError("a job with a file that is too large")
            for name, content in wanted.items():
                if name not in names or archive.read(name) != content:
                    raise FedvineError(f"a job whose {name} is not the one that this site writes")
            wanted |= {name: archive.read(name) for name in names if name in _SIGNED}
    except FedvineError:
        raise
    except Exception as error:      # whatever an archive that is none does to its reader
        raise FedvineError(f"a job that cannot be read ({type(error).__name__})") from error
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, content in wanted.items():
            archive.writestr(name, content)
    return made.getvalue()
