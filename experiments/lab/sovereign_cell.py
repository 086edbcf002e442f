"""Cells of ``lab sovereign``: one arm at one headroom, or beside neighbours, or on a cluster."""

from __future__ import annotations

import msgspec
import numpy as np

from acclimate.controller.config import ControlConfig, SloConfig
from acclimate.controller.policy import Policy
from acclimate.controller.records import Capabilities
from acclimate.experiments.arms import arm_policy
from acclimate.experiments.measures import met_targets
from acclimate.experiments.peers.domain_depths import DomainDepths
from acclimate.experiments.peers.headroom import HeadroomSized
from acclimate.experiments.run_record import Run
from acclimate.experiments.simulation.scenario import Scenario
from acclimate.experiments.simulation.scenario_sections import ClosedArrivals
from acclimate.experiments.simulation.stage import Stage
from acclimate.experiments.simulation.truth import Truth

CURVES = ("f2", "h100", "cpu")
"""Step times by name: a measured GPU, a GPU's roofline, two CPU cores as measured."""

ACCEPTANCES = (0.5, 0.7, 0.8)
HEADROOMS = (1.0, 0.75, 0.5, 0.25, 0.0)
"""Share of the saturating batch that is not there: 1 is one request, 0 the whole batch."""

BASE, ALWAYS_ON, HEADROOM, OURS = "k0", "always_on", "headroom", "ours"

_TWIN = {"twin": "per_request", "eta": 0.02, "lag_tokens": 2.0}  # as tight as the measure of harm

SHIELDS: dict[str, dict[str, object]] = {
    "ours": {"externality": True, **_TWIN},
    "ours_externality": {"externality": True, "twin": "off"},
    "ours_twin": {"externality": False, **_TWIN},
    "ours_neither": {"externality": False, "twin": "off"},
    "ours_sum": {"externality": False, "twin": "off", "base_tokens": 1_000.0},
}
"""Ours with and without what protects neighbours, by the keys of the configuration ``slo``. In the
last one not even debts weigh: it maximises the sum of tokens alone."""

_SHORT_S = {"f2": 15.0, "h100": 15.0, "cpu": 60.0}
_WARM_SHARE = 0.3


class SovereignCell(msgspec.Struct, frozen=True, kw_only=True):
    """What to run: a point of the sweep, or the neighbours' engine where ``acceptance`` is 0.

    Parameters
    ----------
    curve
        One of `CURVES`.
    arm
        ``k0``, ``always_on``, ``headroom``, one of `SHIELDS`, or ``plan:a-b-c`` with a depth for
        each of the neighbours' domains.
    acceptance
        P(a draft token is accepted, given those before it were); 0: the neighbours.
    headroom
        In [0, 1]; see `HEADROOMS`.
    length
        Factor on the time that is simulated.
    """

    curve: str
    arm: str
    acceptance: float = 0.0
    headroom: float = 0.0
    seed: int
    length: float = 1.0

    @property
    def key(self) -> str:
        """Name of the cell."""
        where = "neighbours"
        if self.acceptance:
            where = f"q{self.acceptance:g}/headroom{self.headroom:g}"
        return f"{self.curve}/{where}/{self.arm}/seed{self.seed}"


class RequestFates(msgspec.Struct, frozen=True):
    """What became of the judged requests, each list in one order.

    ``met`` is 1 or 0, and -1 without a target; ``tpot_s`` is 0 for an answer of one token.
    """

    request: list[int]
    domain: list[int]
    met: list[int]
    tpot_s: list[float]


class SovereignRow(msgspec.Struct, frozen=True, kw_only=True, tag="engine"):
    """What came of a cell after its warm-up.

    Parameters
    ----------
    requests
        Requests at all times.
    tokens, seconds
        Committed tokens and engine time.
    verified_per_request
        Drafts verified per request and step.
    fates
        Of the neighbours' finished requests, to be paired with those of the run without
        speculation; empty in the sweep.
    """

    key: str
    cell: SovereignCell
    requests: int
    tokens: int
    seconds: float
    verified_per_request: float
    fates: RequestFates

    @property
    def tokens_per_s(self) -> float:
        """Speed after the warm-up."""
        return self.tokens / self.seconds


def requests_at(curve: str, headroom: float) -> int:
    """Return the requests that leave a headroom on a curve.

    Raises
    ------
    ValueError
        The headroom is outside [0, 1].

    Examples
    --------
    >>> [requests_at("cpu", headroom) for headroom in HEADROOMS]
    [1, 9, 16, 24, 32]
    """
    if not 0.0 <= headroom <= 1.0:
        raise ValueError(f"headroom must be in [0, 1], got {headroom}")
    most = _saturating(Scenario.read(f"sovereign/{curve}"))
    return round(1 + (1.0 - headroom) * (most - 1))


def run_sovereign_cell(cell: SovereignCell) -> SovereignRow:
    """Run a cell; the same cell gives the same row."""
    scenario, until_s, from_s = _scene(cell)
    stage = Stage.of(scenario, seed=cell.seed)
    config = shield_config(cell.arm, cell.seed)
    lines: list[str] = []
    policy = sovereign_policy(cell.arm, config, stage.capabilities, stage.truth, scenario)
    run = stage.engine(policy, config=config, log=lines.append).run(until_s=until_s, drain=False)
    if lines:
        raise RuntimeError(f"policy {cell.arm!r} must not fail in a simulation, got: {lines[0]}")
    return _row(cell, run, from_s, stage.concurrency or 0)


def shield_config(arm: str, seed: int) -> ControlConfig:
    """Return the configuration of an arm: whether neighbours and twins are protected."""
    return ControlConfig(seed=seed, slo=SloConfig.model_validate(SHIELDS.get(arm, {})))


def sovereign_policy(
    arm: str,
    config: ControlConfig,
    capabilities: Capabilities,
    truth: Truth,
    scenario: Scenario,
) -> Policy:
    """Return a fresh policy for an arm of the experiment."""
    if arm == ALWAYS_ON:
        return arm_policy(f"k{capabilities.max_depth}", config, capabilities)
    if arm == HEADROOM:
        return HeadroomSized(capabilities, truth.step_time)
    if arm in SHIELDS:
        return arm_policy("adaptive", config, capabilities)
    name, _, depths = arm.partition(":")
    if name == "plan":
        given = [int(depth) for depth in depths.split("-")]
        domains = [domain.name for domain in scenario.domains]
        return DomainDepths(capabilities, dict(zip(domains, given, strict=True)))
    return arm_policy(arm, config, capabilities, truth)


def fates_of(run: Run, from_s: float) -> RequestFates:
    """Return what became of the requests that arrived from ``from_s`` on and finished."""
    judged = run.finished & (run.arrival_s >= from_s)
    met = np.nan_to_num(met_targets(run), nan=-1.0)[judged]
    return RequestFates(
        run.request[judged].tolist(),
        run.domain_of[judged].tolist(),
        met.astype(np.int64).tolist(),
        np.nan_to_num(run.tpot_s[judged], nan=0.0).tolist(),
    )


def _scene(cell: SovereignCell) -> tuple[Scenario, float, float]:
    """Return a cell's scenario, when it ends, and from when on it counts."""
    if not cell.acceptance:
        scenario = Scenario.read(f"sovereign/neighbours_{cell.curve}")
        return (
            scenario,
            cell.length * (scenario.until_s or 0.0),
            cell.length * scenario.measure_from_s,
        )
    scenario = Scenario.read(f"sovereign/{cell.curve}")
    survival = scenario.domains[0].model_copy(
        update={"conditional": (cell.acceptance,) * scenario.engine.max_depth}
    )
    arrivals = scenario.arrivals.model_copy(
        update={"concurrency": requests_at(cell.curve, cell.headroom)}
    )
    until_s = cell.length * _SHORT_S[cell.curve]
    scenario = scenario.model_copy(update={"domains": (survival,), "arrivals": arrivals})
    return scenario, until_s, _WARM_SHARE * until_s


def _saturating(scenario: Scenario) -> int:
    if not isinstance(scenario.arrivals, ClosedArrivals):
        raise ValueError(f"arrivals must be closed, got {scenario.arrivals.kind!r}")
    return scenario.arrivals.concurrency


def _row(cell: SovereignCell, run: Run, from_s: float, requests: int) -> SovereignRow:
    steps = run.steps
    if steps is None:
        raise RuntimeError("a run must keep its steps, got none")
    late = steps.begun_s >= from_s
    decoded = int(steps.decode_requests[late].sum())
    nothing = RequestFates([], [], [], [])
    return SovereignRow(
        key=cell.key,
        cell=cell,
        requests=requests,
        tokens=int(steps.committed[late].sum() + steps.first_tokens[late].sum()),
        seconds=float(steps.duration_ms[late].sum() / 1e3),
        verified_per_request=float(steps.verified[late].sum()) / max(decoded, 1),
        fates=nothing if cell.acceptance else fates_of(run, from_s),
    )
