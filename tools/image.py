"""
Carry out deploy/Containerfile where no container engine runs, start what it made, and write down what was found.

usage: python tools/image.py FOLDER        as root on Linux; `make image` runs it and judges FOLDER/report.json

Every instruction is carried out as it stands, in a root of its own: layers in memory (about 2 GB) over this machine's
system folders, in namespaces that end with this program, so that nothing outside changes and nothing stays. The result
is started as `--read-only --tmpfs /tmp` would, without any network but its own loopback. Two things differ from an
engine:

- The base image is not fetched. This machine's system stands in for its Debian, less people, homes, compilers, git and
  Pythons; a Python of this machine is copied to /usr/local, of the recipe's version where there is one.
- Where pip and uv find packages, and whom they trust, is taken from this machine's settings while RUN runs.
"""

import contextlib
import ctypes
import fcntl
import html
import json
import os
import re
import shlex
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
RECIPE = ROOT / "deploy" / "Containerfile"
KNOWN = ("FROM", "WORKDIR", "ENV", "COPY", "RUN", "USER", "EXPOSE", "CMD")
BASE = re.compile(r"(?:.*/)?python:(3\.\d+)-slim")
UNSHARE = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]

SYSTEM = ("bin", "etc", "lib", "lib32", "lib64", "libx32", "opt", "sbin", "usr", "var")
"""Folders of this machine that are seen; in /opt a company may keep packages. Everything else in / is hidden."""
EMPTY = ("dev", "home", "mnt", "proc", "root", "run", "srv", "sys", "tmp", "usr/local", "var/cache", "var/tmp")
TOOLS = (
    "*python*", "pip*", "uv*", "cc", "c++", "gcc*", "g++*", "clang*", "make", "cmake", "git", "cargo", "rustc", "node",
)  # fmt: skip
"""Programs in /usr/bin that the slim base image does not have."""
PATH = "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
SETTINGS = re.compile(
    r"(PIP|UV)_\w*(INDEX|LINKS|HOST|CERT|TLS|TIMEOUT|RETRIES)\w*"
    r"|(HTTPS?|ALL|NO)_PROXY|SSL_CERT_(FILE|DIR)|(REQUESTS|CURL)_CA_BUNDLE",
    re.IGNORECASE,
)
DEVICES = {"null": 3, "zero": 5, "full": 7, "random": 8, "urandom": 9}
FOUND = """
import importlib.metadata as m, json, platform
from gpuguide.app.serve import notebooks_folder
print(json.dumps({
    "python": platform.python_version(), "notebooks": str(notebooks_folder()),
    "packages": {one.metadata["Name"]: one.version for one in m.distributions()},
}))
"""


class Instruction(NamedTuple):
    """One instruction of a recipe."""

    word: str
    rest: str


@dataclass
class Stage:
    """What stands after a FROM, and what the instructions after it have set."""

    root: Path
    layers: list[Path]
    """From the topmost down."""
    settings: dict[str, str]
    folder: str = "/"
    user: str = "0"
    command: list[str] = field(default_factory=list)

    def inside(self, words: list[str], more: dict[str, str] | None = None) -> list[str]:
        """A command that runs in this root with nothing but its own settings."""
        uid, gid, home = person(self.root, self.user)
        settings = {"HOME": home} | (more or {}) | self.settings
        return [
            "chroot", f"--userspec={uid}:{gid}", str(self.root), "/usr/bin/env", "-i", "-C", self.folder,
            *(f"{name}={value}" for name, value in settings.items()), *words,
        ]  # fmt: skip


# ---- the recipe and its ignore file ----------------------------------------------------------------------------------


def instructions(text: str) -> list[Instruction]:
    """
    Instructions of a container recipe, in order.

    Raises
    ------
    SystemExit
        If there is one that this tool cannot carry out.
    """
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    found = []
    for line in filter(str.strip, "\n".join(lines).replace("\\\n", " ").splitlines()):
        word, rest = line.split(maxsplit=1)
        if word not in KNOWN:
            raise SystemExit(f"tools/image.py cannot carry out {word}; it knows {', '.join(KNOWN)}")
        # Options and lists of words mean something of their own; of those, only what is handled below is let through.
        if rest.startswith(("--", "[")) != (word == "CMD" or rest.startswith("--from=")):
            raise SystemExit(f"tools/image.py cannot carry out {word} in the form {rest.split()[0]}")
        found.append(Instruction(word, rest.strip()))
    return found


def left_out(path: str, rules: list[str]) -> bool:
    """Whether an ignore file keeps a path of the checkout away from COPY: the last rule that fits decides."""
    out = False
    for rule in rules:
        pattern = re.escape(rule.removeprefix("!")).replace(r"\*\*/", "(?:.*/)?").replace(r"\*", "[^/]*")
        if re.fullmatch(f"{pattern}(?:/.*)?", path):
            out = not rule.startswith("!")
    return out


def ignore_rules() -> list[str]:
    """Lines of .dockerignore, which podman reads too."""
    lines = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


# ---- roots -----------------------------------------------------------------------------------------------------------


def obstacle() -> str | None:
    """Why the recipe cannot be carried out on this machine, in one sentence."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "carrying out the recipe needs root on Linux"
    missing = [name for name in ("unshare", "chroot", "mount", "ldconfig") if not shutil.which(name)]
    if missing:
        return f"carrying out the recipe needs {missing[0]}, which is not on the PATH"
    overlay = "mount -t overlay overlay -o lowerdir=/,upperdir=/mnt/u,workdir=/mnt/w /mnt/m"
    trial = f"mount -t tmpfs tmpfs /mnt && mkdir /mnt/u /mnt/w /mnt/m && {overlay}"
    if subprocess.run([*UNSHARE, "sh", "-c", trial], capture_output=True, check=False).returncode:
        return "carrying out the recipe needs namespaces and overlay mounts, which this machine does not allow"
    if stand_in("") is None:
        return "carrying out the recipe needs a Python that stands in a folder of its own, not in /usr"
    return None


def stand_in(version: str) -> Path | None:
    """A Python to copy: of this version beside the one that runs here, else that one itself."""
    own = Path(sys.base_prefix)
    beside = sorted(own.parent.glob(f"*{version}.*/bin/python{version}")) if version else []
    for program in (*beside, own / "bin" / "python{}.{}".format(*sys.version_info)):
        if program.parents[1] != Path("/usr") and program.is_file():
            return program
    return None


def mount(*words: str | Path) -> None:
    """Mount in this program's own namespace."""
    subprocess.run(["mount", *map(str, words)], check=True)


def laid(at: Path, layers: list[Path], top: Path | None) -> Path:
    """A root of layers, writable if there is one to write to, with the system's own folders."""
    options = "lowerdir=" + ":".join(map(str, [*layers, Path("/")]))
    at.mkdir()
    if top:
        work = top.with_name(f"{top.name}.work")
        top.mkdir()
        work.mkdir()
        options += f",upperdir={top},workdir={work}"
    mount("-t", "overlay", "-o", options, "overlay", at)
    mount("-t", "proc", "proc", at / "proc")
    mount("-t", "sysfs", "-o", "ro", "sysfs", at / "sys")
    mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", at / "dev")
    mask = os.umask(0)
    for name, minor in DEVICES.items():
        os.mknod(at / "dev" / name, stat.S_IFCHR | 0o666, os.makedev(1, minor))
    (at / "dev" / "shm").mkdir(mode=0o1777)
    os.umask(mask)
    (at / "dev" / "fd").symlink_to("/proc/self/fd")
    return at


def base(layers: Path, version: str) -> list[Path]:
    """What stands in for the base image: this machine's system without what the image would not have, and Python."""
    hidden, python = layers / "base", layers / "python"
    hidden.mkdir()
    for name in EMPTY:
        (hidden / name).mkdir(parents=True)
        os.setxattr(hidden / name, "trusted.overlay.opaque", b"y")
    (hidden / "root").chmod(0o700)
    for name in ("tmp", "var/tmp"):
        (hidden / name).chmod(0o1777)
    (hidden / "usr" / "bin").mkdir()
    (hidden / "etc").mkdir()
    others = [path for path in Path("/").iterdir() if path.name not in (*SYSTEM, *EMPTY)]
    for path in (*others, *(path for name in TOOLS for path in Path("/usr/bin").glob(name))):
        if not os.path.lexists(hidden / path.relative_to("/")):
            os.mknod(hidden / path.relative_to("/"), stat.S_IFCHR, 0)  # as overlay marks what is gone
    # People have ids from 1000 on; the image has nobody yet.
    people = [line.split(":") for line in Path("/etc/passwd").read_text().splitlines()]
    gone = {words[0] for words in people if 1000 <= int(words[2]) < 60_000}
    for name in ("passwd", "shadow", "group", "gshadow"):
        before = Path("/etc", name)
        if before.exists():
            kept = [line for line in before.read_text().splitlines() if line.partition(":")[0] not in gone]
            shutil.copyfile(before, hidden / "etc" / name)
            (hidden / "etc" / name).write_text("\n".join(kept) + "\n")
            (hidden / "etc" / name).chmod(stat.S_IMODE(before.stat().st_mode))
    (hidden / "etc" / "resolv.conf").write_bytes(Path("/etc/resolv.conf").read_bytes())

    program = stand_in(version)
    if program is None:
        raise SystemExit(f"tools/image.py found no Python that can stand in for {version}")
    root = laid(layers / "python.root", [hidden], python)
    prefix, name, local = program.parents[1], program.name, root / "usr" / "local"
    shutil.copytree(
        prefix / "lib" / name, local / "lib" / name,
        ignore=shutil.ignore_patterns("site-packages", "test", "__pycache__"), symlinks=True,
    )  # fmt: skip
    (local / "lib" / name / "site-packages").mkdir()
    for library in (prefix / "lib").glob("libpython*.so*"):
        shutil.copy2(library, local / "lib", follow_symlinks=False)
    (local / "bin").mkdir()
    shutil.copy2(program, local / "bin" / name)
    for short in ("python3", "python"):
        (local / "bin" / short).symlink_to(name)
    stage = Stage(root, [], {"PATH": PATH})
    subprocess.run(stage.inside(["ldconfig"]), check=True)
    subprocess.run(stage.inside(["python", "-m", "ensurepip", "--default-pip"]), check=True, stdout=subprocess.DEVNULL)
    return [python, hidden]


def person(root: Path, user: str) -> tuple[int, int, str]:
    """Number, group and home of who is named, as the root knows them."""
    for line in (root / "etc" / "passwd").read_text().splitlines():
        name, _, uid, gid, _, home, _ = line.split(":")
        if user in (name, uid):
            return int(uid), int(gid), home
    return int(user), 0, "/"


# ---- carrying it out -------------------------------------------------------------------------------------------------


def carry_out(recipe: list[Instruction], layers: Path, seconds: dict[str, float]) -> Stage:
    """The last stage of the recipe, all instructions done."""
    stages: dict[str, Stage] = {}
    stand_ins: dict[str, list[Path]] = {}
    for word, rest in recipe:
        print(f"{word} {rest}", flush=True)
        started = time.monotonic()
        if word == "FROM":
            image, name = rest.split()[0], rest.split()[2] if " " in rest else str(len(stages))
            if not (named := BASE.fullmatch(image)):
                raise SystemExit(f"tools/image.py has nothing that stands in for the base image {image}")
            if image not in stand_ins:
                stand_ins[image] = base(layers, named[1])
            under, top = stand_ins[image], layers / f"stage-{name}"
            stage = Stage(laid(layers / f"{top.name}.root", under, top), [top, *under], {"PATH": PATH})
            stages[name] = stage
        elif word == "WORKDIR":
            stage.folder = os.path.join(stage.folder, rest)  # noqa: PTH118 - a path of the image
            (stage.root / stage.folder.lstrip("/")).mkdir(parents=True, exist_ok=True)
        elif word == "ENV":
            for pair in shlex.split(rest):
                name, _, value = pair.partition("=")
                known = dict(stage.settings)
                stage.settings[name] = re.sub(r"\$\{?(\w+)\}?", lambda found: known.get(found[1], ""), value)  # noqa: B023
        elif word == "COPY":
            copy(stage, rest.split(), stages)
        elif word == "RUN":
            run(stage, rest)
        elif word == "USER":
            stage.user = rest
        elif word == "CMD":
            stage.command = json.loads(rest)
        seconds[f"{word} {rest}"] = round(time.monotonic() - started, 1)
    return stage


def copy(stage: Stage, words: list[str], stages: dict[str, Stage]) -> None:
    """Files of the checkout, less what the ignore file leaves out, or of an earlier stage."""
    source, rules = ROOT, ignore_rules()
    if words[0].startswith("--"):
        name = words.pop(0).removeprefix("--from=")
        if name not in stages:
            raise SystemExit(f"tools/image.py cannot copy from {name}, which is no earlier stage of the recipe")
        source, rules = stages[name].root, []
    *names, target = words
    place = stage.root / os.path.join(stage.folder, target).lstrip("/")  # noqa: PTH118 - a path of the image
    for name in (name.lstrip("/") for name in names):
        if left_out(name, rules):
            raise SystemExit(f"COPY {name} cannot work: .dockerignore leaves it out")

        def hidden(folder: str, names: list[str]) -> set[str]:
            here = Path(folder).relative_to(source)
            return {name for name in names if left_out((here / name).as_posix(), rules)}

        if (source / name).is_dir():
            shutil.copytree(source / name, place, symlinks=True, dirs_exist_ok=True, ignore=hidden)
        else:
            goal = place / Path(name).name if target.endswith("/") or len(names) > 1 else place
            goal.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source / name, goal)


def run(stage: Stage, line: str) -> None:
    """A RUN line in the shell of the stage; where packages are found is this machine's affair."""
    passed = {name: value for name, value in os.environ.items() if SETTINGS.fullmatch(name)}
    status = subprocess.run(stage.inside(["/bin/sh", "-c", line], passed), check=False).returncode
    if status:
        raise SystemExit(f"RUN {line} ended with {status}; what it printed stands above")


# ---- looking at what it made -----------------------------------------------------------------------------------------


def alone() -> None:
    """Leave every network but a loopback of one's own: what is started next can reach and disturb nobody."""
    if ctypes.CDLL(None, use_errno=True).unshare(0x40000000):  # CLONE_NEWNET
        raise OSError(ctypes.get_errno(), "no network namespace")
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh22x", b"lo", 0x1))  # SIOCSIFFLAGS, IFF_UP


def answer(path: str, language: str = "en", timeout_s: float = 180) -> tuple[int, str]:
    """Status and text of an address of the started container."""
    request = urllib.request.Request(f"http://127.0.0.1:8866{path}", headers={"Accept-Language": language})
    with urllib.request.urlopen(request, timeout=timeout_s) as reply:
        return reply.status, reply.read().decode()


def processes(namespace: str) -> Iterator[Path]:
    """Folders in /proc of what runs in a process namespace."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if str((folder / "ns" / "pid").readlink()) == namespace:
                yield folder
        except OSError:  # it has just ended
            continue


def look(stage: Stage, layers: Path) -> dict[str, Any]:
    """Start the command as the user of the recipe, with only /tmp to write to, ask for pages, and stop it again."""
    stage.root = laid(layers / "started", stage.layers, None)
    mount("-t", "tmpfs", "-o", "mode=1777", "tmpfs", stage.root / "tmp")
    found: dict[str, Any] = json.loads(subprocess.check_output(stage.inside(["python", "-c", FOUND])))
    environment = stage.root / "opt" / "gpuguide"
    files = {(seen.st_ino, seen.st_size) for path in environment.rglob("*") if (seen := path.lstat())}
    found["size_bytes"] = sum(size for _, size in files)
    found["programs"] = sorted(path.name for path in stage.root.glob("*/*/bin/*"))
    search = ["find", "/", "-xdev", "-writable", "-not", "-type", "l"]
    found["writable"] = subprocess.run(
        stage.inside(search), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False
    ).stdout.split()

    alone()
    found["interfaces"] = [name for _, name in socket.if_nameindex()]
    started = time.monotonic()
    # Process number 1, as in a container: nobody answers a signal for it.
    process = subprocess.Popen(
        ["unshare", "--pid", "--fork", "--kill-child", f"--mount-proc={stage.root}/proc", *stage.inside(stage.command)]
    )
    try:
        while True:
            try:
                found["style"] = answer("/gpuguide/static/page.css")[0]
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > started + 120:
                    raise SystemExit("the container did not start; what it printed stands above") from None
                time.sleep(0.2)
        found["start_s"] = round(time.monotonic() - started, 1)
        found["pages"] = []
        for path in ("/", "/memory"):
            for language in ("en", "tr"):
                asked = time.monotonic()
                status, text = answer(path, language)
                titles = re.findall(r'<h1 id="gg-question"[^>]*>(.*?)</h1>', text)
                found["pages"].append(
                    {"path": path, "language": language, "status": status, "titles": list(map(html.unescape, titles)),
                     "seconds": round(time.monotonic() - asked, 1)}
                )  # fmt: skip
        server = int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text())
        namespace = str(Path(f"/proc/{server}/ns/pid").readlink())
        found["command"] = Path(f"/proc/{server}/cmdline").read_text().split("\0")[:-1]
        said = "".join((folder / "status").read_text() for folder in processes(namespace))
        found["users"] = sorted({int(uid) for uid in re.findall(r"^Uid:\t(\d+)", said, re.MULTILINE)})
        found["capabilities"] = sorted({int(held, 16) for held in re.findall(r"^CapEff:\t(\w+)", said, re.MULTILINE)})
        stopped = time.monotonic()
        os.kill(server, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(60)
        found["stop_s"] = round(time.monotonic() - stopped, 1)
        found["left"] = len(list(processes(namespace)))
    finally:
        process.kill()  # and with it what it started
        process.wait()
    return found


def main(folder: Path) -> None:
    """Carry out and look, in namespaces of our own."""
    if os.getpid() != 1:
        if why := obstacle():
            raise SystemExit(f"tools/image.py: {why}")
        os.execvp(UNSHARE[0], [*UNSHARE, sys.executable, __file__, str(folder.resolve())])
    layers = folder / "layers"
    layers.mkdir()
    mount("-t", "tmpfs", "tmpfs", layers)
    seconds: dict[str, float] = {}
    stage = carry_out(instructions(RECIPE.read_text("utf-8")), layers, seconds)
    report = {"seconds": seconds, "memory_bytes": shutil.disk_usage(layers).used} | look(stage, layers)
    (folder / "report.json").write_text(json.dumps(report, indent=1))
    print(
        f"Python {report['python']}, {len(report['packages'])} packages, {report['size_bytes'] / 1e6:.0f} MB in "
        f"/opt/gpuguide; carried out in {sum(seconds.values()):.0f} s with {report['memory_bytes'] / 1e9:.1f} GB of "
        f"memory; serves after {report['start_s']} s, answers with a page within "
        f"{max(page['seconds'] for page in report['pages'])} s, ends in {report['stop_s']} s"
    )


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: python tools/image.py FOLDER")
    main(Path(sys.argv[1]))
