"""
How many small errors in the formulas the tests notice: mutmut on a sample of changed numbers and signs.

usage: python tools/mutation.py [--mutants N] [--seed S] [--folder FOLDER] [--least SHARE] [FILE ...]

Works in a copy of the tree. Prints the share that was noticed by module and every change that was not; the exit status
is 1 below the least share. Without FILES: gpuguide/estimate and gpuguide/decide/cost.py.
"""

import argparse
import os
import random
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import libcst as cst
import libcst.matchers as m

ROOT = Path(__file__).resolve().parent.parent
FILES = ("gpuguide/estimate/*", "gpuguide/decide/cost.py")
TESTS = ("tests/estimate", "tests/decide/test_cost.py", "tests/decide/test_cost_by_hand.py")
"""Scores against measurements are left out: they would notice large errors alone, and take ten times as long."""
CONFIGURATION = """
[tool.mutmut]
source_paths = ["gpuguide"]
only_mutate = {files}
also_copy = ["data", "docs", "examples", "notebooks"]
pytest_add_cli_args = ["-q", "-x", "-p", "no:cacheprovider", "-m", "not browser and not notebook and not slow"]
pytest_add_cli_args_test_selection = {tests}
use_git_change_detection = false
timeout_multiplier = 60.0
"""
NO_SHRINKING = """
from hypothesis import Phase
settings.register_profile("noticed", parent=settings.get_profile("ci"), phases=[Phase.explicit, Phase.generate])
settings.load_profile("noticed")
"""
EXTREMES = {"minimum": "maximum", "maximum": "minimum", "ceil": "floor", "floor": "ceil"}
UNNOTICED = ("survived", "no tests")


# ---- what is changed: numbers, signs, comparisons and branches; a missing argument or a misspelt key fails anyway ----


def swap_branches(node: cst.Call) -> Iterator[cst.Call]:
    """np.where(a, b, c) becomes np.where(a, c, b)."""
    if m.matches(node.func, m.Attribute(attr=m.Name("where"))) and len(node.args) == 3:
        first, second, third = node.args
        yield node.with_changes(
            args=[first, second.with_changes(value=third.value), third.with_changes(value=second.value)]
        )


def swap_extremes(node: cst.Attribute) -> Iterator[cst.Attribute]:
    """np.minimum becomes np.maximum, np.ceil np.floor, and back."""
    if m.matches(node.value, m.Name("np")) and node.attr.value in EXTREMES:
        yield node.with_changes(attr=cst.Name(EXTREMES[node.attr.value]))


def drop_factor(node: cst.BinaryOperation) -> Iterator[cst.BaseExpression]:
    """A product loses its last factor; brackets stay, since it may span lines."""
    if isinstance(node.operator, cst.Multiply):
        left = node.left
        yield left.with_changes(lpar=[*node.lpar, *left.lpar], rpar=[*left.rpar, *node.rpar])


def prepare(folder: Path, files: list[str]) -> None:
    """A fresh copy of the tree that mutmut can work in, which becomes the working folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in ("gpuguide", "tests", "data", "docs", "examples", "notebooks"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    settings = CONFIGURATION.format(files=list(files), tests=list(TESTS)).replace("'", '"')
    (folder / "pyproject.toml").write_text(text + settings, encoding="utf-8")
    with (folder / "tests" / "conftest.py").open("a", encoding="utf-8") as file:
        file.write(NO_SHRINKING)
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    os.environ["CI"] = "true"  # the same examples are drawn each time


def ask_whole_files(mutmut: ModuleType) -> None:
    """
    Ask every test of a file in which any test runs the changed function.

    mutmut notes who called a function while tests ran one after the other; what a fixture of the whole file computes
    would count for its first test alone.
    """
    collect = mutmut.collect_or_load_stats

    def collect_whole_files(*args: object, **settings: object) -> None:
        collect(*args, **settings)
        tests_of: dict[str, set[str]] = {}
        for test in mutmut.state().duration_by_test:
            tests_of.setdefault(test.partition("::")[0], set()).add(test)
        callers = mutmut.state().tests_by_mangled_function_name
        for function, tests in callers.items():
            callers[function] = set().union(*(tests_of[test.partition("::")[0]] for test in tests))

    mutmut.collect_or_load_stats = collect_whole_files


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--mutants", type=int, default=300)
    words.add_argument("--seed", type=int, default=1)
    words.add_argument("--folder", type=Path, default=ROOT / "build" / "mutation")
    words.add_argument("--least", type=float, default=0.9)
    words.add_argument("files", nargs="*", default=list(FILES))
    asked = words.parse_args()
    prepare(asked.folder.resolve(), asked.files)

    # It reads its settings from the working folder when it is imported.
    from mutmut import __main__ as mutmut
    from mutmut.mutation import mutators
    from mutmut.stats import status_by_exit_code

    mutators.mutation_operators[:] = [
        (cst.BaseNumber, mutators.operator_number),
        (cst.Name, mutators.operator_name),
        (cst.UnaryOperation, mutators.operator_remove_unary_ops),
        (cst.CSTNode, mutators.operator_keywords),
        (cst.CSTNode, mutators.operator_swap_op),
        (cst.IfExp, mutators.operator_if_exp),
        (cst.Call, swap_branches),
        (cst.Attribute, swap_extremes),
        (cst.BinaryOperation, drop_factor),
    ]
    ask_whole_files(mutmut)
    Path("mutants").mkdir(exist_ok=True)
    mutmut.copy_src_dir()
    mutmut.copy_also_copy_files()
    mutmut.setup_source_paths()
    mutmut.create_mutants(1)
    every = sorted(name for _, name, _ in mutmut.collect_source_file_mutation_data(mutant_names=())[0])
    chosen = random.Random(asked.seed).sample(every, min(asked.mutants, len(every)))
    mutmut.run.callback(chosen, max_children=1)
    results = mutmut.collect_source_file_mutation_data(mutant_names=chosen)[0]
    outcomes = {name: status_by_exit_code[code] for _, name, code in results}

    missed = sorted(name for name, outcome in outcomes.items() if outcome in UNNOTICED)
    for name in missed:
        print(mutmut.get_diff_for_mutant(name))
    tried = Counter(name.rpartition(".")[0] for name in outcomes)
    lost = Counter(name.rpartition(".")[0] for name in missed)
    for module, count in sorted(tried.items()):
        print(f"{module:<40} {count - lost[module]:>4} of {count:>4} noticed")
    share = 1 - len(missed) / len(outcomes)
    print(f"\n{len(outcomes) - len(missed)} of {len(outcomes)} sampled from {len(every)} were noticed: {share:.1%}")
    return int(share < asked.least)


if __name__ == "__main__":
    sys.exit(main())
