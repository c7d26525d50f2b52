"""Options of `planner size` about what is kept beside the model, how it is split and what is set on the engine."""

from __future__ import annotations

from typing import Any

import click

from planner.errors import Fault, InputError

COUNT = click.IntRange(1, 100_000)
TOKENS = click.IntRange(1, 10**9)


def extras_options(command: Any) -> Any:
    """Add the options to a command; they reach it by name and go to `extras_of`."""
    options = (
        click.option("--adapters", type=COUNT, help="LoRA adapters held on the GPUs at once."),
        click.option("--adapter-rank", type=click.IntRange(1, 4096), help="Rank of an adapter slot. Default: 16."),
        click.option(
            "--adapter-targets", type=click.Choice(["attention", "all", "experts"]), help="Matrices with adapters; experts: routed ones."
        ),
        click.option("--draft-llm", help="A smaller model that guesses ahead (speculative decoding): id or file."),
        click.option("--draft-weights", help="Its weight format. Default: the one it is published in."),
        click.option("--prefix-pool", "prefix_pool_tok", type=TOKENS, help="Tokens of shared prefixes kept beside the sessions."),
        click.option("--images", "image_count", type=COUNT, help="Images in one session, on top of its context."),
        click.option("--image-tok", type=TOKENS, help="Tokens that one image takes. Default: the model's own number."),
        click.option("--quantize-at-load", is_flag=True, help="The weights come in 16 bit and are quantised on the GPUs."),
        click.option("--dp", type=click.IntRange(1, 1024), help="Ranks of data-parallel attention; GPUs are tp x pp x dp."),
        click.option("--ep", "experts_are_whole", is_flag=True, help="Expert parallelism: GPUs divide experts by number, not by width."),
        click.option(
            "--whole-tower", "tower_is_whole", is_flag=True, help="Every rank keeps the vision tower whole (--mm-encoder-tp-mode data)."
        ),
        click.option("--max-batched-tok", type=TOKENS, help="Tokens of one step, where you set the engine's limit."),
        click.option("--max-sequences", type=COUNT, help="Sequences at once, where you set the engine's limit."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def option_of(name: str) -> str:
    """Return the option whose value reaches the command under `name`."""
    named = {"prefix_pool_tok": "--prefix-pool", "image_count": "--images", "experts_are_whole": "--ep", "tower_is_whole": "--whole-tower"}
    return named.get(name, "--" + name.replace("_", "-"))


def named_extras(given: dict[str, Any]) -> dict[str, Any]:
    """Return the extras that were given, under the options' names: what fine-tuning refuses."""
    return {option_of(name): value or None for name, value in given.items()}


def extras_of(catalog: Any, given: dict[str, Any]) -> Any:
    """Return the `Extras` that the options describe. Options without what they belong to, and unknown names, are told at once."""
    from planner.physics.extras import Extras

    faults: list[Fault] = []
    for name, needs in (
        ("adapter_rank", "adapters"), ("adapter_targets", "adapters"), ("draft_weights", "draft_llm"), ("image_tok", "image_count"),
    ):
        if given[name] is not None and given[needs] is None:
            other = option_of(needs)
            faults.append(Fault("", None, option_of(name), f"says nothing without {other}", f"add {other}"))
    draft = None
    if given["draft_llm"] is not None:
        try:
            llm = catalog.llm(given["draft_llm"])
            draft = (llm, catalog.weight_format(given["draft_weights"] or llm.native_weights))
            if llm.is_encoder:
                faults.append(Fault("", None, "--draft-llm", f"{llm.id} is an encoder: it writes no tokens", "name a model that does"))
        except InputError as error:
            faults += [Fault(f.file, f.line, f.place if f.file else "--draft-llm", f.what, f.cure) for f in error.faults]
    if faults:
        raise InputError(faults)
    return Extras(
        adapter_count=given["adapters"] or 0, adapter_rank=given["adapter_rank"] or 16,
        adapter_targets=given["adapter_targets"] or "all", draft=draft, prefix_pool_tok=given["prefix_pool_tok"] or 0,
        image_count=given["image_count"] or 0, image_tok=given["image_tok"] or 0,
        loads_in=catalog.weight_format("bf16") if given["quantize_at_load"] else None, dp=given["dp"] or 1,
        experts_are_whole=given["experts_are_whole"], tower_is_whole=given["tower_is_whole"],
        max_batched_tok=given["max_batched_tok"], max_sequence_count=given["max_sequences"],
    )
