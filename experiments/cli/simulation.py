"""Commands on simulated engines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from acclimate.experiments.cli.app import Json, app
from acclimate.experiments.cli.lists import counts


@app.command(
    epilog="Examples: [bold]acclimate simulate abrupt_drop[/bold], "
    "[bold]acclimate simulate --latency mine.csv --survival .68,.39,.20 --batch 1,16,64[/bold]"
)
def simulate(
    scenario: Annotated[
        str | None, typer.Argument(help="A TOML file, or a name that --list shows.")
    ] = None,
    list_scenarios: Annotated[
        bool, typer.Option("--list", help="Show the scenarios and exit.")
    ] = False,
    latency: Annotated[
        Path | None,
        typer.Option(
            "--latency",
            metavar="FILE",
            help="Your own step times, CSV: batch, K, ms; optional context, prefill. Any set of "
            "batches and K; cliffs stay.",
        ),
    ] = None,
    survival: Annotated[
        list[str] | None,
        typer.Option(
            "--survival",
            metavar="P,P,…",
            help="P(the first i drafts are all accepted), i = 1, 2, …: as vLLM's counters and most "
            "tables have it. Its length is the engine's depth. Repeat as DOMAIN=P,P,… for more.",
        ),
    ] = None,
    conditional: Annotated[
        list[str] | None,
        typer.Option(
            "--conditional", metavar="P,P,…", help="Or P(draft i accepted, given those before it)."
        ),
    ] = None,
    batch: Annotated[
        str | None, typer.Option("--batch", help="Requests at all times, several by comma.")
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            metavar="NAME",
            help="kN, adaptive, oracle, a peer's name or MODULE:FACTORY; several by comma or "
            "repeated. k0 always runs.",
        ),
    ] = None,
    drafter: Annotated[
        str,
        typer.Option("--drafter", help="model: drafts as asked; free: always at full depth."),
    ] = "model",
    uniform: Annotated[
        bool, typer.Option("--uniform", help="All requests of a step verify alike.")
    ] = False,
    draft_share: Annotated[
        float,
        typer.Option(
            "--draft-share", min=0, max=1, help="Share of T(K) - T(0) that pays for drafting."
        ),
    ] = 0.0,
    prompt_tokens: Annotated[
        int, typer.Option("--prompt-tokens", min=1, help="Prompt length, with --latency.")
    ] = 1,
    output_tokens: Annotated[
        int, typer.Option("--output-tokens", min=2, help="Mean answer length, with --latency.")
    ] = 200,
    requests: Annotated[
        int | None, typer.Option("--requests", min=1, help="Per batch and seed, with --latency.")
    ] = None,
    noise: Annotated[
        float, typer.Option("--noise", min=0, help="Relative noise of steps, with --latency.")
    ] = 0.0,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Runs per policy.")] = 3,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="First seed; default: the scenario's.")
    ] = None,
    json: Json = None,
) -> None:
    """Run policies side by side on a simulated engine: a scenario, or your own tables."""
    from acclimate.experiments.own_tables import DEFAULT_BATCHES, OwnTables
    from acclimate.experiments.simulate_command import run_simulate, show_scenarios

    if list_scenarios:
        show_scenarios()
        return
    batches = counts(batch, "--batch") if batch else []
    own = None
    if latency is not None:
        if drafter not in ("model", "free"):
            raise typer.BadParameter(
                f"must be model or free, got {drafter!r}", param_hint="--drafter"
            )
        own = OwnTables(
            latency=latency,
            survival=survival or (),
            conditional=conditional or (),
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            requests=requests,
            noise=noise,
            free_drafts=drafter == "free",
            uniform_only=uniform,
            draft_share=draft_share,
            batches=batches or DEFAULT_BATCHES,
        )
    elif survival or conditional:
        raise typer.BadParameter("must come with --latency FILE", param_hint="--survival")
    run_simulate(
        scenario,
        own,
        policies=[name.strip() for text in policy or () for name in text.split(",")],
        concurrency=batches,
        seeds=seeds,
        seed=seed,
        json=json,
    )
