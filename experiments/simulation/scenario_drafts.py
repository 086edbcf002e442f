"""Sets up how drafts fare in a scenario: a law per domain, and those that it shifts to."""

from __future__ import annotations

from acclimate.experiments.simulation.acceptance import ConfidentDrafts, DrawnDrafts, Shift
from acclimate.experiments.simulation.regimes import Regime, spread_of, to_survival
from acclimate.experiments.simulation.scenario import DomainSection, Scenario, ShiftSection
from acclimate.experiments.workload import Workload


def scenario_drafts(scenario: Scenario, workload: Workload, seed: int) -> DrawnDrafts:
    """Return the source of a scenario's drafts, which draws with a seed of its own."""
    domains, shifts = scenario.domains, []
    regimes = [_regime(domain, domain) for domain in domains]
    for section in scenario.shifts:
        targets = []
        for index, domain in enumerate(domains):
            if section.domains is not None and domain.name not in section.domains:
                targets.append(-1)
                continue
            targets.append(len(regimes))
            regimes.append(_shifted(regimes[index], domain, section))
        shifts.append(
            Shift(
                at_s=section.at_s,
                regime_of=tuple(targets),
                over_s=section.over_s,
                for_s=section.for_s,
                every_s=section.every_s,
            )
        )
    tells = any(domain.confidence is not None for domain in domains)
    source = ConfidentDrafts if tells else DrawnDrafts
    return source(regimes, tuple(range(len(domains))), workload.domain_of, shifts=shifts, seed=seed)


def _regime(domain: DomainSection, law: DomainSection | ShiftSection) -> Regime:
    """Return the law whose acceptance ``law`` states, for the requests of a domain."""
    survival = law.survival or to_survival(law.conditional or ())
    spread = domain.request_spread
    if domain.request_concentration is not None:
        first = min(max(float(survival[0]), 0.01), 0.99)
        spread = spread_of(domain.request_concentration, first)
    meaning = domain.confidence
    return Regime.of_survival(
        survival,
        reach=law.reach if law.reach is not None else domain.reach,
        spread=spread,
        scatter=domain.token_scatter,
        a=0.0 if meaning is None else meaning.a,
        b=1.0 if meaning is None else meaning.b,
    )


def _shifted(base: Regime, domain: DomainSection, section: ShiftSection) -> Regime:
    if section.move_logits is not None or section.confidence is not None:
        moved = base.moved(section.move_logits or 0.0)
        meaning = section.confidence
        return moved if meaning is None else moved.recalibrated(meaning.a, meaning.b)
    return _regime(domain, section)
