"""The command tree: ``kafkalog <noun> <verb>``. ``server`` is added by ``kafkalog/__main__.py``.

Exit status: 0 done, 1 failed, 2 wrong usage, 3 partly failed, 130 interrupted, 141 the reader of
the output has gone. Data goes to standard output, messages to standard error. Commands are imported
when they are called, so that a command without kernels does not wait for numba.

An error of the system that no command has a message for ends the program with one line: above all
standard output that is closed (``| head``) or full (``> /dev/full``).
"""

from __future__ import annotations

import errno
import importlib
import os
import shlex
import sys
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import click

from kafkalog import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_SENTENCE_MAX = 1_000
_EXAMPLES_SHOWN = 3
_CALLED_FIRST = ("create", "describe", "explain", "list", "status")
INTERRUPTED = 130
_READER_GONE = 141  # what a shell says of a program that SIGPIPE ended
_FAILED = 1
_EXTRA = "Got unexpected extra argument"  # click's
_REMEDIES = {
    **dict.fromkeys((errno.ENOENT, errno.ENOTDIR), "Check the path."),
    errno.EISDIR: "Name a file in it.",
    **dict.fromkeys((errno.EACCES, errno.EPERM), "Run it as a user who may (sudo -u USER)."),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "Free space there, or write elsewhere."),
    errno.EROFS: "Write elsewhere.",
    errno.EMFILE: "Allow more open files (ulimit -n).",
    errno.EIO: "Check the disk (dmesg).",
}
_HABITS = {  # what other programs call it, in lower case
    **dict.fromkeys(("rm", "remove", "drop", "destroy"), ("delete",)),
    **dict.fromkeys(("ls", "dir"), ("list",)),
    **dict.fromkeys(("show", "get", "info"), ("describe",)),
    **dict.fromkeys(("add", "new", "make"), ("create",)),
    **dict.fromkeys(("set", "edit", "update", "change"), ("alter",)),
    **dict.fromkeys(("tail", "read"), ("consume",)),
    "cat": ("consume", "describe"),
    "status": ("health",),
    "start": ("server",),
    "consumer-groups": ("groups",),
    "log-dirs": ("dirs describe",),
    "reset": ("reset-offsets",),
    "lag": ("groups describe",),
}
_ABSENT = {  # what there is not, and what to do
    "stop": "A daemon stops at Ctrl-C or SIGTERM (kill PID).",
    "kafka-server-stop": "A daemon stops at Ctrl-C or SIGTERM (kill PID).",
    "rename": "A topic keeps its name; create another one and copy the records.",
    **dict.fromkeys(
        ("acls", "kafka-acls"), "kafkalog has no kafka-acls: see docs/how-to/security.md."
    ),
    "kafka-server-start": "Use kafkalog server.",
    "kafka-reassign-partitions": "Use kafkalog dirs move.",
    "kafka-transactions": "Use kafkalog transactions.",
    "kafka-producer-perf-test": "Use kafkalog perf produce.",
    "kafka-consumer-perf-test": "Use kafkalog perf consume.",
    "kafka-leader-election": "There is one broker, which leads all partitions: no election.",
    "kafka-storage": "There is one broker: kafkalog server formats new log directories, and"
    " kafkalog dirs describe shows them.",
    "kafka-broker-api-versions": "There is one broker, which speaks HTTP: see kafkalog health.",
    **dict.fromkeys(
        ("kafka-metadata-quorum", "kafka-features"),
        "There is one broker and no controller: see kafkalog health.",
    ),
}
# Options of Kafka's tools and others: the option or argument of kafkalog for it, or a sentence.
_FOREIGN_OPTIONS: dict[str, tuple[str, ...] | str] = {
    **dict.fromkeys(("--topic", "--name", "--entity-name"), ("TOPIC", "TOPICS", "NAME")),
    "--group": ("GROUP",),
    "--broker-list": ("--url",),
    "--property": "Kafka's print.key=true is --print-key, parse.key=true is --key-separator TEXT.",
    "--replication-factor": "There is one broker: leave it out.",
    "--timeout-ms": ("--exit-at-end",),
    "--zookeeper": "There is no ZooKeeper: the daemon is at --url http://HOST:8082.",
    "-n": ("--max-messages",),
    "-o": ("--output",),
    "-p": ("--partitions", "--partition"),
    "-v": "The version is -V, or kafkalog version.",
}
_TOOLS_OF = {  # group -> Kafka's tool for the same, whose verbs are options
    "configs": "kafka-configs",
    "dirs": "kafka-log-dirs",
    "groups": "kafka-consumer-groups",
    "offsets": "kafka-get-offsets",
    "records": "kafka-delete-records",
    "topics": "kafka-topics",
}
_SUBJECT_OPTIONS = ("--topic", "--group", "--entity-name")
_FORMER_NAMES = {"config": "configs"}


class CommandGroup(click.Group):
    """A group whose help prints the whole first sentence of each command.

    Click cuts the sentence at the width of the terminal, and with it what the command does. An
    unknown command is refused with the names that are like it, here or in another group.
    """

    sections: ClassVar[Mapping[str, Sequence[str]]] = {}
    """Titles over commands in its help; the others come last."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """``help`` before a command is --help after it.

        Options of a command that stand before it are unknown here; say where they belong.
        """
        if args[:1] == ["help"]:
            args = [*args[1:], "--help"]
        try:
            return super().parse_args(ctx, [*args])  # it takes words out
        except click.NoSuchOption as error:
            if error.possibilities:
                raise
            foreign = _FOREIGN_OPTIONS.get(error.option_name)
            usage = _of_verb_option(self, ctx, args) or (
                foreign
                if isinstance(foreign, str)
                else f"Options stand after the command: {ctx.command_path} COMMAND [OPTIONS]."
            )
            raise click.UsageError(f"{error.message} {usage}", ctx) from error

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command and its arguments. Raises click.NoSuchCommand."""
        name = args[0]
        is_found = self.get_command(ctx, name) is not None
        if is_found or ctx.resilient_parsing or name.startswith("-"):
            return super().resolve_command(ctx, args)
        known = [each for each in self.list_commands(ctx) if not _is_hidden(self, ctx, each)]
        word = name.lower().removesuffix(".sh")
        habits = _HABITS.get(word, ())
        calls = [each for each in habits if each.split()[0] in known]
        if not calls and ctx.parent is None:
            verbs = (
                found for verb in (word, *habits) if (found := _elsewhere(self, ctx, verb, args))
            )
            calls = next(verbs, [])
        if not calls:
            calls = get_close_matches(word, known)
            if len(calls) == 1 and len(args) > 1 and not args[1].startswith("-"):
                calls = [shlex.join([*calls, *args[1:]])]
        calls = [f"{ctx.command_path} {each}" for each in calls]
        message = f"No such command '{name}'."
        if word in _ABSENT:
            message += f" {_ABSENT[word]}"
        elif calls:
            message += f" Did you mean {_listed(calls)}?"
        elif ctx.parent is not None and len(known) == 1:
            only = f"{known[0]}: {ctx.command_path} {known[0]}"
            message += f" There is only {only} {' '.join(args)}"
        elif ctx.parent is not None:
            message += f" There are {', '.join(known)}."
        raise click.NoSuchCommand(name, message, ctx=ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Each command with its first sentence, on as many lines as needed."""
        named = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [
            (name, command.get_short_help_str(limit=_SENTENCE_MAX))
            for name, command in named
            if command is not None and not command.hidden
        ]
        for title, names in self.sections.items():
            shown = [row for each in names for row in rows if row[0] == each]
            rows = [row for row in rows if row not in shown]
            if shown:
                with formatter.section(title):
                    formatter.write_dl(shown)
        if rows:
            with formatter.section("Other" if self.sections else "Commands"):
                formatter.write_dl(rows)
        examples = [_example_of(each) for name, each in sorted(named, key=_as_shown) if each]
        if ctx.parent is not None and any(examples):
            with formatter.section("Examples"):
                for example in [each for each in examples if each][:_EXAMPLES_SHOWN]:
                    formatter.write_text(example)


def _of_verb_option(group: click.Group, ctx: click.Context, args: list[str]) -> str | None:
    """What ``topics --create --topic x`` is here; None: no option is the name of a command."""
    words = [part for arg in args for part in (arg.split("=", 1) if arg[:2] == "--" else [arg])]
    names = group.list_commands(ctx)
    verb = next((word[2:] for word in words if word[:2] == "--" and word[2:] in names), None)
    if verb is None:
        return None
    subjects = [name for option, name in pairwise(words) if option in _SUBJECT_OPTIONS]
    hint = f"Did you mean {shlex.join([*ctx.command_path.split(), verb, *subjects])}?"
    tool = _TOOLS_OF.get(ctx.info_name or "")
    if tool is not None:
        hint += f" With Kafka's options: kafkalog compat {shlex.join([tool, *args])}"
    return hint


def _is_hidden(group: click.Group, ctx: click.Context, name: str) -> bool:
    command = group.get_command(ctx, name)
    return command is None or command.hidden


def _listed(calls: list[str]) -> str:
    """a, b or c."""
    return " or ".join(filter(None, (", ".join(calls[:-1]), calls[-1])))


def _elsewhere(root: click.Group, ctx: click.Context, verb: str, args: list[str]) -> list[str]:
    """Where a command of this name is; of a verb before its subject, that subject's.

    One of Kafka's tools has the options that were given.
    """
    groups = [
        name
        for name in root.list_commands(ctx)
        if isinstance(found := root.get_command(ctx, name), click.Group)
        and not found.hidden
        and verb in found.list_commands(ctx)
    ]
    if groups == ["compat"]:
        return [shlex.join(["compat", verb, *args[1:]])]
    meant = get_close_matches(args[1], groups, n=1) if len(args) > 1 else []
    return [f"{name} {verb}" for name in meant or groups]


def _refusal(error: click.NoSuchOption) -> click.UsageError:
    """Of an option of another program: what it is here."""
    hint = _FOREIGN_OPTIONS.get(error.option_name)
    if hint is None or error.ctx is None:
        return error
    for param in () if isinstance(hint, str) else error.ctx.command.params:
        if isinstance(param, click.Argument) and param.human_readable_name in hint:
            name = param.human_readable_name
            example = "billing" if name == "GROUP" else "orders"
            hint = f"{name} is an argument: {error.ctx.command_path} {example}"
            break
        if set(param.opts) & set(hint):
            hint = f"Did you mean {param.opts[0]}?"
            break
    if isinstance(hint, str):
        return click.UsageError(f"{error.message} {hint}", error.ctx)
    like = [each for each in error.possibilities or () if each != "--output"]
    return click.NoSuchOption(error.option_name, possibilities=like, ctx=error.ctx)


def _as_shown(named: tuple[str, click.Command | None]) -> tuple[bool, str]:
    """The order of examples in the help of a group: first what is called first."""
    return named[0] not in _CALLED_FIRST, named[0]


def _example_of(command: click.Command) -> str:
    """The first example of its help, in one line; of a hidden command none."""
    text = "" if command.hidden else command.help or ""
    return " ".join(text.partition("Example: ")[2].partition("\n\n")[0].split())


def _with_example(error: click.UsageError) -> click.UsageError:
    """What is missing or too much, and the example of the command's help."""
    example = _example_of(error.ctx.command) if error.ctx else ""
    if not example:
        return error
    return click.UsageError(f"{error.format_message().rstrip('.')}. Example: {example}", error.ctx)


@contextmanager
def _told_faults() -> Iterator[None]:
    """Turn an interrupt and errors of the system into exit statuses, and write all output.

    What is still buffered when the interpreter ends could only fail with a stack trace.
    """
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        raise click.exceptions.Exit(INTERRUPTED) from None
    except click.Abort as end:  # Ctrl-C or Ctrl-D in answer to a question
        click.echo("\nNothing was changed.", err=True)
        is_interrupted = isinstance(end.__context__, KeyboardInterrupt)
        raise click.exceptions.Exit(INTERRUPTED if is_interrupted else _FAILED) from None
    except BrokenPipeError:
        _drop_output()
        raise click.exceptions.Exit(_READER_GONE) from None
    except OSError as error:
        _drop_output()
        failed = "The output cannot be written" if error.filename is None else None
        with suppress(OSError):  # standard error may be full too
            click.echo(f"Error: {sentence_of(error, failed)}", err=True)
        raise click.exceptions.Exit(_FAILED) from None


def sentence_of(error: OSError, failed: str | None = None) -> str:
    """What failed (default: the use of the file), the system's reason, and what to do."""
    failed = failed or ("" if error.filename is None else str(error.filename))
    reason = error.strerror or str(error)
    remedy = _REMEDIES.get(error.errno or 0)
    return ": ".join(filter(None, (failed, reason))) + (f". {remedy}" if remedy else "")


def read_fault(error: OSError) -> click.ClickException:
    """Of a command that reads files and prints; raises the error if it is that of the output."""
    if error.filename is None and error.errno != errno.EIO:
        raise error
    return click.ClickException(sentence_of(error, f"Cannot read {error.filename or 'the files'}"))


def _drop_output() -> None:
    """Let what is left in the buffer go nowhere."""
    with suppress(OSError, ValueError):  # no file, as in tests
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _of(module: str, *commands: str) -> dict[str, str]:
    """Where these commands are: a function of the name in a module of kafkalog.cli."""
    return {name: f"kafkalog.cli.{module}:{name}".replace("-", "_") for name in commands}


_TOOLS = (
    *("configs", "console-consumer", "console-producer", "consumer-groups", "delete-records"),
    *("dump-log", "get-offsets", "log-dirs", "topics"),
)
# group -> command -> module:attribute
COMMANDS: dict[str, dict[str, str]] = {
    "": {
        **_of("topics", "topics"),
        **_of("configs", "configs"),
        **_of("produce", "produce"),
        **_of("consume", "consume"),
        **_of("dirs", "dirs", "tasks"),
        **_of("records", "offsets"),
        **_of("groups", "groups", "transactions"),
        **_of("backup", "backup", "restore"),
        **_of("runbooks", "runbooks"),
        **_of("connection", "health"),
        **_of("arguments", "completion"),
        **_of("offline.doctor", "doctor"),
        **_of("offline.adopt", "adopt", "hand-back"),
    },
    "compact": _of("compact", "plan", "run", "status", "retry", "pause", "resume", "abort"),
    "records": _of("records", "delete"),
    "retention": _of("retention", "explain", "simulate", "run", "archived"),
    "segments": {
        **_of("offline.segments", "accept-loss", "losses", "verify"),
        **_of("offline.repair", "preview", "repair"),
        **_of("offline.convert", "convert"),
        "dump": "kafkalog.cli.offline.dump:segments_dump",
        "list": "kafkalog.cli.offline.segments:list_command",
    },
    "archive": {**_of("jobs.archive", "run", "convert"), **_of("jobs.maintain", "maintain")},
    "auth": _of("backup", "hash-password", "new-token"),
    "compat": {
        **_of("kafka_tools.install", "install"),
        **{f"kafka-{name}": _of(f"kafka_tools.{name}", name)[name] for name in _TOOLS},
    },
    "perf": _of("jobs.perf", "produce", "consume"),
    "spark": {
        **_of("jobs.spark", "audit", "compact", "stats", "whatif"),
        "archive": "kafkalog.cli.jobs.archive:former",
        **_of("jobs.spark_pipeline", "pipeline"),
    },
    "offline": {**_of("offline.scan", "scan"), **_of("offline.load", "load", "compact")},
}
_GROUP_HELP = {
    "compact": "Show what compaction would save and why it does not run; clean by hand.",
    "archive": "Append the new records of topics to tables, and maintain these.",
    "auth": "Create lines for the credentials file, without a daemon.",
    "records": "Delete records below an offset.",
    "retention": "Show why segments are kept and when they are deleted; run a pass now.",
    "segments": "Inspect and convert segment files without a daemon; accept lost offsets with one.",
    "compat": "Kafka's command line tools, with their options, output and exit status.",
    "perf": "Measure how fast the daemon appends and returns records.",
    "spark": "Run jobs over directories of logs, in processes or on Spark.",
    "offline": "Work on copies of partition directories, without a daemon.",
}


class LazyGroup(CommandGroup):
    """A group that imports its commands when they are used."""

    def __init__(self, name: str, help_text: str, lazy: dict[str, str]) -> None:
        # Options show their defaults, but for those of Kafka's tools, which do not either.
        super().__init__(name, help=help_text, context_settings={"show_default": name != "compat"})
        self._lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names, sorted."""
        return sorted({*super().list_commands(ctx), *self._lazy})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import on first use."""
        where = self._lazy.get(cmd_name)
        if where is None:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = where.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command


class Root(LazyGroup):
    """The whole tree: the one place that ends the program."""

    sections: ClassVar[Mapping[str, Sequence[str]]] = {
        "Commands": [
            "server",
            "topics",
            "produce",
            "consume",
            "records",
            "offsets",
            "groups",
            "configs",
        ],
        "Operation": [
            "health",
            "runbooks",
            "tasks",
            "dirs",
            "retention",
            "compact",
            "transactions",
            "backup",
        ],
        "Files": ["doctor", "segments", "offline", "adopt", "hand-back", "restore"],
        "Tables and Spark": ["archive", "spark"],
    }

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,  # noqa: ANN401 - click's
    ) -> click.Context:
        """Parse; what ``--help`` prints may fail as any output."""
        with _told_faults():
            args = ["--version"] if args == ["version"] else args
            extra.setdefault("help_option_names", ["-h", "--help"])
            return super().make_context(info_name, args, parent, **extra)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """A command by its former name is the command: so are its help and what is like it."""
        return super().resolve_command(ctx, [_FORMER_NAMES.get(args[0], args[0]), *args[1:]])

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - click's
        """Run the command. See ``_told_faults``."""
        with _told_faults():
            try:
                return super().invoke(ctx)
            except click.NoSuchOption as error:
                raise _refusal(error) from error
            except click.MissingParameter as error:
                raise _with_example(error) from error
            except click.UsageError as error:
                if type(error) is click.UsageError and error.message.startswith(_EXTRA):
                    raise _with_example(error) from error
                raise


def make_cli() -> click.Group:
    """The whole tree without ``server``."""
    root = Root(
        "kafkalog",
        "Topic logs exactly as Apache Kafka keeps them on disk, served over HTTP. A command asks"
        " the daemon at --url, else at KAFKALOG_URL, else at http://127.0.0.1:8082.\n\n"
        "\b\n"  # click's mark of lines that stay as they are
        "Begin with kafkalog server; then, in another terminal:\n"
        "  echo hello | kafkalog produce greetings\n"
        "  kafkalog consume greetings --from-beginning",
        COMMANDS[""],
    )
    for group, help_text in _GROUP_HELP.items():
        root.add_command(LazyGroup(group, help_text, COMMANDS[group]))
    return click.version_option(__version__, "-V", "--version", prog_name="kafkalog")(root)
