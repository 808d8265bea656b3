"""What the pages say is what the package does: produced parts are fresh, blocks run, citations lead somewhere."""

import ast
import doctest
import importlib
import importlib.util
import io
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpuguide import cli

ROOT = Path(__file__).resolve().parents[2]
MINE = [ROOT / "README.md", ROOT / "README.tr.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [pytest.param(path, id=path.relative_to(ROOT).as_posix()) for path in MINE]
FENCE = re.compile(
    r"(?:<!-- not run: (?P<why>[^>]+) -->\n)?^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)
FOREVER = ("app", "lab", "refresh")
"""Commands that serve until stopped or need a network: asked for their help instead."""

specification = importlib.util.spec_from_file_location("docs_tool", ROOT / "tools" / "docs.py")
docs_tool = importlib.util.module_from_spec(specification)
specification.loader.exec_module(docs_tool)


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


# ---- produced parts --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PAGES)
def test_produced_parts_are_fresh(path: Path) -> None:
    """A docstring, field, key or column changed and the page still says the old: run `make docs`."""
    text = text_of(path)
    parts = {match["name"] for match in docs_tool.PART.finditer(text)} - {"licences", "accuracy"}

    for match in docs_tool.PART.finditer(text):
        if match["name"] in parts:
            assert match[0] == docs_tool.produced(match[0], slow=False), (
                f"{path.name}: part {match['name']}; run: make docs"
            )


def test_licences_are_those_of_what_is_installed() -> None:
    """Versions and systems differ, so that only packages installed here are compared."""
    page = text_of(ROOT / "docs" / "licences.md")
    named = {line.split(" | ")[0].strip("| ").casefold() for line in page.splitlines() if line.startswith("| ")}

    assert not [
        name
        for name in docs_tool.needed_packages()
        if name not in {n.replace("_", "-").replace(".", "-") for n in named}
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["README.md", "README.tr.md"])
def test_accuracy_table_of_the_readme_is_true(name: str) -> None:
    """The figures a reader is promised: within two points, or a tenth, of what `gpuguide accuracy` says now."""
    shown = re.search(r"<!-- begin accuracy.*?-->\n(.*?)<!-- end -->", text_of(ROOT / name), re.DOTALL)
    assert shown
    language = "tr" if ".tr." in name else "en"
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in shown[1].splitlines()[2:]]
    found = docs_tool.scores()

    assert len(rows) == len(found)
    for row, (table, figures) in zip(rows, found.items(), strict=True):
        what = docs_tool.WHAT[table][language == "tr"] if table in docs_tool.WHAT else table
        assert row[0] == what
        assert int(row[1]) == pytest.approx(figures["scored"], rel=0.1)
        for cell, key in zip(row[2:], ("median_abs_error", "p90_abs_error", "within_band"), strict=True):
            assert float(re.sub(r"[% ]", "", cell)) == pytest.approx(100 * figures[key], abs=2.0, rel=0.1), (table, key)


# ---- citations and links ---------------------------------------------------------------------------------------------


def headings(path: Path) -> set[str]:
    return {line.lstrip("#").strip() for line in text_of(path).splitlines() if line.startswith("#")}


def test_every_cited_section_exists() -> None:
    """A docstring that sends its reader to a section which is not there."""
    cited = set()
    for path in (ROOT / "gpuguide").rglob("*.py"):
        flat = " ".join(text_of(path).split())
        cited |= set(re.findall(r'`docs/formulas\.md`, "([^"]+)"', flat))

    assert len(cited) > 20
    assert cited <= headings(ROOT / "docs" / "formulas.md")


def test_every_formula_is_on_the_page() -> None:
    """A public function of `estimate` or `decide` without a line in the documentation: run `make docs`."""
    page = text_of(ROOT / "docs" / "formulas.md")
    public = [
        f"`{layer}.{path.stem}.{node.name}`"
        for layer in ("estimate", "decide")
        for path in (ROOT / "gpuguide" / layer).glob("*.py")
        for node in docs_tool.public_functions(f"gpuguide.{layer}.{path.stem}")
    ]

    assert len(public) > 100
    assert not [name for name in public if name not in page]


def test_modules_and_classes_that_pages_name_exist() -> None:
    """A page that names a file which was moved."""
    for path in MINE:
        for name in re.findall(r"`((?:gpuguide|data|tests|tools|docs|notebooks)/[\w./-]+)`", text_of(path)):
            target = ROOT / name
            assert target.exists() or list(target.parent.glob(f"{target.name}*")), f"{path.name}: {name}"


@pytest.mark.parametrize("path", PAGES)
def test_links_between_files_lead_somewhere(path: Path) -> None:
    """Links to other pages, their sections, and pictures."""
    for target in re.findall(r"\]\((?!https?://|mailto:)([^)\s]+)\)", text_of(path)):
        name, _, section = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        assert file.exists(), target
        if section:
            anchors = {re.sub(r"[^\w -]", "", heading.casefold()).replace(" ", "-") for heading in headings(file)}
            assert section in anchors, target


# ---- blocks run ------------------------------------------------------------------------------------------------------


def blocks(path: Path, *kinds: str) -> list[tuple[str, str | None]]:
    return [(found["text"], found["why"]) for found in FENCE.finditer(text_of(path)) if found["kind"] in kinds]


@pytest.mark.parametrize("path", PAGES)
def test_python_blocks_run(path: Path) -> None:
    """Blocks of one page share their names, as a reader would type them one after the other."""
    names: dict[str, object] = {"__name__": "page"}
    for text, why in blocks(path, "python"):
        if why:
            ast.parse(text)
        elif ">>>" in text:
            test = doctest.DocTestParser().get_doctest(text, names, path.name, str(path), 0)
            said = io.StringIO()
            runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
            runner.run(test, out=said.write, clear_globs=False)
            names.update(test.globs)
            assert not said.getvalue()
        else:
            exec(compile(text, str(path), "exec"), names)


def commands(path: Path) -> list[tuple[str, str | None]]:
    """Lines that call gpuguide, as a shell would read them: continued lines joined, comments and pipes left out."""
    found = []
    for text, why in blocks(path, "console", "bash", "sh", "shell", ""):
        prompted = "\n$ " in f"\n{text}"
        for line in text.replace("\\\n", " ").splitlines():
            if prompted and not line.startswith("$ "):
                continue
            words = shlex.split(line.removeprefix("$ "), comments=True)
            for sign in ("|", ">", "&&"):
                words = words[: words.index(sign)] if sign in words else words
            if words and words[0] == "gpuguide":
                found.append((shlex.join(words[1:]), why))
    return found


EXAMPLES = {
    example
    for one in cli.app.registered_commands
    for example in re.findall(r"Example: `gpuguide ([^`]+)`", one.callback.__doc__ or "")
}
"""What the help of each command shows."""
COMMANDS = sorted(
    {(command, why) for path in MINE for command, why in commands(path)} | {(e, None) for e in EXAMPLES}, key=str
)
ALONE = ("report", "sweep")
"""Commands that start kernels or workers: each gets a process of its own."""


@pytest.fixture
def reader(tmp_path: Path) -> Path:
    """A folder as a reader has it: the examples, and some runs of one's own."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    two = text_of(ROOT / "examples" / "scenarios.jsonl").splitlines(keepends=True)[:2]  # each starts a kernel
    (tmp_path / "scenarios.jsonl").write_text("".join(two), encoding="utf-8")
    (tmp_path / "my-runs").mkdir()
    lines = text_of(ROOT / "data" / "measurements" / "training_memory.csv").splitlines(keepends=True)
    (tmp_path / "my-runs" / "training_memory.csv").write_text("".join(lines[:60]), encoding="utf-8")
    (tmp_path / "job.toml").write_text('workload = "lora"\nmodel = "llama-3.1-8b"\n', encoding="utf-8")
    (tmp_path / "mine.toml").write_text("training_memory_activations = 1.1\n", encoding="utf-8")
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(("command", "why"), COMMANDS, ids=[command for command, _ in COMMANDS])
def test_commands_run(command: str, why: str | None, reader: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each ends with status 0; those that serve for ever, or are marked as not run, at least show their help."""
    words = shlex.split(command)
    if why or words[0] in FOREVER:
        words = [words[0], "--help"]
    monkeypatch.chdir(reader)
    if words[0] in ALONE:
        done = subprocess.run([sys.executable, "-m", "gpuguide", *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return
    monkeypatch.setattr(sys, "argv", ["gpuguide", *words])

    with pytest.raises(SystemExit) as ended:
        cli.main()

    assert (ended.value.code or 0) == 0


def test_examples_are_there() -> None:
    """If no command was found the pattern is broken, not the pages."""
    assert len(COMMANDS) >= 6


@pytest.mark.parametrize("name", ["app", "test", "docs", "lock", "bench", "fast", "lint"])
def test_make_targets_of_the_pages_exist(name: str) -> None:
    """Every `make` word that a page uses."""
    targets = re.findall(r"^(\w+):", text_of(ROOT / "Makefile"), re.MULTILINE)
    used = {word for path in MINE for word in re.findall(r"(?:^|`)make (\w+)", text_of(path), re.MULTILINE)}

    assert name in targets
    assert used <= set(targets)


# ---- help ------------------------------------------------------------------------------------------------------------


def subcommands() -> list[str]:
    import typer.main

    return sorted(typer.main.get_command(cli.app).commands)


@pytest.mark.parametrize("name", subcommands())
def test_help_of_every_command_has_an_example_that_is_understood(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The example in a command's help names options that the command has."""
    callback = next(one.callback for one in cli.app.registered_commands if (one.name or one.callback.__name__) == name)
    example = re.search(r"`gpuguide ([^`]+)`", callback.__doc__ or "")
    assert example, f"the help of {name} has no example"
    monkeypatch.setattr(sys, "argv", ["gpuguide", name, "--help"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    help_text = capsys.readouterr().out

    assert (ended.value.code or 0) == 0
    assert shlex.split(example[1])[0] == name
    for option in re.findall(r"(?<=\s)--[a-z-]+", example[1]):
        assert option in help_text


# ---- two languages ---------------------------------------------------------------------------------------------------


def test_the_two_readmes_have_the_same_parts() -> None:
    """A section, block or picture that one language lacks."""
    english, turkish = text_of(ROOT / "README.md"), text_of(ROOT / "README.tr.md")

    def shape(text: str) -> tuple[int, list[str], list[str], int]:
        code = [found["text"] for found in FENCE.finditer(text)]
        bare = [re.sub(r"#.*", "", block).strip() for block in code]
        levels = [line.split(" ")[0] for line in FENCE.sub("", text).splitlines() if line.startswith("#")]
        return len(code), [re.sub(r"\s+", " ", block) for block in bare], levels, text.count("\n|")

    assert shape(english) == shape(turkish)


def test_the_first_screen_has_the_two_commands() -> None:
    """Who opens the page sees what it answers, and how to start it, before scrolling."""
    for name in ("README.md", "README.tr.md"):
        first = text_of(ROOT / name).splitlines()[:20]
        assert any(line.startswith("make app") for line in first)
        assert any(line.startswith("make test") for line in first)
