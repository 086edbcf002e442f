"""What is sent to an engine: requests in order of arrival, as arrays."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from acclimate.controller.records import FloatArray, IntArray, RequestInfo, Slo

BoolArray = npt.NDArray[np.bool_]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Requests in order of arrival; every array has shape (n,).

    Parameters
    ----------
    arrival_s
        Seconds since the start, ascending. In a closed loop nobody reads them: a request is sent
        when another has finished.
    prompt_tokens, output_tokens
        Lengths, at least 1.
    domain
        Names of the traffic classes.
    domain_of
        Index into ``domain``: where the request really comes from.
    label_of
        Index into ``domain``: what the client declares; -1 for nothing.
    max_tokens
        What the client allows, at least ``output_tokens``; None: exactly these.
    sampled
        Whether the request's tokens are drawn at a temperature; None: none are.
    tpot_s, ttft_s, e2e_s
        Targets; NaN where a request has none, None where no request has any.
    slo_class
        Per domain, the class of service that its clients claim; empty: none do.
    tenant, tenant_of
        Names of tenants, and an index into them; -1 or None for no tenant.
    trust_domain, trust_of
        The same for trust domains: where a request may be served, and with whom.

    Raises
    ------
    ValueError
        Arrays differ in length, arrivals are not ascending, or a length is below 1.

    Examples
    --------
    >>> work = Workload.closed(2, prompt_tokens=10, output_tokens=5)
    >>> len(work), work.domain, work.tokens
    (2, ('default',), 10)
    """

    arrival_s: FloatArray
    prompt_tokens: IntArray
    output_tokens: IntArray
    domain: tuple[str, ...]
    domain_of: IntArray
    label_of: IntArray
    max_tokens: IntArray | None = None
    sampled: BoolArray | None = None
    tpot_s: FloatArray | None = None
    ttft_s: FloatArray | None = None
    e2e_s: FloatArray | None = None
    slo_class: tuple[str, ...] = ()
    tenant: tuple[str, ...] = ()
    tenant_of: IntArray | None = None
    trust_domain: tuple[str, ...] = ()
    trust_of: IntArray | None = None

    def __post_init__(self) -> None:
        n = self.arrival_s.shape[0]
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, np.ndarray) and value.shape != (n,):
                raise ValueError(f"{field.name} must have shape ({n},), got {value.shape}")
        if n and (not np.isfinite(self.arrival_s).all() or (np.diff(self.arrival_s) < 0).any()):
            raise ValueError("arrival_s must be finite and ascending, got disorder")
        if n and self.arrival_s[0] < 0:
            raise ValueError(f"arrival_s must be >= 0, got {self.arrival_s[0]}")
        for name in ("prompt_tokens", "output_tokens"):
            lengths = getattr(self, name)
            if n and lengths.min() < 1:
                raise ValueError(f"{name} must be >= 1, got {lengths.min()}")
        if self.max_tokens is not None and (self.max_tokens < self.output_tokens).any():
            raise ValueError("max_tokens must be at least output_tokens, got fewer")
        for name, least in (("domain_of", 0), ("label_of", -1)):
            index = getattr(self, name)
            if n and not least <= index.min() <= index.max() < len(self.domain):
                raise ValueError(
                    f"{name} must be in [{least}, {len(self.domain) - 1}], "
                    f"got {index.min()} to {index.max()}"
                )

    def __len__(self) -> int:
        return int(self.arrival_s.shape[0])

    @property
    def tokens(self) -> int:
        """Output tokens of all requests."""
        return int(self.output_tokens.sum())

    @property
    def limit_tokens(self) -> IntArray:
        """Output tokens that each request may write."""
        return self.output_tokens if self.max_tokens is None else self.max_tokens

    def request_info(self, row: int, arrival_ns: int) -> RequestInfo:
        """Return what a control loop is told of a request; its number is ``row + 1``."""
        label, domain = int(self.label_of[row]), int(self.domain_of[row])
        targets = [_target(each, row) for each in (self.ttft_s, self.tpot_s, self.e2e_s)]
        slo = None
        if any(target is not None for target in targets):
            slo = Slo(ttft_s=targets[0], tpot_s=targets[1], e2e_s=targets[2])
        return RequestInfo(
            request=row + 1,
            prompt_tokens=int(self.prompt_tokens[row]),
            max_tokens=int(self.limit_tokens[row]),
            trust_domain=_name(self.trust_domain, self.trust_of, row),
            tenant=_name(self.tenant, self.tenant_of, row),
            domain=self.domain[label] if label >= 0 else "",
            sampled=self.sampled is not None and bool(self.sampled[row]),
            arrival_ns=arrival_ns,
            slo=slo,
            slo_class=self.slo_class[domain] if self.slo_class else "",
        )

    @classmethod
    def closed(
        cls,
        requests: int,
        *,
        prompt_tokens: int | IntArray,
        output_tokens: int | IntArray,
        domain: Sequence[str] = ("default",),
        domain_of: IntArray | None = None,
    ) -> Workload:
        """Return requests without arrival times, domains in turn unless they are given."""
        return cls.open(
            np.zeros(requests),
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            domain=domain,
            domain_of=domain_of,
        )

    @classmethod
    def open(
        cls,
        arrival_s: FloatArray,
        *,
        prompt_tokens: int | IntArray,
        output_tokens: int | IntArray,
        domain: Sequence[str] = ("default",),
        domain_of: IntArray | None = None,
    ) -> Workload:
        """Return requests that arrive at given times, domains in turn unless they are given."""
        n = arrival_s.shape[0]
        if domain_of is None:
            domain_of = np.arange(n, dtype=np.int64) % len(domain)
        return cls(
            arrival_s=np.ascontiguousarray(arrival_s, dtype=np.float64),
            prompt_tokens=_lengths(prompt_tokens, n),
            output_tokens=_lengths(output_tokens, n),
            domain=tuple(domain),
            domain_of=domain_of,
            label_of=domain_of,
        )

    def times(self, count: int) -> Workload:
        """Return this workload ``count`` times in a row, each after the one before.

        Examples
        --------
        >>> work = Workload.open(np.array([1.0, 3.0]), prompt_tokens=1, output_tokens=1)
        >>> work.times(2).arrival_s.tolist()
        [1.0, 3.0, 4.0, 6.0]
        """
        period_s = float(self.arrival_s[-1]) if len(self) else 0.0
        later = np.repeat(np.arange(count) * period_s, len(self))
        arrays: dict[str, Any] = {
            field.name: np.tile(value, count)
            for field in dataclasses.fields(self)
            if isinstance(value := getattr(self, field.name), np.ndarray)
        }
        arrays["arrival_s"] = arrays["arrival_s"] + later
        return dataclasses.replace(self, **arrays)


def _lengths(value: int | IntArray, n: int) -> IntArray:
    if isinstance(value, np.ndarray):
        return np.ascontiguousarray(value, dtype=np.int64)
    return np.full(n, value, dtype=np.int64)


def _name(names: tuple[str, ...], name_of: IntArray | None, row: int) -> str:
    index = -1 if name_of is None else int(name_of[row])
    return names[index] if index >= 0 else ""


def _target(targets: FloatArray | None, row: int) -> float | None:
    if targets is None or not targets[row] > 0:
        return None
    return float(targets[row])
