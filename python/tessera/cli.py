# SPDX-License-Identifier: MIT
"""The command `tessera`: a table of subcommands, each a module with `add_arguments` and `run`."""

import argparse
import importlib
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import tessera
from tessera.commands import CommandError


@dataclass(frozen=True)
class Command:
    """One subcommand; its module is imported when it is called, so that `tessera info` stays quick."""

    module: str
    summary: str


COMMANDS = {
    "info": Command("tessera.commands.info", "print the passport of an artifact"),
    "plan": Command("tessera.commands.plan", "estimate what a structure costs each of many ranks"),
    "build": Command("tessera.commands.build", "make a structure: water, kcl, protein, capsid"),
    "analyze": Command("tessera.commands.analyze", "distributions, drift, bonds and contacts of a run"),
    "doctor": Command("tessera.commands.doctor", "check versions and libraries, with advice on what is missing"),
}

#: Exit code of a command that was used wrongly or given a bad file.
BAD_INPUT = 2


def build_parser(name: str | None = None) -> argparse.ArgumentParser:
    """Describe the command line; only the subcommand `name` gets its arguments."""
    parser = argparse.ArgumentParser(prog="tessera", description="Tessera: compiled transformers in LAMMPS and ASE.")
    parser.add_argument("--version", action="version", version=f"tessera {tessera.__version__}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="command")
    for key, command in COMMANDS.items():
        subparser = subparsers.add_parser(key, help=command.summary, description=command.summary)
        if key == name:
            importlib.import_module(command.module).add_arguments(subparser)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a subcommand; returns its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    name = next((word for word in words if word in COMMANDS), None)
    arguments = build_parser(name).parse_args(words)
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    try:
        return importlib.import_module(COMMANDS[arguments.command].module).run(arguments)
    except CommandError as error:
        sys.stderr.write(f"tessera {arguments.command}: error: {error}\n")
        return BAD_INPUT


if __name__ == "__main__":
    sys.exit(main())
