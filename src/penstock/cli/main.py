"""The `penstock` command line: its commands, and the handling of their errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from penstock import __version__
from penstock.cli.commands.advise import advise_command
from penstock.cli.commands.channels import channels
from penstock.cli.commands.checkpoints import checkpoints
from penstock.cli.commands.inspect import inspect_snapshot
from penstock.cli.commands.job_control import cancel, savepoint, stop, trigger
from penstock.cli.commands.list_jobs import list_jobs
from penstock.cli.commands.metrics import metrics
from penstock.cli.commands.run import run
from penstock.cli.commands.serve import serve
from penstock.cli.commands.state.group import state_commands
from penstock.cli.exit_codes import EXIT_CODES, ExitCode, exit_code_of
from penstock.cli.program import arguments_in, arguments_option, pyflink_option, run_program
from penstock.common.config.locations import STORE_SCHEMES, scheme_of
from penstock.common.pyflink.import_alias import use_pyflink_names
from penstock.datastream.stream_execution_environment import collect_plans
from penstock.errors import PenstockError
from penstock.graph.plan import Plan
from penstock.graph.render import render_json, render_mermaid, render_text
from penstock.redaction import redact, redact_value


class _Commands(click.Group):
    """The group of all commands; turns an error into its message and exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except PenstockError as error:
            click.echo(f"Error: {redact(str(error))}", err=True)
            ctx.exit(exit_code_of(error))
        except OSError as error:
            # A store that cannot be reached or refuses; an error of anything else is a defect.
            if scheme_of(str(error.filename)) not in STORE_SCHEMES:
                raise
            click.echo(f"Error: {error.filename}: {redact(str(error.strerror))}", err=True)
            ctx.exit(ExitCode.FAILED)
        except KeyboardInterrupt:
            ctx.exit(ExitCode.INTERRUPTED)


@click.group(
    cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]}, epilog=EXIT_CODES
)
@click.version_option(__version__, prog_name="penstock")
def main() -> None:
    """Flink-style stateful streaming on Spark."""


@main.group()
def checkpoint() -> None:
    """Trigger or inspect a checkpoint."""


@main.command(context_settings={"ignore_unknown_options": True})
@click.argument("job", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@click.option("--json", "output", flag_value="json", help="Print the plan as JSON.")
@click.option("--mermaid", "output", flag_value="mermaid", help="Print a Mermaid diagram.")
@click.option("--text", "output", flag_value="text", default="text", hidden=True)
@arguments_option
@pyflink_option
def explain(
    job: Path, args: tuple[str, ...], output: str, args_file: Path | None, pyflink: bool
) -> None:
    """Show stages, channels, chains and parallelism of the program JOB without running its jobs.

    The program runs, but execute() only records the plan.
    """
    if pyflink:
        use_pyflink_names()
    plans = plans_of(job, (*args, *arguments_in(args_file)))
    if not plans:
        msg = f"{job} runs no job: it never calls execute()"
        raise click.ClickException(msg)
    if output == "json":
        click.echo(json.dumps([redact_value(render_json(p)) for p in plans], indent=2))
        return
    render = render_mermaid if output == "mermaid" else render_text
    click.echo("\n\n".join(redact(render(p)) for p in plans))


def plans_of(job: Path, args: tuple[str, ...]) -> list[Plan]:
    """Run a program and return the plans that it would have executed."""
    plans: list[Plan] = []
    with collect_plans(plans.append):
        run_program(job, args)
    return plans


for command in (
    run,
    list_jobs,
    stop,
    cancel,
    savepoint,
    checkpoints,
    channels,
    metrics,
    serve,
    advise_command,
    state_commands,
):
    main.add_command(command)
for command in (trigger, inspect_snapshot):
    checkpoint.add_command(command)


if __name__ == "__main__":
    main()
