"""Who used the engine how much, and who slowed whom: an account per tenant, in a bounded table."""

from __future__ import annotations

from typing import Any

import numpy as np

from acclimate.controller.records import FloatArray, IntArray, RequestInfo, StepOutcome
from acclimate.controller.reports import ImposedDelay, TenantReport
from acclimate.predictors.compiled import compiled
from acclimate.predictors.numerics import check_range, load_arrays, save_arrays, with_rows

_OTHER = "other"
_MAX_DELAYS = 16  # pairs reported
_REQUESTS, _DRAFTED, _VERIFIED, _ACCEPTED, _COMMITTED, _WORK = range(6)
_ARRAYS = ("totals", "imposed_ms", "served", "alive", "tenant_of", "unpaid")


class TenantAccounts:
    """Tokens, work and delay per (trust domain, tenant).

    *Work* is what the target computed for a tenant: its prompts, one position per request and step,
    and every verified draft, accepted or not. *Delay*: a step that takes e ms longer than it would
    have with nothing verified delays each of its n requests by e. Every request answers for its
    share of the step's verified drafts, towards the n - 1 others: what it does to itself is its own
    affair. Shares sum to e·(n - 1), of which some stays within a tenant.

    *Fairness* is by work, not by tokens committed: a tenant whose drafts are refused has used the
    engine all the same. A tenant that comes back from a pause starts at the least served of those
    with requests alive, so that idle time cannot be saved up (the virtual counter of fair queueing).

    Parameters
    ----------
    capacity
        Tenants kept apart, with one account for all others. When there is no room, the idle tenant
        with the least work gives its account up to the others: a flood of names cannot drive out
        one that has requests.

    Notes
    -----
    Prompts that wait are slowed too; a step's outcome does not name them, and they are left out.

    Examples
    --------
    >>> accounts = TenantAccounts(capacity=3)
    >>> for row, tenant in ((1, "a"), (2, "b"), (3, "b")):
    ...     number = accounts.admit(row, RequestInfo(
    ...         request=row, prompt_tokens=10, max_tokens=9, tenant=tenant))
    >>> rows, ones = np.array([1, 2, 3]), np.array([1, 1, 1])
    >>> accounts.add(rows, committed=ones, proposed=ones * 4, verified=np.array([3, 1, 0]),
    ...              accepted=ones * 0, extra_ms=4.0)
    >>> [(d.by, d.on, d.milliseconds) for d in accounts.delays()]
    [('a', 'b', 6.0), ('b', 'a', 1.0)]
    """

    def __init__(self, capacity: int = 16) -> None:
        if capacity < 2:
            raise ValueError(f"capacity must be >= 2, got {capacity}")
        self.capacity = capacity
        self.totals = np.zeros((capacity, 6), dtype=np.int64)
        self.imposed_ms = np.zeros((capacity, capacity))  # by row, on column
        self.served = np.zeros(capacity)  # work, lifted when a tenant comes back
        self.alive = np.zeros(capacity, dtype=np.int64)
        self.tenant_of = np.zeros(0, dtype=np.int64)  # by row, -1 for one that is not in use
        self.unpaid = np.zeros(0, dtype=np.int64)  # prompt tokens, until the request decodes
        self.unattributed_ms = 0.0
        self._numbers: dict[tuple[str, str], int] = {}
        self.reserve(64)

    def reserve(self, n_requests: int) -> None:
        """Make room for request rows ``0 … n_requests - 1``."""
        self.tenant_of = with_rows(self.tenant_of, n_requests, -1)
        self.unpaid = with_rows(self.unpaid, n_requests)

    def admit(self, row: int, request: RequestInfo) -> int:
        """Open a request in its tenant's account; return the account's number, 0 for others.

        Raises
        ------
        ValueError
            The row is 0, which stands for unknown requests.
        """
        if row < 1:
            raise ValueError(f"row must be >= 1, got {row}")
        self.reserve(row + 1)
        tenant = self._account((request.trust_domain, request.tenant))
        if not self.alive[tenant] and self.alive.any():
            least = self.served[self.alive > 0].min()
            self.served[tenant] = max(self.served[tenant], least)
        self.alive[tenant] += 1
        self.totals[tenant, _REQUESTS] += 1
        self.tenant_of[row] = tenant
        self.unpaid[row] = request.prompt_tokens
        return tenant

    def forget(self, row: int) -> None:
        """Close a request; its tenant's account stays."""
        tenant = self.tenant_of[row]
        if tenant >= 0:
            self.alive[tenant] -= 1
        self.tenant_of[row], self.unpaid[row] = -1, 0

    def observe(self, outcome: StepOutcome, rows: IntArray, *, extra_ms: float | None) -> None:
        """Add a step.

        Parameters
        ----------
        outcome
            What came of it.
        rows
            Shape (n,): rows of ``outcome.requests``, 0 where one is gone.
        extra_ms
            How much longer it took than it would have with nothing verified; None if unknown.
        """
        drafts, n = outcome.drafts, outcome.requests.shape[0]
        self.add(
            rows,
            committed=outcome.committed,
            proposed=drafts.proposed[:n],
            verified=drafts.verified[:n],
            accepted=drafts.accepted[:n],
            extra_ms=extra_ms or 0.0,
        )

    def add(
        self,
        rows: IntArray,
        *,
        committed: IntArray,
        proposed: IntArray,
        verified: IntArray,
        accepted: IntArray,
        extra_ms: float,
    ) -> None:
        """Add a step's decode requests, all of shape (n,); see `observe`.

        A request that committed nothing had no part in the step. Less than no delay counts as none.
        Delay without any verified draft has no author: it is summed in ``unattributed_ms``.
        """
        self.unattributed_ms += _add(
            self.totals,
            self.imposed_ms,
            self.served,
            self.tenant_of,
            self.unpaid,
            rows,
            committed,
            proposed,
            verified,
            accepted,
            max(extra_ms, 0.0) if np.isfinite(extra_ms) else 0.0,
        )

    def ahead_tokens(self) -> FloatArray:
        """Return by how much work each account leads the least served alive, shape (capacity,).

        0 for an account without requests.
        """
        alive = self.alive > 0
        if not alive.any():
            return np.zeros(self.capacity)
        ahead: FloatArray = np.where(alive, self.served - self.served[alive].min(), 0.0)
        return ahead

    def delays(self) -> tuple[ImposedDelay, ...]:
        """Return the largest delays of one tenant by another, largest first."""
        labels = self._labels()
        pairs = [
            (-float(self.imposed_ms[by, on]), by, on)
            for by, on in np.argwhere(self.imposed_ms > 0.0).tolist()
            if by != on
        ]
        return tuple(
            ImposedDelay(by=labels[by], on=labels[on], milliseconds=-delay)
            for delay, by, on in sorted(pairs)[:_MAX_DELAYS]
        )

    def reports(self) -> tuple[TenantReport, ...]:
        """Return every account that was ever used; the others' come first."""
        ahead = self.ahead_tokens()
        own_ms = self.imposed_ms.diagonal()
        imposed, suffered = self.imposed_ms.sum(axis=1) - own_ms, self.imposed_ms.sum(0) - own_ms
        reports = []
        for tenant, label in sorted(self._labels().items()):
            requests, drafted, verified, accepted, committed, work = self.totals[tenant].tolist()
            if not requests and not work:
                continue
            reports.append(
                TenantReport(
                    label=label,
                    alive=int(self.alive[tenant]),
                    requests=requests,
                    drafted_tokens=drafted,
                    verified_tokens=verified,
                    accepted_tokens=accepted,
                    committed_tokens=committed,
                    work_tokens=work,
                    imposed_ms=max(float(imposed[tenant]), 0.0),
                    suffered_ms=max(float(suffered[tenant]), 0.0),
                    ahead_tokens=float(ahead[tenant]),
                )
            )
        return tuple(reports)

    def state(self) -> dict[str, Any]:
        """Return all accounts as plain data."""
        return {
            **save_arrays(self, _ARRAYS),
            "unattributed_ms": self.unattributed_ms,
            "numbers": [[number, *key] for key, number in self._numbers.items()],
        }

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`.

        Raises
        ------
        ValueError
            The state has another capacity.
        """
        check_range("tenant_of", state["tenant_of"], -1, self.capacity - 1)
        load_arrays(self, _ARRAYS, state, growing=("tenant_of", "unpaid"))
        self.unattributed_ms = float(state["unattributed_ms"])
        self._numbers = {(row[1], row[2]): int(row[0]) for row in state["numbers"]}

    def _labels(self) -> dict[int, str]:
        """Return a name for every account: the tenant, behind its trust domain if it has one."""
        names = {
            n: f"{trust}/{name}" if trust else name for (trust, name), n in self._numbers.items()
        }
        return {0: _OTHER, **names}

    def _account(self, key: tuple[str, str]) -> int:
        number = self._numbers.get(key)
        if number is not None:
            return number
        if len(self._numbers) < self.capacity - 1:
            number = len(self._numbers) + 1
        else:
            idle = [(self.totals[n, _WORK], n, k) for k, n in self._numbers.items()
                    if not self.alive[n]]  # fmt: skip
            if not idle:
                return 0
            _, number, old = min(idle)
            self._give_up(number)
            del self._numbers[old]
        self._numbers[key] = number
        return number

    def _give_up(self, number: int) -> None:
        """Move an account's sums to the others'."""
        self.totals[0] += self.totals[number]
        self.imposed_ms[0] += self.imposed_ms[number]
        self.imposed_ms[:, 0] += self.imposed_ms[:, number]
        self.totals[number] = 0
        self.imposed_ms[number] = 0.0
        self.imposed_ms[:, number] = 0.0
        self.served[number] = 0.0


@compiled(
    "f8(i8[:,::1], f8[:,::1], f8[::1], i8[::1], i8[::1],"
    "i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], f8)"
)
def _add(
    totals: IntArray,
    imposed_ms: FloatArray,
    served: FloatArray,
    tenant_of: IntArray,
    unpaid: IntArray,
    rows: IntArray,
    committed: IntArray,
    proposed: IntArray,
    verified: IntArray,
    accepted: IntArray,
    extra_ms: float,
) -> float:
    """Add a step, and return the delay that has no author."""
    n_tenants = totals.shape[0]
    drafts_of, requests_of = np.zeros(n_tenants), np.zeros(n_tenants)
    drafts, requests = 0, 0
    for r in range(rows.shape[0]):
        row = rows[r] if 0 < rows[r] < tenant_of.shape[0] else 0
        tenant = max(tenant_of[row], 0)
        totals[tenant, _COMMITTED] += committed[r]
        totals[tenant, _DRAFTED] += proposed[r]
        totals[tenant, _VERIFIED] += verified[r]
        totals[tenant, _ACCEPTED] += accepted[r]
        if committed[r] == 0:
            continue
        work = 1 + verified[r] + unpaid[row]
        unpaid[row] = 0
        totals[tenant, _WORK] += work
        served[tenant] += work
        drafts_of[tenant] += verified[r]
        requests_of[tenant] += 1.0
        drafts += verified[r]
        requests += 1
    if drafts == 0:
        return extra_ms * max(requests - 1, 0)
    if extra_ms > 0.0:
        for by in range(n_tenants):
            if drafts_of[by] == 0.0:
                continue
            share_ms = extra_ms * drafts_of[by] / drafts
            for on in range(n_tenants):
                others = requests_of[on] - 1.0 if by == on else requests_of[on]
                imposed_ms[by, on] += share_ms * others
    return 0.0
