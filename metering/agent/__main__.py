"""`offpeak-agent`: read the options, then run, or look whether everything is in order."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from . import VERSION, enrolling
from .access.allowing import ABILITY, ACCESS, Access, AccessImpossible, access_of, tunnel_to
from .access.line import Line
from .agent import Agent, AgentConfig
from .clock import SystemClock
from .configuration import PLACE, ConfigUnfit, arguments_of, template
from .credential import Enrolled, TokenFile
from .diagnosing.choosing import prober_of
from .diagnosing.levels import LEVELS, Level
from .doctor import examine
from .filler import FillerCommand, read_command
from .gpus.guarded import GuardedGpus
from .gpus.port import Gpus
from .gpus.simulated import Holders, SimulatedGpus, parse_models
from .hand.control import listening
from .hand.verbs import WORDS, show, speak
from .listeners import until_they_leave
from .logs import write_to_stderr
from .metrics import exported, read_address
from .option_values import days, file, folder, positive, saying
from .rotation import DAYS, rotating
from .runtimes.egress import parse_all
from .runtimes.images import BYTES_MAX, Sources
from .runtimes.limits import GIB, Limits
from .runtimes.shelf import ALL_BYTES_MAX
from .runtimes.slurm_commands import ACCOUNT, Slurm
from .runtimes.users import UsersUnfit, closed_on_the_way, make_passable, named
from .shares import PIPE_DIRECTORY
from .single import CLAIMS, AlreadyRunning, claim
from .uplink import HttpUplink
from .work_as import PROCESS, RUNTIMES, SLURM, Wish, WorkAs, WorkUnsafe, work_as
from .work_in import runtime_of

SERVER = "http://127.0.0.1:8000"
TOKEN_VARIABLE = "OFFPEAK_AGENT_TOKEN"
STATE_DIR = Path("/var/lib/offpeak-agent")

Token = str | TokenFile


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status: 0 fine, 1 something is amiss, 2 wrong options."""
    return until_they_leave(lambda: _do(arguments))


def _do(arguments: Sequence[str] | None) -> int:
    said = sys.argv[1:] if arguments is None else arguments
    if said and said[0] in enrolling.VERBS:
        return enrolling.main(said, state_dir=STATE_DIR)
    parser = _parser()
    try:
        options = parser.parse_args(arguments_of(parser, said))
    except ConfigUnfit as unfit:
        parser.error(str(unfit))
    if options.verb in (*WORDS, "status", "config"):
        return _by_hand(parser, options)
    write_to_stderr(logging.DEBUG if options.verbose else logging.INFO)
    try:
        enrolled, token = _proof(options)
        uplink = None if not token else _uplink(options, token)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    if options.verb == "doctor":
        return _doctor(options, uplink)
    if uplink is None:
        parser.error("a host token is needed: offpeak-agent enrol URL CODE, --token-file FILE, or "
                     f"{TOKEN_VARIABLE}")  # fmt: skip
    try:
        how = work_as(_wish(options))
        filler = _filler(options)
        access = access_of(options.access, alone=how.has_accounts)
    except (WorkUnsafe, UsersUnfit, AccessImpossible, ValueError) as unsafe:
        parser.error(str(unsafe))
    with rotating(
        None if options.once else enrolled,
        options.state_dir.absolute(),
        lambda token: _uplink(options, token),
        days=options.rotate_days,
    ):
        return _run(options, uplink, how, _line(options, token), access, filler)


def _by_hand(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    """Do what needs neither a server nor a driver."""
    state_dir: Path = options.state_dir.absolute()
    if options.verb == "config":
        if not options.print:
            parser.error("config goes with --print: offpeak-agent config --print > FILE")
        print(template(parser), end="")
        return 0
    if options.now and options.verb != "release":
        parser.error("--now goes with release")
    if options.verb == "status":
        return show(state_dir, as_json=options.json)
    return speak(options.verb, state_dir, now=options.now)


def _filler(options: argparse.Namespace) -> FillerCommand | None:
    """Return what the owner runs in gaps. Raises: ValueError."""
    if options.filler is None:
        return None
    if options.filler_user:
        named(options.filler_user)
        if os.geteuid() != 0:
            raise ValueError(
                "only root can run the filler as another user: leave --filler-user out"
            )
    return FillerCommand(options.filler, options.filler_user)


def _line(options: argparse.Namespace, token: Token) -> Line:
    return Line(server=options.server, token=token, ca_file=options.ca_file)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="offpeak-agent", description="Offpeak on a GPU host.")
    parser.add_argument("--version", action="version", version=VERSION)
    parser.add_argument("verb", choices=["run", "doctor", "config", *WORDS, "status"],
                        help="run the agent, check the host, print a configuration file; the "
                        "owner's hand: pause, drain, release, resume; status")  # fmt: skip
    parser.add_argument("--config", metavar="FILE", type=Path, help="options as TOML; "
                        f"{PLACE} where it is there")  # fmt: skip
    _add_hand(parser)
    parser.add_argument("--server", help=f"base URL of the market; otherwise that of `enrol`, or "
                        f"{SERVER}")  # fmt: skip
    parser.add_argument("--token-file", type=Path, help=f"file with the host's token; otherwise "
                        f"{TOKEN_VARIABLE}, or that of `enrol`")  # fmt: skip
    parser.add_argument("--rotate-days", type=days, default=DAYS, metavar="N", help="age at which "
                        "the token of `enrol` gives way to a new one; 0: never")  # fmt: skip
    parser.add_argument("--checkpoint-seconds", type=positive, default=60, metavar="N",
                        help="what work saves is kept and reported no more often")  # fmt: skip
    parser.add_argument("--diagnostics", choices=LEVELS, default="short", help="how thoroughly "
                        "cards are probed between leases")  # fmt: skip
    parser.add_argument("--state-dir", type=Path, default=STATE_DIR, help="spool and leases")
    parser.add_argument("--hostname", default=socket.gethostname(), help="name shown to the owner")
    parser.add_argument("--access", choices=ACCESS, help="what consumers may reach of their work: "
                        "nothing, its ports, or a shell too; the last where the extra `access` is "
                        "installed and work has accounts of its own")  # fmt: skip
    _add_work(parser)
    parser.add_argument(
        "--mps-pipe-dir",
        type=Path,
        help="where a control daemon of MPS listens that you run, for shares by MPS; without it "
        f"that at {PIPE_DIRECTORY}, and where none is the agent runs one for each card",
    )
    parser.add_argument("--simulate", metavar="MODELS", type=saying(parse_models),
                        help="pretend to have GPUs, such as H100:8, H100@mig:4,L4:2")  # fmt: skip
    parser.add_argument("--ca-file", type=Path, help="certificates to trust for the server")
    parser.add_argument("--allow-plain-http", action="store_true", help="beyond this machine too")
    parser.add_argument("--once", action="store_true", help="one round, then end")
    parser.add_argument("--verbose", action="store_true")
    return parser


def _add_hand(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--now", action="store_true", help="of release: without the work's grace")
    parser.add_argument("--json", action="store_true", help="of status: as JSON")
    parser.add_argument("--print", action="store_true", help="of config: write it to the output")
    parser.add_argument("--filler", metavar="CMD", type=saying(read_command), help="the owner's "
                        "own command, run on each card that no lease has")  # fmt: skip
    parser.add_argument("--filler-user", metavar="NAME", default="", help="account that the "
                        "filler runs as; the agent's own without")  # fmt: skip
    parser.add_argument("--metrics", metavar="ADDRESS", type=saying(read_address), help="serve "
                        "/metrics for Prometheus there, such as 127.0.0.1:9400")  # fmt: skip


def _add_work(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--work-users", metavar="FIRST-LAST", help="accounts that leased work "
                        "runs as, one for each lease: a range of numbers, or names")  # fmt: skip
    parser.add_argument("--work-user", metavar="NAME", help="one account for all leased work, of "
                        "one tenant at a time")  # fmt: skip
    parser.add_argument("--trust-work", action="store_true", help="let work run as the agent's "
                        "own user; as root with --simulate only")  # fmt: skip
    parser.add_argument("--confine", choices=["auto", "off"], default="auto",
                        help="use bubblewrap where it is installed")  # fmt: skip
    parser.add_argument("--work-network", choices=["private", "allow", "none", "host"],
                        default="private", help="of confined work: one of its own with a way to "
                        "public addresses, to those of a list, or none; or the host's")  # fmt: skip
    parser.add_argument("--allow-egress", metavar="HOST:PORT,…", type=saying(parse_all),
                        action="extend", default=[], help="names or networks that confined work "
                        "may connect to, such as models.example:443,10.1.0.0/16:*")  # fmt: skip
    parser.add_argument("--work-reads", metavar="FOLDER", type=folder, action="append",
                        default=[], help="one more folder that confined work may read")  # fmt: skip
    parser.add_argument("--runtimes", type=saying(_runtimes), default=(PROCESS,),
                        help="what work may run in: process, podman or both, or slurm")  # fmt: skip
    parser.add_argument("--images", metavar="FOLDER", type=folder, help="with images in it, for "
                        "work that names one of them by its digest")  # fmt: skip
    parser.add_argument("--registry", metavar="HOST", action="append", default=[],
                        help="that may be asked for images; may be repeated")  # fmt: skip
    parser.add_argument("--image-policy", metavar="FILE", type=file, help="signature policy "
                        "that images must meet, as of containers-policy.json(5)")  # fmt: skip
    parser.add_argument("--image-gib", metavar="N", type=positive, help="size of one image")
    parser.add_argument("--images-gib", metavar="N", type=positive, help="size of all images")
    parser.add_argument("--slurm-account", metavar="NAME", default=ACCOUNT, help="that jobs on "
                        "the cluster belong to")  # fmt: skip
    parser.add_argument("--slurm-partition", metavar="NAME", default="", help="that jobs go to")
    parser.add_argument("--slurm-node", metavar="NAME", help="this host on the cluster",
                        default=socket.gethostname().partition(".")[0])  # fmt: skip
    for name, text in {
        "processes": "processes and threads of one lease",
        "open-files": "open files of one process",
        "file-gib": "size of one file",
        "memory-gib": "memory of one lease",
        "disk-gib": "what one lease may write, on a file system of its own",
        "cpus": "cores that one lease may use at a time",
    }.items():
        parser.add_argument(f"--work-{name}", metavar="N", type=positive, help=text)


def _runtimes(text: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in text.split(","))
    if not set(found) <= set(RUNTIMES) or len(set(found)) != len(found):
        raise ValueError(f"one or more of {', '.join(RUNTIMES)}, with commas, not {text!r}")
    return found


def _wish(options: argparse.Namespace) -> Wish:
    bytes_max = BYTES_MAX if options.image_gib is None else options.image_gib * GIB
    return Wish(
        users=options.work_users,
        user=options.work_user,
        trusted=options.trust_work,
        pretended=bool(options.simulate),
        confine=options.confine == "auto",
        network=options.work_network,
        allowed=tuple(options.allow_egress),
        readable=tuple(options.work_reads),
        runtimes=options.runtimes,
        images=Sources(
            folder=options.images,
            registries=tuple(options.registry),
            policy=options.image_policy,
            bytes_max=bytes_max,
            all_bytes_max=options.images_gib * GIB if options.images_gib else ALL_BYTES_MAX,
        ),
        cluster=Slurm(
            node=options.slurm_node,
            account=options.slurm_account,
            partition=options.slurm_partition,
        ),
    )


def _limits(options: argparse.Namespace) -> Limits:
    asked = {
        "processes": options.work_processes,
        "open_files": options.work_open_files,
        "file_bytes": options.work_file_gib and options.work_file_gib * GIB,
        "disk_bytes": options.work_disk_gib and options.work_disk_gib * GIB,
        "cpus": options.work_cpus,
        "memory_bytes": options.work_memory_gib and options.work_memory_gib * GIB,
    }
    return Limits(**{name: most for name, most in asked.items() if most is not None})


def _proof(options: argparse.Namespace) -> tuple[Enrolled | None, Token]:
    """Return how this host is enrolled, if by `enrol`, and its token; empty when there is none.

    What the options leave out is as `enrol` kept it. The environment forgets the token.
    Raises: OSError, ValueError.
    """
    from_environment = os.environ.pop(TOKEN_VARIABLE, "").strip()
    enrolled = Enrolled.kept_in(options.state_dir.absolute())
    elsewhere = options.server is not None and enrolled and enrolled.server != options.server
    if options.token_file is not None:
        token: Token = TokenFile(options.token_file)
        if enrolled is not None and enrolled.token_file != options.token_file.absolute():
            enrolled = None
    elif from_environment or enrolled is None or elsewhere:
        enrolled, token = None, from_environment
    else:
        options.token_file = enrolled.token_file
        token = TokenFile(enrolled.token_file)
    if enrolled is not None:
        options.server = options.server or enrolled.server
        options.ca_file = options.ca_file or enrolled.ca_file
        options.allow_plain_http = options.allow_plain_http or enrolled.allow_plain_http
    options.server = options.server or SERVER
    return enrolled, token


def _uplink(options: argparse.Namespace, token: Token) -> HttpUplink:
    return HttpUplink(
        options.server,
        token,
        ca_file=options.ca_file,
        allow_plain_http=options.allow_plain_http,
    )


def _gpus(options: argparse.Namespace, clock: SystemClock, holders: Holders) -> Gpus:
    if options.simulate:
        return SimulatedGpus(
            options.simulate,
            clock=clock,
            holders=holders,
            seed=options.hostname,
            kept_in=options.state_dir.absolute(),
        )
    # Imported here, so that --simulate works on a host without the package.
    from .gpus.nvml import NvmlGpus

    return GuardedGpus(NvmlGpus())


def _doctor(options: argparse.Namespace, uplink: HttpUplink | None) -> int:
    checks = examine(
        make_gpus=lambda: _gpus(options, SystemClock(), dict),
        uplink=uplink,
        state_dir=options.state_dir,
        token_file=options.token_file,
        mps_pipe=options.mps_pipe_dir,
        wish=_wish(options),
        limits=_limits(options),
    )
    amiss = False
    for check in checks:
        print(check.line(), flush=True)
        amiss = amiss or check.fine is False
    return int(amiss)


def _run(
    options: argparse.Namespace,
    uplink: HttpUplink,
    how: WorkAs,
    line: Line,
    access: Access,
    filler: FillerCommand | None,
) -> int:
    state_dir: Path = options.state_dir.absolute()
    try:
        if how.users is not None and how.users.alone:
            claim(how.users.uids, CLAIMS)
        make_passable(state_dir)
        closed = closed_on_the_way(state_dir)
        if closed is not None and how.users is not None and how.confinement is not None:
            raise PermissionError(
                f"{closed} lets no account of leased work through: chmod o+x {closed}, or choose "
                "another --state-dir"
            )
        leases = state_dir / "leases"
        clock = SystemClock.kept_in(
            state_dir / "clock.json", work_runs=leases.is_dir() and any(leases.iterdir())
        )
        runtime = runtime_of(
            _wish(options),
            how,
            state_dir,
            clock=clock,
            limits=_limits(options),
            mps_pipe=options.mps_pipe_dir,
        )
        # A card of a cluster's node is never the agent's: the cluster may start a job on it.
        diagnostics: Level = "off" if SLURM in options.runtimes else options.diagnostics
        agent = Agent(
            AgentConfig(
                state_dir=state_dir,
                hostname=options.hostname,
                abilities=() if access == "off" else (ABILITY,),
                filler=filler,
                checkpoint_ms=options.checkpoint_seconds * 1000,
                diagnostics=diagnostics,
            ),
            gpus=_gpus(options, clock, runtime.holders),
            runtime=runtime,
            uplink=uplink,
            clock=clock,
            files=uplink,
            prober=prober_of(diagnostics, simulated_in=state_dir if options.simulate else None),
        )
    except (AlreadyRunning, WorkUnsafe, OSError, ImportError) as error:
        print(f"offpeak-agent: {error}", file=sys.stderr)
        return 1
    return _go_on(options, agent, line, access)


def _go_on(options: argparse.Namespace, agent: Agent, line: Line, access: Access) -> int:
    """Run an agent until it is told to stop, with all by which it is reached."""
    secret = options.state_dir.absolute() / "access.key"
    try:
        if options.once:
            agent.run_once()
            return int(bool(agent.courier.trouble))
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        with (
            listening(options.state_dir.absolute(), agent),
            exported(options.metrics, agent.status),
            tunnel_to(line, access, agent, secret=secret),
        ):
            agent.run(stop)
        return 0
    except OSError as error:
        print(f"offpeak-agent: {error}", file=sys.stderr)
        return 1
    finally:
        agent.close()


if __name__ == "__main__":
    sys.exit(main())
