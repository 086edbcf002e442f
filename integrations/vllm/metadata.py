"""What a request says of itself: untrusted labels and targets, checked and capped."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from typing import Any

from acclimate.controller.config import SloConfig
from acclimate.controller.records import RequestInfo, Slo
from acclimate.controller.service import Problem, terms_of

MAX_LABEL_CHARS = 64
_LONGEST_MS = 3_600_000.0
_MOST_PRIORITY = 2**31 - 1
_TENANT, _DOMAIN, _CLASS = "acclimate_tenant", "acclimate_domain", "acclimate_slo_class"
_TTFT, _TPOT, _E2E = "acclimate_slo_ttft_ms", "acclimate_slo_tpot_ms", "acclimate_slo_e2e_ms"
_OPEN_TO_ALL = SloConfig()


class MetadataReader:
    """Reads `RequestInfo` from an engine's request, dropping and counting what is not usable.

    Clients send ``acclimate_domain``, ``acclimate_tenant``, ``acclimate_slo_class`` and
    ``acclimate_slo_ttft_ms``, ``…_tpot_ms``, ``…_e2e_ms`` as extra arguments of the sampling
    parameters. A client cannot name its trust domain: that comes from the configuration alone.

    Parameters
    ----------
    trust_domain
        Of every request of this engine.

    Attributes
    ----------
    problems
        How often something was refused or clamped, by reason.

    Examples
    --------
    >>> from types import SimpleNamespace as Object
    >>> sampling = Object(temperature=0.7, extra_args={
    ...     "acclimate_domain": "code", "acclimate_tenant": "x" * 65, "acclimate_slo_tpot_ms": 50})
    >>> request = Object(num_prompt_tokens=9, max_tokens=64, sampling_params=sampling,
    ...                  lora_request=None, priority=0, structured_output_request=None)
    >>> reader = MetadataReader()
    >>> info = reader.read(request, number=1, arrival_ns=0)
    >>> info.domain, info.tenant, info.slo.tpot_s, info.sampled, reader.rejected
    ('code', '', 0.05, True, 1)
    """

    def __init__(self, trust_domain: str = "") -> None:
        self.trust_domain = trust_domain
        self.problems: Counter[Problem] = Counter()

    @property
    def rejected(self) -> int:
        """Refused or clamped values so far, for whatever reason."""
        return self.problems.total()

    def read(
        self,
        request: Any,
        *,
        number: int,
        arrival_ns: int | None,
        service: SloConfig = _OPEN_TO_ALL,
    ) -> RequestInfo:
        """Return what is known of ``request``; never raises on a client's values.

        Parameters
        ----------
        request
            The engine's.
        number
            The loop's name for it.
        arrival_ns
            The loop's clock.
        service
            Classes, bounds and permissions in force.
        """
        sampling = getattr(request, "sampling_params", None)
        extra = getattr(sampling, "extra_args", None)
        if not isinstance(extra, dict):
            extra = {}
        tenant = self._label(extra, _TENANT)
        adapter = getattr(getattr(request, "lora_request", None), "lora_name", "")
        if not isinstance(adapter, str) or not adapter.isprintable():
            self.problems[Problem.UNPRINTABLE] += 1
            adapter = ""
        priority = int(getattr(request, "priority", 0) or 0)
        terms = terms_of(
            service,
            tenant=tenant,
            claimed=self._label(extra, _CLASS),
            own=Slo(
                ttft_s=self._seconds(extra, _TTFT, service.least_ttft_ms),
                tpot_s=self._seconds(extra, _TPOT, service.least_tpot_ms),
                e2e_s=self._seconds(extra, _E2E, service.least_e2e_ms),
            ),
            priority=priority,
            problems=self.problems,
        )
        return RequestInfo(
            request=number,
            prompt_tokens=request.num_prompt_tokens,
            max_tokens=request.max_tokens,
            trust_domain=self.trust_domain,
            tenant=tenant,
            adapter=adapter_label(adapter),
            domain=self._label(extra, _DOMAIN),
            priority=max(-_MOST_PRIORITY, min(priority, _MOST_PRIORITY)),
            sampled=is_sampled(request),
            grammar=getattr(request, "structured_output_request", None) is not None,
            arrival_ns=arrival_ns,
            slo=terms.slo,
            slo_class=terms.slo_class,
            importance=terms.importance,
        )

    def _label(self, extra: dict[str, Any], key: str) -> str:
        """Return a printable label of at most `MAX_LABEL_CHARS` characters, else an empty one."""
        value = extra.get(key, "")
        if not isinstance(value, str):
            problem = Problem.NOT_TEXT
        elif len(value) > MAX_LABEL_CHARS:
            problem = Problem.TOO_LONG
        elif not value.isprintable():
            problem = Problem.UNPRINTABLE
        else:
            return value
        self.problems[problem] += 1
        return ""

    def _seconds(self, extra: dict[str, Any], key: str, least_ms: float) -> float | None:
        """Return a target given in milliseconds, clamped; None where it is none."""
        value = extra.get(key)
        if value is None:
            return None
        milliseconds = _number(value)
        if isinstance(milliseconds, Problem):
            self.problems[milliseconds] += 1
            return None
        if milliseconds < least_ms:
            self.problems[Problem.TOO_SHORT] += 1
            milliseconds = least_ms
        elif milliseconds > _LONGEST_MS:
            self.problems[Problem.TOO_FAR] += 1
            milliseconds = _LONGEST_MS
        return milliseconds / 1e3


def adapter_label(name: str) -> str:
    """Return an adapter's name, a long one's beginning with a digest: two never share a label.

    Adapters are named by operators, often by a path, so that long names are no mistake.

    Examples
    --------
    >>> adapter_label("sql-v2"), len(adapter_label("/models/adapters/" * 9))
    ('sql-v2', 64)
    """
    if len(name) <= MAX_LABEL_CHARS:
        return name
    digest = hashlib.blake2b(name.encode(), digest_size=8).hexdigest()
    return f"{name[: MAX_LABEL_CHARS - len(digest) - 1]}~{digest}"


def _number(value: object) -> float | Problem:
    """Return a positive finite number, or why it is none. Headers and forms send text."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return Problem.NOT_A_NUMBER
    if isinstance(value, str) and len(value) > MAX_LABEL_CHARS:
        return Problem.TOO_LONG
    try:
        number = float(value)
    except ValueError:
        return Problem.NOT_A_NUMBER
    except OverflowError:
        return Problem.NOT_FINITE
    if not math.isfinite(number):
        return Problem.NOT_FINITE
    return number if number > 0.0 else Problem.NOT_POSITIVE


def is_sampled(request: Any) -> bool:
    """Return whether the request's tokens are drawn at a temperature above zero."""
    temperature = getattr(getattr(request, "sampling_params", None), "temperature", 0.0)
    return bool(temperature and temperature > 0)
