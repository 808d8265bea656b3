"""Errors on pages: every sentence that a check can say is said in the reader's language, and names what to do."""

import ast
import re
from pathlib import Path

import pytest

from gpuguide import Scenario, decide, load_catalog
from gpuguide.app.wording import error_sentence, said
from gpuguide.catalog import hub
from gpuguide.errors import DataError, GuideError, InvalidScenario, NotModelled, UnknownName
from gpuguide.text import Text, texts

PACKAGE = Path(__file__).parents[2] / "gpuguide"
TURKISH = Text("tr")
RAISED = {  # call, and which of its arguments are said
    "InvalidScenario": (2,), "NotModelled": (0, 1), "unmodelled": (0,), "wrong": (2,), "DataError": (3,), "fail": (0,),
}  # fmt: skip
KIND_FIRST = ("UnknownName", "row_named")
# What only the command line says, or what is wrong with the tables of the package itself.
NEVER_ON_A_PAGE = {"scenarios.py", "refresh.py", "package.py", "checks.py", "offers.py", "live.py", "own.py", "gpus.py"}
NEVER_ON_A_PAGE |= {"hunt.py", "links.py", "trend.py", "models.py"}
PUT_TOGETHER = {"7 because it 7", "7: a denoiser without 7", "7: a pipeline without 7", "the folder has 7"}
"""Of parts with words of their own: `finding.` has each whole that they make."""
ENGLISH = {
    "a", "an", "and", "are", "at", "be", "choose", "give", "has", "input", "is", "it", "must", "no", "not", "of", "or",
    "should", "than", "the", "there", "to", "valid", "with", "write",
}  # fmt: skip


def spoken(node):
    """An argument as it would be said, with 7 in the place of every value; None where it is not written here."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "7" for part in node.values)
    return None


def calls():
    for folder in ("spec", "catalog", "estimate", "decide", "text", "app"):
        for path in (PACKAGE / folder).rglob("*.py"):
            if path.name not in NEVER_ON_A_PAGE:
                for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                    if isinstance(node, ast.Call):
                        yield path, node, ast.unparse(node.func).rpartition(".")[2]


def raised():
    for _, node, name in calls():
        for place in RAISED.get(name, ()):
            sentence = spoken(node.args[place]) if len(node.args) > place else None
            if sentence and name == "InvalidScenario" and any(word.arg == "reason" for word in node.keywords):
                continue
            if sentence:
                yield sentence


@pytest.mark.parametrize("sentence", sorted({*raised()} - PUT_TOGETHER))
def test_every_sentence_of_a_check_has_words_in_turkish(sentence):
    """A new check would speak English on a Turkish page, or say nothing."""
    assert said(sentence, TURKISH)


@pytest.mark.parametrize(
    "sentence",
    [hub._unreachable(True), hub._unreachable(False), hub._broken(ValueError()), hub._broken(TimeoutError())]
    + [hub._status(status) for status in (None, 401, 404, 429, 503)],
)
def test_answers_of_the_hub_have_words_in_turkish(sentence):
    """Sentences that are put together elsewhere."""
    assert said(sentence, TURKISH)


def test_every_kind_of_name_has_a_word():
    """'There is no recipe' half in another language."""
    kinds = {spoken(node.args[0]) for _, node, name in calls() if name in KIND_FIRST and node.args} - {None}
    kinds -= {"text", "assumption"}  # names in our own code and files
    assert kinds
    assert {kind for kind in kinds if f"kind.{kind}" not in texts("tr")} == set()


def test_findings_are_told_apart():
    """A sentence taken for another would say something else in Turkish."""
    for key, words in texts("en").items():
        if key.startswith("finding."):
            number = re.sub(r"\{\w+\}", "7", str(words))
            assert said(number, TURKISH) == re.sub(r"\{\w+\}", "7", str(texts("tr")[key])), key


WRONG = ["abc", -1, 1e30, 10**400, "9" * 5000, float("nan"), 1.5, [[]], {"a": 1}, "x" * 600, b"\xff", object()]


def english_of(sentence, value):
    """English words of a sentence, apart from the value and the label that it repeats."""
    words = sentence.partition("olamaz")[2] or sentence
    return ENGLISH & set(re.findall(r"[a-zçğıöşü]+", words.casefold().replace(str(value).casefold(), "")))


@pytest.mark.parametrize("field", Scenario.model_fields)
def test_no_wrong_value_is_answered_in_english(field):
    """The whole of a scenario, each key with what it cannot be."""
    sentences = []
    for value in WRONG:
        try:
            scenario = Scenario.from_mapping({field: value})
            if field != "model":  # where pages are served, no path is opened
                decide(load_catalog().resolve(scenario))
        except GuideError as error:
            sentences.append((error_sentence(error, TURKISH), value))
    assert sentences
    for sentence, value in sentences:
        assert not english_of(sentence, value), sentence
        assert re.search(r"olamaz: .+\.$|adında bir .+ yok", sentence), sentence


TOGETHER = [  # values that cannot stand together, and a word of the reason
    ({"model": "llama-3.1-8b", "max_context": 999_999}, "131.072 token okur"),
    ({"prompt_tokens": 9000, "output_tokens": 9000, "max_context": 100}, "birlikte 18.000 token"),
    ({"workload": "qlora", "lora_rank": 60_000, "model": "llama-3.1-8b"}, "1.024 genişliğinde"),
    ({"workload": "full", "tensor_parallel": 7, "model": "llama-3.1-8b"}, "32 dikkat başlığını"),
    ({"workload": "full", "pipeline_parallel": 40, "model": "llama-3.1-8b"}, "32 katmanı"),
    ({"workload": "image", "model": "llama-3.1-8b"}, "dil modeli; Görüntü"),
    ({"workload": "lora", "lora_targets": ["nose"], "model": "llama-3.1-8b"}, "şunlardan seçin"),
    ({"model": "llama-3.1-8b", "params_b": 7}, "ya da parametre sayısı"),
    ({"concurrency": 3, "requests_per_s": 2}, "yalnızca birini"),
    ({"workload": "full", "global_batch": 2, "micro_batch": 4}, "4 dizisini"),
    ({"workload": "image", "model": "flux.1-dev", "frames": 9}, "tek karelik"),
    ({"currency": "EUR"}, "kurunu"),
    ({"pricing": "cash"}, "Talep üzerine, Spot"),
    ({"workload": "image", "model": "flux.1-dev", "width": 30_000, "height": 30_000}, "piksel için"),
]


@pytest.mark.parametrize(("values", "reason"), TOGETHER)
def test_what_cannot_stand_together_is_said_with_its_reason(values, reason):
    """'Not possible' alone leaves a reader to guess."""
    with pytest.raises(GuideError) as caught:
        decide(load_catalog().resolve(Scenario.from_mapping(values)))
    sentence = error_sentence(caught.value, TURKISH)
    assert reason in sentence
    assert not english_of(sentence, ""), sentence


ERRORS = [
    (UnknownName("model", "lama", ["llama-3.1-8b"]), "There is no model called “lama”. Did you mean llama-3.1-8b?"),
    (InvalidScenario("lora_rank", 9, "something new"), "LoRA rank = 9 is not possible: something new."),
    (NotModelled("sound", "use pictures"), "sound is not modelled yet: use pictures."),
    (DataError("a.gguf", None, None, "is cut off"), "a.gguf cannot be used: is cut off."),
    (DataError("a.csv", 3, "price", "is empty"), "a.csv, row 3, column price cannot be used: is empty."),
]


@pytest.mark.parametrize(("error", "expected"), ERRORS)
def test_errors_are_worded(error, expected):
    """A reader must learn what to do, in one sentence."""
    assert error_sentence(error, Text("en")) == expected


def test_a_finding_without_words_is_left_out_in_turkish():
    """Half a sentence in another language is worse than none."""
    assert error_sentence(InvalidScenario("lora_rank", 9, "something new"), TURKISH) == "LoRA derecesi = 9 olamaz."
    assert "yeni" not in error_sentence(NotModelled("a new thing", "x"), TURKISH)
