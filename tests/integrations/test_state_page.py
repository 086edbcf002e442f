"""A page shows whole states, to other processes too, and nothing of writers that are gone."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from acclimate.controller.engine_state import EngineState, Load, Place, SlotState
from acclimate.integrations.state_page import StatePage, read_states, state_folder


def _state(slots: int = 1, running: int = 0) -> EngineState:
    slot = SlotState(domain="code", graded_tokens=float(slots), conditional=(0.5,) * 8)
    return EngineState(place=Place(engine="a"), load=Load(running=running), slots=(slot,) * slots)


def test_load_is_newer_than_the_rest_and_the_age_is_told(tmp_path: Path) -> None:
    now_ns = [5_000_000_000]
    page = StatePage("a-0", tmp_path, clock_ns=lambda: now_ns[0])
    assert read_states("a", tmp_path) == []  # nothing was written
    page.write(_state())
    page.load(7, 2)
    (seen,) = read_states("a", tmp_path, clock_ns=lambda: now_ns[0] + 250_000_000)
    assert (seen.state.load.running, seen.state.load.waiting, seen.age_s) == (7, 2, 0.25)
    assert seen.state.slots == _state().slots
    page.close()
    page.close()
    assert read_states("a", tmp_path) == [] and list(tmp_path.iterdir()) == []


def test_engines_are_told_apart_and_their_cores_kept_together(tmp_path: Path) -> None:
    pages = [StatePage(name, tmp_path) for name in ("a1-0", "a1-1", "b2-0")]
    for page in pages:
        page.write(_state())
    assert len(read_states("a1", tmp_path)) == 2 and len(read_states("b2", tmp_path)) == 1
    with pytest.raises(BlockingIOError):
        StatePage("a1-0", tmp_path)
    for page in pages:
        page.close()


def test_a_state_that_is_too_large_is_counted_and_the_last_one_stays(tmp_path: Path) -> None:
    page = StatePage("a-0", tmp_path)
    page.write(_state())
    page.write(_state(slots=10_000))
    assert page.lost == 1 and len(read_states("a", tmp_path)[0].state.slots) == 1
    page.close()


def test_another_process_reads_whole_states_while_they_change(tmp_path: Path) -> None:
    program = textwrap.dedent("""
        import sys
        from pathlib import Path
        from acclimate.integrations.state_page import read_states
        seen = []
        while len(seen) < 300:
            for one in read_states("a", Path(sys.argv[1])):
                tokens = {slot.graded_tokens for slot in one.state.slots}
                assert tokens == {float(len(one.state.slots))}, tokens
                seen.append(len(one.state.slots))
        print(len(set(seen)))
    """)
    page = StatePage("a-0", tmp_path)
    page.write(_state())
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    count = 0
    while child.poll() is None:
        count += 1
        page.write(_state(slots=1 + count % 60))
        page.load(count, 0)
    out = child.communicate()[0]
    assert child.returncode == 0 and int(out) > 1
    page.close()


def test_a_writer_that_was_killed_is_not_shown_and_swept_away(tmp_path: Path) -> None:
    program = textwrap.dedent("""
        import os, signal, sys
        from pathlib import Path
        from acclimate.controller.engine_state import EngineState, Load, Place
        from acclimate.integrations.state_page import StatePage, read_states
        page = StatePage("a-0", Path(sys.argv[1]))
        page.write(EngineState(place=Place(engine="a"), load=Load()))
        assert len(read_states("a", Path(sys.argv[1]))) == 1
        os.kill(os.getpid(), signal.SIGKILL)
    """)
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    assert done.returncode == -9 and [p.name for p in tmp_path.iterdir()] == ["a-0.state"]
    assert read_states("a", tmp_path) == []
    page = StatePage("b-0", tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["b-0.state"]
    page.close()


def test_damaged_and_foreign_files_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "a-0.state").write_bytes(b"x" * 100)
    (tmp_path / "a-1.state").symlink_to("/etc/passwd")
    assert read_states("a", tmp_path) == []


def test_a_folder_that_others_may_enter_is_refused(tmp_path: Path) -> None:
    folder = state_folder(tmp_path)
    assert folder.parent == tmp_path and folder.stat().st_mode & 0o777 == 0o700
    assert state_folder(tmp_path) == folder
    os.chmod(folder, 0o755)
    with pytest.raises(PermissionError, match="own folder"):
        state_folder(tmp_path)


@pytest.mark.parametrize("name", ["", "a/b", ".hidden"])
def test_names_must_be_plain(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="plain file name"):
        StatePage(name, tmp_path)
