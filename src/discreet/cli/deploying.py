"""A learner that real people talk to: begin it, serve it, look at it, check it, end it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from discreet.cli import completing
from discreet.cli.commands import command, group
from discreet.cli.options import Instance, Json, doubt_delta, own_or_named, written
from discreet.cli.terminal import SAID_NO, compilation_notice, note, progress_bar, say, say_json, show

if TYPE_CHECKING:
    from discreet.device.announcements import Entry
    from discreet.live.charter import Charter, Deployment
    from discreet.live.deployment import Command, State
    from discreet.live.party import Place
    from discreet.live.store import Transaction

app = group(
    """Begin a deployment, look at it, check it, end it. `discreet serve` runs it.

    [bold]Examples[/bold]

    discreet deploy init shop.toml --dry-run
    """
)


File = Annotated[Path, typer.Argument(help="The deployment's TOML file.", show_default=False)]
Source = Annotated[
    Path,
    typer.Argument(
        help="The deployment's TOML file, or a folder or log.jsonl that was exported.", show_default=False
    ),
]


class Role(StrEnum):
    """The leader keeps tickets and the log (an analyzer is one); of two servers the helper keeps the other share; of
    the shuffle model the shuffler takes messages and permutes them."""

    leader = "leader"
    helper = "helper"
    shuffler = "shuffler"


Roles = Annotated[
    Role,
    typer.Option(
        "--role",
        help="Which server this is: the deployment's own (leader), of two servers the second (helper), or the one "
        "that permutes messages (shuffler).",
    ),
]


@contextmanager
def _ready() -> Iterator[None]:
    """Say in one sentence that a store has failed, or that what serving needs is not installed."""
    try:
        from discreet.live.store import StoreFailed

        try:
            yield
        except StoreFailed as error:
            raise ValueError(f"{error}; nothing was acknowledged, try again") from None
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("discreet"):
            raise
        raise ValueError(f"deployments need {error.name}: pip install 'discreet[live]'") from None


# Begin --------------------------------------------------------------------------------------------------------------


@command(app, "init")
def init(
    file: File,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would happen, and leave: nothing is created, no tokens.")
    ] = False,
    role: Roles = Role.leader,
    as_json: Json = False,
) -> None:
    """Begin a deployment: keys, store, the first entries of its log, and its anchor. Nothing is ever replaced.

    Says what is promised to its users, how many of them it needs, who is trusted with what, and what people who lie
    can do. The two tokens are shown once: apps enrol and report with the first, operators pause and retire with the
    second. Keys are in NAME.keys beside the file: whoever has them can sign the log; NAME.pem is for everybody.

    Of two servers the helper begins first, on its own machine and with a file of its own: its name and, under helper,
    its url and epsilon_at_most. It prints lines for the leader's file, and a secret for the leader's owner. So does a
    shuffler, whose file has its name and, under shuffler, its url.

    [bold]Examples[/bold]

    discreet deploy init shop.toml --dry-run

    discreet deploy init shop.toml

    discreet deploy init second.toml --role helper

    discreet deploy init mixer.toml --role shuffler
    """
    if role is not Role.leader:
        (_init_helper if role is Role.helper else _init_shuffler)(file, dry_run, as_json)
        return
    from discreet.live import charter as charters

    with compilation_notice(), _ready():
        told = charters.read(file)
        facts = _meaning(told.charter)
        tokens = None
        if not dry_run:
            from discreet.live import secrets
            from discreet.live.certificate import public_pem
            from discreet.live.desk import begin

            _refuse_to_replace(told)
            if (told.charter.helper or told.charter.shuffler) is not None:
                from discreet.live.link import secret_of

                secret_of(told)
            tokens = begin(file)
            _public_key(told).write_bytes(public_pem(secrets.read(told.keys).public))
    doubt_delta(told.charter.delta, told.charter.users)
    if as_json:
        shown = None if tokens is None else {"app": tokens.app, "operator": tokens.operator}
        say_json({**facts, "digest": told.charter.digest, "tokens": shown})
        return
    say(f"guarantee: {facts['guarantee']}")
    say(f"users: {facts['verdict']}")
    for line in facts["who_sees_what"]:
        say(f"seen: {line}")
    say(f"lies: {facts['people_who_lie']}")
    if tokens is None:
        return
    say(f"store: {told.store.url}")
    say(f"anchor: {told.store.anchor} (better on another volume than the store)")
    say(f"keys: {told.keys} (keep a copy that only you can read)")
    say(f"public key: {_public_key(told)} (publish it: it checks the log)")
    say(f"app token: {tokens.app}")
    say(f"operator token: {tokens.operator}")
    note("the tokens are not shown again; only their hashes are kept")


def _init_helper(file: Path, dry_run: bool, as_json: bool) -> None:
    """Begin the second of two servers."""
    with _ready():
        from discreet.live.helper import Place, begin

        place = Place.read(file)
        begun = None if dry_run else begin(file)
    if as_json:
        facts = {"name": place.name, "url": place.url, "epsilon_at_most": place.epsilon_at_most}
        say_json(facts | ({} if begun is None else {"key": begun.key, "hpke": begun.hpke, "secret": begun.secret}))
        return
    say(f"joins: one deployment of two servers, of ε at most {place.epsilon_at_most:g}, and no other from then on")
    say("seen: one share of every report, random numbers by themselves; who runs both servers sees every report")
    if begun is None:
        return
    _say_begun(place, begun.lines, begun.secret, "leader", "helper")


def _init_shuffler(file: Path, dry_run: bool, as_json: bool) -> None:
    """Begin what permutes the messages of a deployment."""
    with _ready():
        from discreet.live.shuffler import begin, read

        place = read(file)
        begun = None if dry_run else begin(file)
    if as_json:
        told = {} if begun is None else {"key": begun.key, "secret": begun.secret}
        say_json({"name": place.name, "url": place.url} | told)
        return
    say("joins: one deployment of the shuffle model, and no other from then on")
    say(
        "seen: who sends and when, and messages that only the analyzer can open; who runs shuffler and analyzer sees "
        "everybody's messages"
    )
    if begun is not None:
        _say_begun(place, begun.lines, begun.secret, "analyzer", "shuffler")


def _say_begun(place: Place, lines: str, secret: str, other: str, role: str) -> None:
    """What a new party's owner must know and pass on."""
    say(f"store: {place.store.url}")
    say(f"anchor: {place.store.anchor} (better on another volume than the store)")
    say(f"keys: {place.keys} (keep a copy that only you can read)")
    say(f"for the {other}'s file, and for everybody:")
    say(lines.rstrip())
    say(f"for the {other}'s owner only, in NAME.{role} beside the {other}'s file (chmod 600):")
    say(secret)
    note("the secret is not shown again")


def _meaning(charter: Charter) -> dict[str, Any]:
    """What `init` says."""
    from discreet import catalog
    from discreet.live import terms
    from discreet.runs.feasibility import forecast_run

    outlook = forecast_run(catalog.algorithm(charter.learner).build, charter.problem())
    return {
        "name": charter.name,
        "guarantee": charter.guarantee.sentence(),
        "users": charter.users,
        "users_needed": outlook.users_needed,
        "feasible": outlook.feasible,
        "verdict": outlook.verdict,
        "who_sees_what": list(terms.seen(charter)),
        "people_who_lie": terms.liars(charter.model),
    }


def _public_key(told: Deployment) -> Path:
    return told.keys.with_suffix(".pem")


def _refuse_to_replace(told: Deployment) -> None:
    """Before anything is created."""
    url = told.store.url
    places = [told.keys, _public_key(told), told.store.anchor]
    places += [Path(url.removeprefix("sqlite:///"))] if url.startswith("sqlite:///") else []
    for path in places:
        if path.exists():
            raise ValueError(f"{path} exists already; a deployment is never replaced, so give it another name")
        if not path.parent.is_dir():
            raise ValueError(f"there is no folder {path.parent}")
        if not os.access(path.parent, os.W_OK | os.X_OK):
            raise ValueError(f"{path.parent} cannot be written")


def serve(
    file: File,
    host: Annotated[str, typer.Option(help="Address to listen on; the default is this machine only.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 8000,
    workers: Annotated[int, typer.Option(min=1, help="Processes; more than one needs PostgreSQL.")] = 1,
    page: Annotated[bool, typer.Option("--page/--no-page", help="Serve the operator's page, /operator.")] = True,
    files: Annotated[
        Path | None,
        typer.Option(help="A folder of an app's own pages, served at /app/: one origin with the deployment."),
    ] = None,
    role: Roles = Role.leader,
) -> None:
    """Serve a deployment until Ctrl-C. Behind a proxy that speaks https, where others are to reach it.

    It goes on where it was stopped or killed. Where the store is older than what was published (a restored backup),
    it refuses to start: to go on would release the same people twice.

    [bold]Exit codes[/bold] 0 ended, 2 refused, 74 the store has failed and nothing more was acknowledged.

    [bold]Examples[/bold]

    discreet serve shop.toml

    discreet serve shop.toml --host 0.0.0.0 --port 8443 --no-page

    discreet serve shop.toml --files app/                          an app of your own at /app/

    discreet serve second.toml --role helper --port 8001

    discreet serve mixer.toml --role shuffler --port 8002
    """
    with compilation_notice(), _ready():
        if role is Role.helper:
            from discreet.live import helper_server

            helping = f"helping: {file} on http://{host}:{port}"
            helper_server.run(file, host, port, started=lambda: note(helping))
            return
        if role is Role.shuffler:
            from discreet.live import shuffler_server

            shuffling = f"shuffling: {file} on http://{host}:{port}"
            shuffler_server.run(file, host, port, started=lambda: note(shuffling))
            return
        from discreet.live import server

        where = f"serving {file} on http://{host}:{port}" + (f", page: http://{host}:{port}/operator" if page else "")
        server.run(file, host, port, workers, page=page, files=files, started=lambda: note(where))


# Look ---------------------------------------------------------------------------------------------------------------


@contextmanager
def _reading(told: Deployment) -> Iterator[Transaction]:
    from discreet.live.desk import epoch_keys
    from discreet.live.store import open_store

    store = open_store(told.store.url, epoch_keys(told))
    try:
        with store.writing() as transaction:
            yield transaction
    finally:
        store.close()


def _deployment(source: Path) -> Deployment | None:
    """None where the source is what was exported."""
    from discreet.live import charter

    return None if source.is_dir() or source.suffix == ".jsonl" else charter.read(source)


def _log_of(source: Path) -> list[Entry]:
    from discreet.live import certificate

    told = _deployment(source)
    if told is None:
        return certificate.read_log(source)
    from discreet.device.announcements import check_chain
    from discreet.live import secrets
    from discreet.live.store import Anchor

    with _reading(told) as transaction:
        entries = transaction.entries(0)
    anchor = Anchor(told.store.anchor)
    with suppress(ValueError):  # an old copy, or a forged one, is for `verify` to tell
        anchor.check(entries)
        check_chain(entries, secrets.read(told.keys).public)
        anchor.advance(entries[-1])  # the server may not have come to it, and what is shown is published
    return entries


def _state_of(source: Path) -> tuple[list[Entry], State]:
    """The log, and what follows from it; of a deployment that is here, with the tickets that are out."""
    from discreet.live.deployment import counted, recovered

    entries = _log_of(source)
    state, told = recovered(entries, {}), _deployment(source)
    if told is None:
        return entries, state
    with _reading(told) as transaction:
        return entries, counted(state, transaction.outs([epoch.epoch for epoch in state.open]))


@command(app, "status")
def status(source: Source, as_json: Json = False) -> None:
    """What is public about a deployment now: guarantee, tickets, epochs, alarms.

    [bold]Examples[/bold]

    discreet deploy status shop.toml
    """
    with compilation_notice(), _ready():
        from discreet.live.overview import overview, summary

        entries, state = _state_of(source)
        found = overview(state, entries)
    if as_json:
        say_json(summary(found))
        return
    say(f"{found.name}: {found.status}")
    say(f"guarantee: {found.guarantee}")
    say(f"tickets: {found.tickets:,} of {found.users:,}, {found.releases:,} epochs released")
    for epoch in found.open:
        full = "" if epoch.deadline is None else f", released after {epoch.deadline}"
        say(f"epoch {epoch.number:,}: {epoch.out:,} of {epoch.size:,} tickets are out{full}")
    say(f"log: {found.number + 1:,} entries, head {found.head}")
    for line in found.alarms:
        say(f"ALARM: {line}")


@command(app, "log")
def log(
    source: Source,
    start: Annotated[int, typer.Option("--from", min=0, help="Number of the first entry to show.")] = 0,
    as_json: Json = False,
) -> None:
    """Print the public log: every announcement and every release. With --json as it is, signatures and all.

    [bold]Examples[/bold]

    discreet deploy log shop.toml

    discreet deploy log shop.toml --from 1 --json
    """
    with _ready():
        from discreet.live.overview import described

        entries = _log_of(source)[start:]
    if as_json:
        say_json({"entries": [entry.to_json() for entry in entries], "next": start + len(entries)})
        return
    from rich.table import Table

    table = Table("entry", "event", "what", "head")
    for entry in entries:
        table.add_row(*map(str, described(entry).values()))
    show(table, wide=True)


@command(app, "verify")
def verify(
    source: Source,
    public_key: Annotated[
        Path | None,
        typer.Option(help="Key (PEM) of whom you trust: the deployment's, as you know it from elsewhere."),
    ] = None,
    helper: Annotated[
        str | None,
        typer.Option(help="Of two servers: where the helper is, or a log.jsonl of it.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check a log: chain, signatures, one release per epoch, numbers of people, ε, and the anchor where there is one.

    Works on the deployment itself, and offline on what `discreet deploy export` or `retire` has written. Of two
    servers it shows both signing keys, and with --helper, such as https://helper.example, checks that every release
    is the sum of what both signed; where a shuffler collects, that it has signed every batch.

    [bold]Exit codes[/bold] 0 every rule holds, 1 some do not, 2 there is no log.

    [bold]Examples[/bold]

    discreet deploy verify shop.toml

    discreet deploy verify exported/ --public-key shop.pem
    """
    with compilation_notice(), _ready():
        from discreet.live.certificate import audited, public_key_of

        entries, told = _log_of(source), _deployment(source)
        key, anchor = None if public_key is None else public_key_of(public_key), None
        if told is not None:
            from discreet.live import secrets
            from discreet.live.store import Anchor

            anchor = Anchor(told.store.anchor).read()
            key = secrets.read(told.keys).public if key is None and told.keys.exists() else key
        problems, audit = audited(entries, key, anchor)
        if told is not None and anchor is None:
            problems.append(f"the anchor {told.store.anchor} is missing: an old copy of the store could not be told")
        both = {} if audit is None or audit.charter.helper is None else _both_keys(entries, helper, problems)
        shuffler = None if audit is None else audit.charter.shuffler
        if audit is not None and shuffler is not None:
            both = {"shuffler_key": shuffler.key, "batches_signed": audit.batches}
    sentence = "" if audit is None else audit.charter.guarantee.sentence()
    if as_json:
        facts = {"consistent": not problems, "problems": problems, "guarantee": sentence, "entries": len(entries)}
        facts |= {"head": entries[-1].name if entries else None, "vouched": public_key is not None and not problems}
        say_json(facts | both)
    elif problems:
        for problem in problems:
            say(f"NOT VALID: {problem}")
    else:
        assert audit is not None
        say(f"consistent: {len(entries):,} entries, {len(audit.released):,} releases, each once")
        came = sum(audit.released.values())
        say(f"people: {came:,} in released epochs, places for {audit.places:,} of {audit.users:,}")
        say(f"states: {sentence}")
        say(f"head: {entries[-1].name}")
        if shuffler is not None:
            say(f"the shuffler {shuffler.key} has signed {audit.batches:,} batches, each complete")
            note("it protects only if it does not work together with whoever keeps this log")
        elif both:
            say(f"two signing keys: leader {both['leader_key']}, helper {both['helper_key']}")
            note("they protect only if two who do not work together hold them")
            n = both["shares_checked"]
            say(
                "both shares: " + ("not checked; name the helper with --helper" if n is None else f"{n:,} sums agree")
            )
    if problems:
        raise typer.Exit(SAID_NO)


def _both_keys(entries: Sequence[Entry], helper: str | None, problems: list[str]) -> dict[str, Any]:
    """Who signs what of two servers, and how many releases are the sum of what both have signed."""
    from discreet.device.announcements import Forged
    from discreet.live.certificate import read_log
    from discreet.live.events import Opened, event_of
    from discreet.live.people import published
    from discreet.live.two_servers import check_both

    opening, checked = event_of(entries[0]), None
    assert isinstance(opening, Opened)
    assert opening.charter.helper is not None
    if helper is not None and not problems:
        try:
            away = helper.startswith(("http://", "https://"))
            checked = check_both(entries, published(helper, "") if away else read_log(Path(helper)))
        except Forged as error:
            problems.append(str(error))
    return {"leader_key": opening.key.hex(), "helper_key": opening.charter.helper.key, "shares_checked": checked}


@command(app, "export")
def export(
    source: Source,
    out: Annotated[Path, written("a folder for the log and the policy.", False)],
    as_json: Json = False,
) -> None:
    """Write what is public, the log and the policy learned so far, into a folder: discreet.Policy.load reads it.

    [bold]Examples[/bold]

    discreet deploy export shop.toml --out exported/
    """
    with compilation_notice(), _ready():
        from discreet.live import certificate
        from discreet.offline.certificate import check_folder

        check_folder(out)
        entries, state = _state_of(source)
        certificate.export(out, entries, state)
    if as_json:
        say_json({"folder": str(out), "entries": len(entries), "releases": state.released})
        return
    say(f"{len(entries):,} entries and the policy after {state.released:,} releases are in {out}")


# Change and end -----------------------------------------------------------------------------------------------------


def _operated(file: Path, command: Command) -> Sequence[Entry]:
    """Do what an operator may do, whether it is being served or not: the store takes one writer at a time."""
    from discreet.live.deployment import Refused, Retire
    from discreet.live.desk import Desk, Wish
    from discreet.live.link import lead

    desk = Desk.open(file)
    try:
        (reply,) = desk.decided([Wish.operate(command)])
        if isinstance(reply, Refused):
            raise ValueError(reply.why)
        if isinstance(command, Retire) and desk.charter.shuffler is not None:
            lead(desk, file).release()  # the shuffler erases what waits there
        return desk.visible.entries
    finally:
        desk.close()


def _done(entries: Sequence[Entry], sentence: str, as_json: bool) -> None:
    """What a change of a deployment says: the sentence, and where the log stands now."""
    if as_json:
        say_json({"status": sentence.partition(":")[0], "entries": len(entries), "head": entries[-1].name})
    else:
        say(sentence)


@command(app, "pause")
def pause(file: File, as_json: Json = False) -> None:
    """No tickets until further notice; those that are out may still report, and epochs that are full are released.

    [bold]Examples[/bold]

    discreet deploy pause shop.toml
    """
    with compilation_notice(), _ready():
        from discreet.live.deployment import Pause

        entries = _operated(file, Pause())
    _done(entries, "paused: whoever comes now is a spectator", as_json)


@command(app, "resume")
def resume(file: File, as_json: Json = False) -> None:
    """Tickets again.

    [bold]Examples[/bold]

    discreet deploy resume shop.toml
    """
    with compilation_notice(), _ready():
        from discreet.live.deployment import Resume

        entries = _operated(file, Resume())
    _done(entries, "resumed", as_json)


@command(app, "amend")
def amend(
    file: File,
    users: Annotated[int, typer.Option(min=1, help="Number of users: how many may come now.", show_default=False)],
    as_json: Json = False,
) -> None:
    """Let more people come: a signed entry of the log. Never fewer, and nothing else of a charter can be changed.

    [bold]Examples[/bold]

    discreet deploy amend shop.toml --users 400000
    """
    with compilation_notice(), _ready():
        from discreet.live.deployment import Amend

        entries = _operated(file, Amend(users))
    _done(entries, f"amended: {users:,} people may come; the guarantee per user is as before", as_json)


@command(app, "retire")
def retire(
    file: File,
    out: Annotated[Path, written("a folder for the certificate.", False)],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """End a deployment for good: erase its vault, and write a certificate that `discreet verify` checks offline.

    What was reported since the last release is erased unread. The log stays. Given again, the certificate is written
    again.

    [bold]Examples[/bold]

    discreet deploy retire shop.toml --out certificate/
    """
    with compilation_notice(), _ready():
        from discreet.live import certificate, secrets
        from discreet.live import charter as charters
        from discreet.live.deployment import Retire
        from discreet.offline.certificate import check_folder

        told = charters.read(file)
        secret = secrets.read(told.keys).signing
        check_folder(out)
        entries, state = _state_of(file)
        if not state.retired:
            if not yes and not typer.confirm(f"End {told.charter.name} for good, and erase its vault?"):
                raise ValueError("nothing was done")
            entries = list(_operated(file, Retire()))
        certificate.certify(out, entries, secret)
    if as_json:
        say_json({"status": "retired", "folder": str(out), "entries": len(entries), "head": entries[-1].name})
        return
    say(f"retired: the vault is erased, and the certificate is in {out}")
    note(f"check it with: discreet verify {out}")


# People -------------------------------------------------------------------------------------------------------------


def visit(
    url: Annotated[str, typer.Argument(help="Where a deployment is served.", show_default=False)],
    token: Annotated[str, typer.Option(envvar="DISCREET_TOKEN", help="The app's token.", show_default=False)],
    users: Annotated[int, typer.Option(min=1, help="Number of users: how many come.")] = 2000,
    env: Annotated[
        str,
        typer.Option(
            help="An environment: the world they live in, in the sizes of the charter; or module:name of your own.",
            autocompletion=completing.environments,
        ),
    ] = "riverswim",
    instance: Instance = 0,
    threads: Annotated[int, typer.Option(min=1, max=64, help="People at the same time.")] = 8,
    first: Annotated[int, typer.Option(min=0, help="Number of the first of them.")] = 0,
    as_json: Json = False,
) -> None:
    """Simulated people visit a deployment over HTTP: they enrol, act, and send one report each.

    What happens to somebody depends on her number alone, so that a visit can be repeated. Whoever gets no ticket
    because an epoch is draining comes back later. For demonstrations and tests.

    [bold]Examples[/bold]

    discreet visit http://127.0.0.1:8000 --token TOKEN --users 20
    """
    with compilation_notice(), _ready():
        from discreet.live.people import visit as visited

        with progress_bar("people", users) as advance:
            place, instance = own_or_named(env, instance)
            found = visited(url, token, users, place, instance, threads, first, lambda: advance(1))
    if as_json:
        say_json(found.to_json())
        return
    for line in found.sentences():
        say(line)
