"""The command line: one file a command, which parses, calls and prints.

Exit status: 0 done, 1 failed, 2 bad arguments. Errors go to stderr, without a traceback.
"""

import argparse
import sys
from collections.abc import Sequence
from importlib.metadata import version

from digitloss.cli import bench, compare, inspect
from digitloss.errors import DigitlossError

_COMMANDS = {"bench": bench, "compare": compare, "inspect": inspect}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line.

    Args:
        arguments: The words after `digitloss`; None: those of this process.

    Returns:
        The exit status.
    """
    parser = argparse.ArgumentParser(prog="digitloss", description="Numerical learning of language models.")
    parser.add_argument("--version", action="version", version=f"digitloss {version('digitloss')}")
    commands = parser.add_subparsers(title="commands", dest="command", required=True)
    for name, module in _COMMANDS.items():
        summary = (module.__doc__ or "").splitlines()[0]
        command = commands.add_parser(
            name,
            help=summary,
            description=module.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(command)
    try:
        options = parser.parse_args(arguments)
    except SystemExit as stop:
        return int(stop.code or 0)
    try:
        _COMMANDS[options.command].run(options)
    except (DigitlossError, OSError) as error:
        print(f"digitloss {options.command}: {error}", file=sys.stderr)
        return 1
    except ValueError as error:
        print(f"digitloss {options.command}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"digitloss {options.command}: interrupted; the same command goes on where it stopped", file=sys.stderr)
        return 1
    return 0
