"""Waits, as a process apart, until an engine is gone, and then starts the upload of what it left.

Started with the engine rather than at its end, since engine processes are often killed while they
shut down, together with all their children. Hence the fork: an orphan is nobody's child. It sleeps
on a lock that the system gives free when the engine's process ends, however that happens.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

LOCK_FILE = "lock"
_OWN_LOCK_FILE = "uploader"
_POLL_S = 0.1
_START_S = 10.0


def start(directory: Path, tracking_uri: str) -> None:
    """Start the waiting process of a spool directory, unless one is there already.

    Parameters
    ----------
    directory
        Must exist; its lock is held by this process, or free if the upload may begin at once.
    tracking_uri
        With credentials; handed on in the environment, never on the command line.

    Raises
    ------
    OSError
        The process could not be started.
    """
    if present(directory):
        return
    with (directory / "upload.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "acclimate.integrations.afterlife", str(directory)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**os.environ, "MLFLOW_TRACKING_URI": tracking_uri},
        )
    try:
        # It ends as soon as the orphan is on its own.
        process.wait(_START_S)
    except subprocess.TimeoutExpired:
        return


def present(directory: Path) -> bool:
    """Whether a process waits for this directory's engine to end, or is uploading."""
    try:
        with (directory / _OWN_LOCK_FILE).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def uploader_pid(directory: Path) -> int | None:
    """Return the process that waits or uploads, None if there is none."""
    if not present(directory):
        return None
    text = (directory / _OWN_LOCK_FILE).read_text(encoding="ascii")
    return int(text) if text else None


def wait_gone(directory: Path, timeout_s: float) -> bool:
    """Wait until the upload is over, and return whether it is."""
    deadline_s = time.monotonic() + timeout_s
    while present(directory):
        if time.monotonic() >= deadline_s:
            return False
        time.sleep(_POLL_S)
    return True


def main() -> None:
    """Become an orphan, wait for the engine's end, and turn into the upload."""
    directory = Path(sys.argv[1])
    own = os.open(directory / _OWN_LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(own, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return
    # The lock lives on in the orphan, and through its turning into the upload.
    os.set_inheritable(own, True)
    if os.fork():
        os._exit(0)
    os.ftruncate(own, 0)
    os.write(own, str(os.getpid()).encode("ascii"))
    try:
        engine = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
    except FileNotFoundError:
        return  # everything was sent
    fcntl.flock(engine, fcntl.LOCK_EX)
    if not directory.exists():
        return
    command = [sys.executable, "-P", "-m", "acclimate.integrations.mlflow_upload", str(directory)]
    os.execv(sys.executable, command)


if __name__ == "__main__":
    main()
