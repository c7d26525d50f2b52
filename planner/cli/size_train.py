"""`planner size --train`: its options, and the tables it prints."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from planner.errors import Fault, InputError

if TYPE_CHECKING:
    from planner.sizing_training import TrainingAnswer

Command = TypeVar("Command", bound=Callable[..., Any])
SHOWN_LEVERS = 10
HEADS = ("GPUs", "need/GPU", "usable/GPU", "micro-batch")
OPTIONS = (
    click.option(
        "--train", help="Fine-tune instead of serving: full, lora or qlora. --context is then the sequence, --concurrency the micro-batch."
    ),
    click.option("--optimizer", help="With --train: adamw, adamw_bf16, adamw_8bit, paged_adamw_8bit, sgd, adafactor… Default: adamw."),
    click.option("--zero", "zero_stage", type=int, help="With --train: ZeRO stage 0 to 3 (FSDP is 3). Default: 3."),
    click.option("--checkpointing", help="With --train: none, selective or full. Default: full."),
    click.option("--lora-rank", type=int, help="With --train lora or qlora. Default: 16."),
    click.option("--lora-targets", help="With --train lora or qlora: q_v, attention or all_linear. Default: all_linear."),
    click.option("--offload", is_flag=True, default=False, help="With --train: gradients and optimizer in the host's memory."),
    click.option("--fused-loss", is_flag=True, default=False, help="With --train: the loss reads the logits in chunks."),
)
BESIDE_TRAIN = {
    "optimizer": "--optimizer", "zero_stage": "--zero", "checkpointing": "--checkpointing", "lora_rank": "--lora-rank",
    "lora_targets": "--lora-targets", "fused_loss": "--fused-loss", "offload": "--offload",
}
"""Under what name an option that says nothing without `--train` reaches the command, and the option."""


def train_options(command: Command) -> Command:
    """Add the options of fine-tuning to a command, which hands its keyword arguments to `train` or `refuse_without_train`."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def refuse_without_train(options: dict[str, Any]) -> None:
    """Refuse options of fine-tuning where nothing is trained."""
    faults = [
        Fault("", None, option, "belongs to fine-tuning", "add --train full, lora or qlora, or leave it out")
        for name, option in BESIDE_TRAIN.items() if options.get(name) not in (None, False)
    ]
    if faults:
        raise InputError(faults)


def refuse_with_train(serving: dict[str, Any]) -> None:
    """Refuse options of serving where a model is trained: each is `option: value`, set where the value is not None."""
    faults = [
        Fault("", None, option, "belongs to serving", "leave it out with --train")
        for option, value in serving.items() if value is not None and value is not False and value != ()
    ]
    if faults:
        raise InputError(faults)


def train(
    llm: str, weights: str | None, sequence_tok: int, micro_batch: int, gpu_id: str | None, count: int | None, margin_frac: float,
    overlay: Path | None, as_json: bool, options: dict[str, Any],
) -> None:
    """Answer `size --train` and print it. Exit code 1 where no placement holds a step."""
    from planner.catalog import load_catalog
    from planner.sizing_training import answer_training, ask_training

    if gpu_id is None and count:
        raise InputError([Fault("", None, "--count", "a count needs an accelerator", "name one with --gpu")])
    if options["train"] == "full":
        faults = [
            Fault("", None, option, "full fine-tuning has no adapters", "leave it out, or take --train lora or qlora")
            for name, option in (("lora_rank", "--lora-rank"), ("lora_targets", "--lora-targets")) if options[name] is not None
        ]
        if faults:
            raise InputError(faults)
    catalog = load_catalog(overlay)
    rank = options["lora_rank"]
    question = ask_training(
        catalog, llm, options["train"], sequence_tok, micro_batch, weights=weights, optimizer=options["optimizer"] or "adamw",
        zero_stage=options["zero_stage"], checkpointing=options["checkpointing"] or "full", rank=16 if rank is None else rank,
        targets=options["lora_targets"] or "all_linear", fused_loss=options["fused_loss"], offload=options["offload"],
        margin_frac=margin_frac,
    )
    found = answer_training(catalog, question, gpu_id, count)
    if as_json:
        click.echo(json.dumps(found.as_json(), indent=2, ensure_ascii=False))
    else:
        show(found)
    if found.reason_code is not None:
        raise click.exceptions.Exit(1)


def show(found: TrainingAnswer) -> None:
    """Print the answer: terms as bars, placements, levers, warnings."""
    from planner.cli.page import Page
    from planner.cli.size_table import show_terms

    page = Page()
    page.text(found.headline, bold=True)
    page.text(found.sum_line)
    page.line("")
    show_terms(page, found.term_rows)
    for group in found.place_groups:
        page.line("")
        page.places(group, HEADS)
    short = next((p for p in found.placements if not p.fits), None) if found.gpu_is_named else None
    if short is not None:
        page.line("")
        page.text(f"{short.gpu_count} x {short.gpu.id} {short.reason}")
        for lever in short.levers[:SHOWN_LEVERS]:
            page.text(f"  {lever}")
    page.line("")
    for warning in found.warnings:
        page.text(f"warning ({warning.name}): {warning.text}")
