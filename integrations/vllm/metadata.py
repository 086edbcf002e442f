"""What a request says of itself: untrusted labels and targets, checked and capped."""

from __future__ import annotations

import math
from typing import Any

from acclimate.controller.records import RequestInfo, Slo

MAX_LABEL_CHARS = 64
_SHORTEST_S, _LONGEST_S = 0.001, 3600.0
_PREFIX = "acclimate_"


class MetadataReader:
    """Reads `RequestInfo` from an engine's request, dropping and counting what is not usable.

    Clients send ``acclimate_domain``, ``acclimate_tenant`` and ``acclimate_slo_ttft_ms``,
    ``…_tpot_ms``, ``…_e2e_ms`` as extra arguments of the sampling parameters. A client cannot name
    its trust domain: that comes from the configuration alone.

    Parameters
    ----------
    trust_domain
        Of every request of this engine.

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
        self.rejected = 0

    def read(self, request: Any, *, number: int, arrival_ns: int | None) -> RequestInfo:
        """Return what is known of ``request``; never raises on a client's values."""
        sampling = getattr(request, "sampling_params", None)
        extra = getattr(sampling, "extra_args", None)
        if not isinstance(extra, dict):
            extra = {}
        ttft_s = self._seconds(extra, "slo_ttft_ms")
        tpot_s = self._seconds(extra, "slo_tpot_ms")
        e2e_s = self._seconds(extra, "slo_e2e_ms")
        has_slo = ttft_s is not None or tpot_s is not None or e2e_s is not None
        adapter = getattr(getattr(request, "lora_request", None), "lora_name", "")
        return RequestInfo(
            request=number,
            prompt_tokens=request.num_prompt_tokens,
            max_tokens=request.max_tokens,
            trust_domain=self.trust_domain,
            tenant=self._label(extra, "tenant"),
            adapter=adapter[:MAX_LABEL_CHARS] if isinstance(adapter, str) else "",
            domain=self._label(extra, "domain"),
            priority=int(getattr(request, "priority", 0) or 0),
            sampled=is_sampled(request),
            grammar=getattr(request, "structured_output_request", None) is not None,
            arrival_ns=arrival_ns,
            slo=Slo(ttft_s=ttft_s, tpot_s=tpot_s, e2e_s=e2e_s) if has_slo else None,
        )

    def _label(self, extra: dict[str, Any], key: str) -> str:
        """Return a printable label of at most `MAX_LABEL_CHARS` characters, else an empty one."""
        value = extra.get(_PREFIX + key, "")
        if isinstance(value, str) and len(value) <= MAX_LABEL_CHARS and value.isprintable():
            return value
        self.rejected += 1
        return ""

    def _seconds(self, extra: dict[str, Any], key: str) -> float | None:
        """Return a target given in milliseconds, clamped to between 1 ms and one hour."""
        value = extra.get(_PREFIX + key)
        if value is None:
            return None
        try:
            # Servers turn booleans into 0 and 1, and form values into text.
            seconds = float(value) / 1e3 if isinstance(value, (int, float, str)) else math.nan
        except (ValueError, OverflowError):
            seconds = math.nan
        if not math.isfinite(seconds):
            self.rejected += 1
            return None
        return min(max(seconds, _SHORTEST_S), _LONGEST_S)


def is_sampled(request: Any) -> bool:
    """Return whether the request's tokens are drawn at a temperature above zero."""
    temperature = getattr(getattr(request, "sampling_params", None), "temperature", 0.0)
    return bool(temperature and temperature > 0)
