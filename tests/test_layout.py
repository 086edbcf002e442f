"""The checkout is one namespace, quick to import, with imports in one direction."""

import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[1]
_FOLDERS = ("controller", "predictors", "integrations", "experiments")


@pytest.mark.parametrize("folder", _FOLDERS)
def test_the_namespace_links_to_the_folder(folder: str) -> None:
    link = _ROOT / "src" / "acclimate" / folder
    assert link.is_symlink(), f"{link} must be a symlink: check out with core.symlinks on"
    assert link.resolve() == _ROOT / folder


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = (
        "import sys, acclimate; "
        "heavy = {'numpy', 'pydantic', 'river', 'scipy', 'vllm', 'mlflow', 'torch', 'typer'}; "
        "sys.exit(', '.join(sorted(heavy & set(sys.modules))) or None)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_command_line_starts_without_the_engine() -> None:
    code = (
        "import sys, acclimate.experiments.cli; "
        "heavy = {'numpy', 'river', 'scipy', 'vllm', 'mlflow', 'torch'}; "
        "sys.exit(', '.join(sorted(heavy & set(sys.modules))) or None)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_bare_folder_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--collect-only", "controller"],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "run pytest on src/acclimate/controller" in done.stdout + done.stderr


def test_imports_point_one_way() -> None:
    lint = Path(sys.executable).with_name("lint-imports")
    if not lint.exists():
        pytest.skip("import-linter is not installed")
    done = subprocess.run([lint], cwd=_ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
