"""Run a command that may read, write and reach what is named, and nothing else (Linux, Landlock).

    python -IS confine.py RULES COMMAND ...

RULES is JSON: ``read`` and ``write``, paths of files and folders with all below them, ``list``,
folders whose names may be listed, and ``connect`` and ``bind``, TCP ports. What the command starts
is confined alike, and can neither be freed nor end, read or trace a process outside. It is run as a
plain script and needs the standard library alone.
"""

from __future__ import annotations

import ctypes
import json
import os
import struct
import sys
from pathlib import Path
from typing import Any

# Numbers of linux/landlock.h, and of the system calls, which all machines share.
_CREATE, _ADD, _RESTRICT = 444, 445, 446
_PATH, _PORT = 1, 2
_NO_NEW_PRIVILEGES = 38
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 2, 4, 8
TRUNCATE, IOCTL = 1 << 14, 1 << 15      # from ABI 3 and 5 on
_FILE = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL      # rights that a file can have
BIND, CONNECT = 1, 2                    # from ABI 4 on
ABSTRACT_SOCKETS, SIGNALS = 1, 2        # from ABI 6 on
NETWORK, SCOPES = 4, 6      # versions of the ABI


def abi() -> int:
    """Return the version of Landlock's interface; 0 where there is none."""
    if not sys.platform.startswith("linux"):
        return 0
    return max(_call(_CREATE, None, 0, 1), 0)


def confine(rules: dict[str, Any]) -> None:
    """Confine this process, for good; raise :class:`OSError` where that cannot be."""
    version = abi()
    if not version:
        raise OSError("this system has no Landlock")
    files = (1 << 13) - 1 | (1 << 13 if version >= 2 else 0) | (
        TRUNCATE if version >= 3 else 0) | (IOCTL if version >= 5 else 0)
    net = BIND | CONNECT if version >= NETWORK else 0
    scopes = ABSTRACT_SOCKETS | SIGNALS if version >= SCOPES else 0
    head = struct.pack("=QQQ", files, net, scopes)[:8 if version < NETWORK else
                                                   16 if version < SCOPES else 24]
    made = _done(_call(_CREATE, head, len(head), 0))
    for name, rights in (("read", EXECUTE | READ_FILE | READ_DIR), ("list", READ_DIR),
                         ("write", files & ~EXECUTE)):
        for path in rules.get(name, ()):
            _allow(made, path, rights & files)
    for name, right in (("connect", CONNECT), ("bind", BIND)) if net else ():
        for port in rules.get(name, ()):
            _done(_call(_ADD, made, _PORT, struct.pack("=QQ", right, port), 0))
    _done(ctypes.CDLL(None, use_errno=True).prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    _done(_call(_RESTRICT, made, 0))
    os.close(made)


def _allow(rules: int, path: str, rights: int) -> None:
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:             # what is not there cannot be read
        return
    try:
        if not Path(path).is_dir():
            rights &= _FILE
        _done(_call(_ADD, rules, _PATH, struct.pack("=Qi", rights, handle), 0))
    finally:
        os.close(handle)


def _call(*given: Any) -> int:
    made = [ctypes.c_long(one) if isinstance(one, int) else one for one in given]
    return int(ctypes.CDLL(None, use_errno=True).syscall(*made))


def _done(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def main() -> None:
    """Confine this process and become the command."""
    rules, command = json.loads(sys.argv[1]), sys.argv[2:]
    confine(rules)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
