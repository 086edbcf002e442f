"""Reports, opened in a real headless browser: no error, nothing from outside, every figure there."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from acclimate.experiments.figures import Figure, Meta, write_figures
from acclimate.experiments.lab import sovereign
from acclimate.experiments.lab.adaserve import run_adaserve
from acclimate.experiments.lab.lab_run import LabRun
from acclimate.experiments.lab.load import run_load
from acclimate.experiments.lab.recalibration import run_recalibration
from acclimate.experiments.report.page import Items, Page, Picture, Section, Table, Text, render
from acclimate.experiments.report.run import folder_page, run_report

_PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360f8"
    "cfc0000003010100c9fe92ef0000000049454e44ae426082"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("there is no chromium on this machine")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield chromium
        chromium.close()


def _open(browser: Any, path: Path) -> dict[str, Any]:
    """Open a file, and return what a reader would notice."""
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    errors: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: errors.append(message.text) if message.type in
            ("error", "warning") else None)  # fmt: skip
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path.resolve().as_uri())
    page.wait_for_load_state("load")
    seen: dict[str, Any] = page.evaluate(
        """() => ({
            title: document.title,
            images: [...document.images].map(
                i => ({width: i.naturalWidth, alt: i.alt,
                       caption: i.parentElement.querySelector('figcaption').innerText})),
            text: document.body.innerText,
            overflow: document.documentElement.scrollWidth - window.innerWidth,
        })"""
    )
    page.close()
    outside = [url for url in asked if not url.startswith(("file:", "data:"))]
    return {**seen, "errors": errors, "outside": outside}


def _check(seen: dict[str, Any], *, pictures: int) -> None:
    assert seen["errors"] == []
    assert seen["outside"] == []
    assert len(seen["images"]) == pictures > 0
    for image in seen["images"]:
        assert image["width"] > 0 and image["alt"] and image["caption"]
    assert seen["overflow"] <= 0
    assert "What this is about" in seen["text"]


@pytest.fixture(scope="module")
def recalibrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("lab") / "recalibration"
    from acclimate.experiments.simulation.scenario import FOLDER

    folder = tmp_path_factory.mktemp("scenarios")
    for name in ("abrupt_drop", "stable"):
        text = (FOLDER / f"{name}.toml").read_text().replace("until_s = 30.0", "until_s = 12.0")
        text = text.replace("concurrency = 8", "concurrency = 2")
        (folder / f"{name}.toml").write_text(text)
    shutil.copy(FOLDER / "f2.csv", folder)
    sources = [str(folder / f"{name}.toml") for name in ("abrupt_drop", "stable")]
    policies = ["adaptive", "clairvoyant", "turbospec", "k0"]
    run_recalibration(sources, policies, seeds=1, run=LabRun(jobs=1, out=out, mlflow=False))
    return out


def test_recalibration(browser: Any, recalibrated: Path) -> None:
    seen = _open(browser, run_report(str(recalibrated), mlflow=False))
    _check(seen, pictures=3)
    text = seen["text"]
    for part in ("acclimate lab recalibration --scenarios abrupt_drop,stable", "version",
                 "How to read the measures", "Result in brief", "Acceptance drops at once",
                 "tokens to recover", "The policies", "TurboSpec"):  # fmt: skip
        assert part in text


def test_load(browser: Any, tmp_path: Path) -> None:
    out = tmp_path / "load"
    run_load(seeds=1, until_s=0.6, warm_up_s=0.1, run=LabRun(jobs=1, out=out, mlflow=False))
    seen = _open(browser, out / "report.html")
    _check(seen, pictures=3)
    assert "acclimate lab load" in seen["text"] and "Chosen depth against the best" in seen["text"]


def test_adaserve(browser: Any, tmp_path: Path) -> None:
    out = tmp_path / "adaserve"
    run_adaserve(
        settings=["stationary", "swap"], arms=["chunked", "adaserve", "adaptive"],
        rates_per_s=[3.0], seeds=1, duration_s=50.0, run=LabRun(jobs=1, out=out, mlflow=False),
    )  # fmt: skip
    seen = _open(browser, out / "report.html")
    _check(seen, pictures=1)
    for part in ("acclimate lab adaserve", "Targets", "adaptive over AdaServe"):
        assert part in seen["text"]
    assert '"adaserve/swap/adaptive/rps3/violations"' in (out / "figures.json").read_text()


def test_sovereign(browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = [
        cell
        for cell in sovereign.sovereign_cells(range(1), 0.1)
        if not isinstance(cell, sovereign.SovereignCell) or cell.arm in ("k0", "always_on", "ours")
    ]
    few = [
        cell for cell in few
        if (isinstance(cell, sovereign.SovereignCell) and cell.curve == "cpu")
        or cell.key.startswith("cluster/least_loaded")
    ]  # fmt: skip
    monkeypatch.setattr(sovereign, "sovereign_cells", lambda seeds, length: few)
    out = tmp_path / "sovereign"
    sovereign.run_sovereign(seeds=1, length=0.1, run=LabRun(jobs=1, out=out, mlflow=False))
    seen = _open(browser, out / "report.html")
    _check(seen, pictures=2)
    for part in ("acclimate lab sovereign", "Targets", "A cluster in two regions"):
        assert part in seen["text"]
    figures = (out / "figures.json").read_text()
    for name in ("ours/q0.7/cpu/headroom0.5/speedup", "ours/harmed_share", "ours/efficiency"):
        assert f'"sovereign/{name}"' in figures


def test_compare(browser: Any, tmp_path: Path) -> None:
    from tests.experiments.report.comparison import write_comparison

    write_comparison(tmp_path)
    seen = _open(browser, run_report(str(tmp_path), mlflow=False))
    _check(seen, pictures=2)
    assert "adaptive / k0" in seen["text"] and "A/A" in seen["text"]


def test_promises_of_a_comparison(browser: Any, tmp_path: Path) -> None:
    from tests.experiments.report.comparison import write_comparison

    write_comparison(tmp_path, promised=True)
    seen = _open(browser, run_report(str(tmp_path), mlflow=False))
    _check(seen, pictures=3)
    assert "Promises kept" in seen["text"] and "goodput" in seen["text"]
    assert "x0.85" in seen["text"] and "interactive" in seen["text"]


def test_trees(browser: Any, tmp_path: Path) -> None:
    from tests.experiments.report.tree_results import write_tree_results

    write_tree_results(tmp_path)
    seen = _open(browser, run_report(str(tmp_path), mlflow=False))
    _check(seen, pictures=4)
    for part in ("What a drafter's probabilities are worth", "Measured speed", "1 prose, 1 at a",
                 "clairvoyant_tree", "wanted: at most 1.5"):  # fmt: skip
        assert part in seen["text"]


def _demo_folder(folder: Path) -> Path:
    figures = [
        Figure("demo/ratio/adaptive/k0", 1.06, low=1.04, high=1.08, n=6),
        Figure("demo/tokens_to_recover", 118.0, unit="tokens"),
    ]
    write_figures(folder / "figures.json", figures, Meta("demo", engine="vllm", seed=0))
    (folder / "demo.png").write_bytes(_PNG)
    return folder


def test_demo(browser: Any, tmp_path: Path) -> None:
    seen = _open(browser, run_report(str(_demo_folder(tmp_path)), mlflow=False))
    _check(seen, pictures=2)
    assert "1.04 … 1.08" in seen["text"]


def test_a_run(browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tracking = pytest.importorskip("mlflow.tracking")
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.chdir(tmp_path)
    client = tracking.MlflowClient(tracking_uri=uri)
    run_id = client.create_run(client.create_experiment("live"), run_name="engine").info.run_id
    for step in range(5):
        client.log_metric(run_id, "acceptance/seen", 0.5 + step / 20, step=step, timestamp=step)
    client.log_param(run_id, "seed", 3)
    seen = _open(browser, run_report(run_id))
    _check(seen, pictures=1)
    assert "Run engine" in seen["title"] and "acceptance/seen" in seen["text"]
    (stored,) = client.list_artifacts(run_id)
    assert stored.path.endswith(".html")
    with pytest.raises(ValueError, match="RUN must be a folder or a run of"):
        run_report("nosuchrun")


def test_a_lab_known_by_its_run(
    recalibrated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracking = pytest.importorskip("mlflow.tracking")
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.chdir(tmp_path)
    client = tracking.MlflowClient(tracking_uri=uri)
    run_id = client.create_run(client.create_experiment("lab")).info.run_id
    for name in ("results.jsonl", "figures.json"):
        client.log_artifact(run_id, str(recalibrated / name))
    path = run_report(run_id, mlflow=False)
    assert path.read_text() == (recalibrated / "report.html").read_text()


def test_a_folder_without_a_run_gets_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tracking = pytest.importorskip("mlflow.tracking")
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "demo"
    folder.mkdir()
    _demo_folder(folder)
    run_report(str(folder))
    run_report(str(folder))
    run_id = msgspec.json.decode((folder / "mlflow.json").read_bytes())["run_id"]
    client = tracking.MlflowClient(tracking_uri=uri)
    assert {a.path for a in client.list_artifacts(run_id)} == {"figures.json", "report.html"}


def test_text_is_escaped_and_nothing_comes_from_outside() -> None:
    page = Page(
        title="<script>",
        lead="a & b",
        facts=[("x", "<b>")],
        sections=[
            Section("s", [Text(["<i>"]), Items(["<u>"], note=True),
                          Table("<t>", ("<h>",), [["<c>"]]), Picture(_PNG, '"', "<p>", "png")]),
        ],
    )  # fmt: skip
    text = render(page)
    for tag in ("<script>", "<b>", "<i>", "<u>", "<t>", "<h>", "<c>", "<p>&lt;p&gt;"):
        assert tag not in text
    assert "http" not in text and 'alt="&quot;"' in text


def test_a_folder_of_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"must hold results\.jsonl of a lab"):
        folder_page(tmp_path)
