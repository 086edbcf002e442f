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
    tpot_s, ttft_s
        Targets; NaN where a request has none, None where no request has any.
    tenant, tenant_of
        Names of tenants, and an index into them; -1 or None for no tenant.

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
    tenant: tuple[str, ...] = ()
    tenant_of: IntArray | None = None

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
        label = int(self.label_of[row])
        tenant = -1 if self.tenant_of is None else int(self.tenant_of[row])
        slo = None
        if self.tpot_s is not None or self.ttft_s is not None:
            slo = Slo(ttft_s=_target(self.ttft_s, row), tpot_s=_target(self.tpot_s, row))
        return RequestInfo(
            request=row + 1,
            prompt_tokens=int(self.prompt_tokens[row]),
            max_tokens=int(self.limit_tokens[row]),
            tenant=self.tenant[tenant] if tenant >= 0 else "",
            domain=self.domain[label] if label >= 0 else "",
            sampled=self.sampled is not None and bool(self.sampled[row]),
            arrival_ns=arrival_ns,
            slo=slo,
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


def poisson_arrivals(requests: int, rate_per_s: float, rng: np.random.Generator) -> FloatArray:
    """Return the times of ``requests`` arrivals of a Poisson process, in seconds.

    Raises
    ------
    ValueError
        The rate is not above 0.

    Examples
    --------
    >>> times_s = poisson_arrivals(1000, 4.0, np.random.default_rng(0))
    >>> bool(230 < times_s[-1] < 270)
    True
    """
    if not rate_per_s > 0:
        raise ValueError(f"rate_per_s must be > 0, got {rate_per_s}")
    return np.cumsum(rng.exponential(1.0 / rate_per_s, size=requests))


def burst_arrivals(
    requests: int,
    rate_per_s: float,
    rng: np.random.Generator,
    *,
    burst_factor: float,
    every_s: float,
    burst_s: float,
) -> FloatArray:
    """Return arrivals of a Poisson process whose rate rises by a factor in regular bursts.

    Parameters
    ----------
    rate_per_s
        Between bursts.
    burst_factor
        By which the rate rises in a burst.
    every_s, burst_s
        A burst begins every ``every_s`` seconds, the first at ``every_s - burst_s``, and lasts
        ``burst_s``.

    Raises
    ------
    ValueError
        A rate is not above 0, or a burst is longer than its period.

    Examples
    --------
    >>> times_s = burst_arrivals(
    ...     1000, 1.0, np.random.default_rng(0), burst_factor=10.0, every_s=10.0, burst_s=1.0)
    >>> bool((times_s % 10.0 >= 9.0).mean() > 0.4)
    True
    """
    if not (rate_per_s > 0 and burst_factor > 0):
        raise ValueError(f"rates must be > 0, got {rate_per_s} and factor {burst_factor}")
    if not 0 < burst_s < every_s:
        raise ValueError(f"burst_s must be in (0, every_s {every_s}), got {burst_s}")
    # Arrivals of rate 1 on a clock that runs by the cumulated rate, which is piecewise linear.
    load = np.cumsum(rng.exponential(size=requests))
    quiet_s = every_s - burst_s
    quiet_load = rate_per_s * quiet_s
    period_load = quiet_load + rate_per_s * burst_factor * burst_s
    periods, inside = np.divmod(load, period_load)
    calm = inside < quiet_load
    within_s = np.where(
        calm,
        inside / rate_per_s,
        quiet_s + (inside - quiet_load) / (rate_per_s * burst_factor),
    )
    times_s: FloatArray = periods * every_s + within_s
    return times_s


def _lengths(value: int | IntArray, n: int) -> IntArray:
    if isinstance(value, np.ndarray):
        return np.ascontiguousarray(value, dtype=np.int64)
    return np.full(n, value, dtype=np.int64)


def _target(targets: FloatArray | None, row: int) -> float | None:
    if targets is None or not targets[row] > 0:
        return None
    return float(targets[row])
