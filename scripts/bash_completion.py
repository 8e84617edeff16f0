"""
Print the bash completion of ``numapin``, made from its argument parser so that it never differs from it.

Owns: the walk over argparse and the text for bash. Must never: know a verb or an option by name.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterator

from numapin.cli.parser import build_parser

_FILE_METAVARS = {"FILE", "DIR", "PATH"}

_FUNCTION = r"""
# Words typed before the cursor: a verb deepens the path, an option that takes a value claims the next word,
# and any other word is an argument. Bash makes a word of its own of the = in --output=json.
_numapin() {
    local current=${COMP_WORDS[COMP_CWORD]} path="" option="" count=0 word index
    for ((index = 1; index < COMP_CWORD; index++)); do
        word=${COMP_WORDS[index]}
        if [[ $word == = ]]; then
            continue
        elif [[ -n $option ]]; then
            option=""
        elif [[ $word == -* ]]; then
            [[ $(_numapin_values "$path" "$word") ]] && option=$word
        elif [[ $(_numapin_options "$path $word") ]]; then
            path="$path $word"
            count=0
        else
            ((count += 1))
        fi
    done
    [[ $current != = ]] || current=""

    local choices
    if [[ -n $option ]]; then
        choices=$(_numapin_values "$path" "$option")
    elif [[ $current == -* ]]; then
        choices=$(_numapin_options "$path")
    else
        choices=$(_numapin_arguments "$path" "$count")
    fi
    COMPREPLY=()
    case $choices in
        :text) ;;
        :file)
            compopt -o filenames 2>/dev/null
            mapfile -t COMPREPLY < <(compgen -f -- "$current")
            ;;
        *) mapfile -t COMPREPLY < <(compgen -W "$choices" -- "$current") ;;
    esac
}

complete -F _numapin numapin
"""


def commands(parser: argparse.ArgumentParser, path: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Each command below *parser*, itself first, with its path (``""``, ``" checkpoint show"``)."""
    yield path, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, child in action.choices.items():
                yield from commands(child, f"{path} {name}")


def options(parser: argparse.ArgumentParser) -> list[str]:
    """Every option string of *parser* that its help shows."""
    return [text for action in parser._actions if action.help != argparse.SUPPRESS for text in action.option_strings]


def values(action: argparse.Action) -> str | None:
    """What may follow *action*: its choices, ``:file``, ``:text`` for anything else, ``None`` for a flag."""
    if action.option_strings and action.nargs == 0:
        return None
    if action.choices is not None:
        return " ".join(str(choice) for choice in action.choices)
    names = action.metavar if isinstance(action.metavar, tuple) else (action.metavar or action.dest.upper(),)
    return ":file" if _FILE_METAVARS & set(names) else ":text"


def render(parser: argparse.ArgumentParser) -> str:
    """The completion script for *parser*; valid for bash 4 and newer, without the bash-completion package."""
    shown, arguments, taking = [], [], []
    for path, command in commands(parser):
        shown.append(_case(path, " ".join(options(command))))
        positional = [found for action in command._actions if (found := values(action)) and not action.option_strings]
        arguments += [_case(f"{path} {index}", found) for index, found in enumerate(positional)]
        for action in command._actions:
            if action.option_strings and (found := values(action)) is not None:
                taking.append(_case([f"{path} {text}" for text in action.option_strings], found))
    head = "# bash completion for numapin; made from its argument parser, do not edit"
    return (
        "\n".join(
            [
                head,
                *_lookup("_numapin_options", "$1", shown),
                *_lookup("_numapin_arguments", "$1 $2", arguments),
                *_lookup("_numapin_values", "$1 $2", taking),
            ]
        )
        + _FUNCTION
    )


def _case(keys: str | list[str], text: str) -> str:
    patterns = " | ".join(shlex.quote(key) for key in ([keys] if isinstance(keys, str) else keys))
    return f"        {patterns}) echo {shlex.quote(text)} ;;"


def _lookup(name: str, key: str, cases: list[str]) -> list[str]:
    return ["", f"{name}() {{", f'    case "{key}" in', *cases, "    esac", "}"]


if __name__ == "__main__":
    sys.stdout.write(render(build_parser()))
