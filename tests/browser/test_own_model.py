"""A reader's own model in a real browser: paste, upload, wrong upload, hostile names, the link elsewhere."""

import json
import struct
import time
from pathlib import Path

import pytest

from gpuguide.catalog.package import data_folder

pytestmark = [pytest.mark.browser, pytest.mark.slow]

AXE = Path(__file__).parent / "axe" / "axe.min.js"
CONFIGS = data_folder() / "hf_configs"
GEMMA = CONFIGS / "gemma-3-27b.json"
HOSTILE = "<img src=x onerror='window.ran=1'><script>window.ran=1</script>"


def said(page):
    return " ".join(page.locator(".gg-verdict").inner_text().split())


def opened(visit, path="/memory", **size):
    page = visit.open(path, **(size or {"width": 1280}))
    page.locator(".gg-own summary").click()
    return page


def give(visit, page, text):
    page.get_by_label("Text of its config.json").fill(text)
    visit.after(page, page.get_by_role("button", name="Use this text").click)


def test_a_pasted_config_is_answered_and_its_link_shows_the_same(visit, chromium):
    """Paste, read the card, send the link: the friend sees the same numbers."""
    page = opened(visit)
    before = said(page)
    give(visit, page, GEMMA.read_text())
    assert "gemma3 is read: 27.43B parameters." in page.locator(".gg-own").get_by_role("status").inner_text()
    assert said(page) != before
    card = page.locator(".gg-card-architecture")
    assert "62: 10 with full attention and 52 with a window of 1,024 tokens" in card.inner_text()
    assert page.locator(".gg-c-model select option:checked").inner_text().split() == ["gemma3", "(your", "own)"]
    fresh = chromium.new_context(locale="en-US").new_page()
    fresh.goto(page.url, wait_until="commit")
    visit.settled(fresh)
    assert said(fresh) == said(page)
    assert fresh.locator(".gg-card-architecture").inner_text() == card.inner_text()
    fresh.context.close()
    assert not visit.complaints


def test_hostile_names_are_shown_and_run_nothing(visit):
    """A config from a stranger, on the page, in the comparison and in its charts."""
    page = opened(visit)
    page.on("dialog", lambda dialog: visit.complaints.append(dialog.message))
    give(visit, page, json.dumps(json.loads(GEMMA.read_text()) | {"_name_or_path": HOSTILE}))
    assert "<img src=x" in page.locator(".gg-card-architecture").inner_text()
    page.get_by_role("button", name="Pin to compare").click()
    page.get_by_role("link", name="Compare", exact=True).click()
    page.wait_for_url("**/compare?*")
    visit.settled(page)
    assert "<img src=x" in page.locator(".gg-compare thead").first.inner_text()
    assert page.evaluate("window.ran") is None
    assert page.locator("img").count() == 0
    assert not visit.complaints


def test_wrong_uploads_get_one_sentence_and_the_last_model_stays(visit, tmp_path):
    """A picture, a cut file, the weights: said in the page, and everything else goes on."""
    page = opened(visit)
    before, url = said(page), page.url
    picture, cut = tmp_path / "<b>cat.png", tmp_path / "config.json"
    picture.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(5_000_000))
    cut.write_text(GEMMA.read_text()[:300])
    for path, words in ((picture, "choose a config.json"), (cut, "is not JSON")):
        page.locator(".gg-own input[type=file]").set_input_files(path)
        alert = page.locator(".gg-own").get_by_role("alert").filter(has_text=words)
        alert.wait_for()
        assert path.name in alert.inner_text()
        assert (said(page), page.url) == (before, url)
    page.locator(".gg-own input[type=file]").set_input_files([GEMMA])
    page.locator(".gg-own").get_by_role("status").filter(has_text="is read").wait_for()
    assert said(page) != before
    assert not visit.complaints


def test_of_a_large_gguf_file_the_header_is_enough(visit, tmp_path):
    """Twenty gigabytes through a web socket would end the page."""
    path, words = tmp_path / "large.gguf", ["word"] * 500_000
    vocabulary = b"".join(struct.pack("<Q", len(word)) + word.encode() for word in words)
    values = {
        "block_count": 1, "embedding_length": 8192, "feed_forward_length": 512, "context_length": 4096,
        "attention.head_count": 64, "attention.head_count_kv": 8,
    }  # fmt: skip

    def text(word):
        return struct.pack("<Q", len(word)) + word.encode()

    metadata = text("general.architecture") + struct.pack("<I", 8) + text("llama")
    metadata += b"".join(text(f"llama.{key}") + struct.pack("<II", 4, value) for key, value in values.items())
    metadata += text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, len(words)) + vocabulary
    tensors = b""
    for place, name in enumerate(("token_embd", "blk.0.attn_q", "blk.0.attn_k", "blk.0.attn_v")):
        tensors += text(f"{name}.weight") + struct.pack("<IQQIQ", 2, 8192, 128_000, 1, place * 2 * 8192 * 128_000)
    with path.open("wb") as file:
        file.write(struct.pack("<4sIQQ", b"GGUF", 3, 4, len(values) + 2) + metadata + tensors)
        file.truncate(4 * 2 * 8192 * 128_000 + 10_000_000)  # sparse: 8 GB that take no room
    page = opened(visit)
    started = time.monotonic()
    page.locator(".gg-own input[type=file]").set_input_files(path)
    page.locator(".gg-own").get_by_role("status").filter(has_text="large is read").wait_for(timeout=60_000)
    assert time.monotonic() - started < 30
    assert "4.19B" in page.locator(".gg-card-architecture").inner_text()
    assert not visit.complaints


def test_an_endless_paste_is_refused_and_the_page_lives(visit):
    """What is too long for the web socket must not be sent."""
    page = opened(visit)
    before = said(page)
    page.evaluate("document.querySelector('.gg-own textarea').value = '1'.repeat(50_000_000)")
    page.get_by_role("button", name="Use this text").click()
    page.locator(".gg-own").get_by_role("alert").filter(has_text="at most 2,000,000").wait_for(timeout=60_000)
    assert said(page) == before
    visit.after(page, page.get_by_role("button", name="QLoRA of 70B").click)
    assert not visit.complaints


@pytest.mark.parametrize("language", ["en", "tr"])
def test_it_is_whole_on_a_phone_by_keyboard_and_for_screen_readers(visit, language):
    """Labels, focus, width, contrast: in both languages, light and dark."""
    page = visit.open(f"/serve?language={language}", width=390)
    page.locator(".gg-own summary").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.tagName") == "TEXTAREA"
    page.keyboard.insert_text(GEMMA.read_text())
    page.keyboard.press("Tab")
    visit.after(page, lambda: page.keyboard.press("Enter"))
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.type") == "file"
    page.keyboard.press("Tab")
    page.keyboard.insert_text("not an id")
    page.keyboard.press("Enter")
    page.locator(".gg-own").get_by_role("alert").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.add_script_tag(path=AXE)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        run = "axe.run({ runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'best-practice'] })"
        found = page.evaluate(f"async () => (await {run}).violations")
        assert not [violation["id"] for violation in found if violation["impact"] in ("serious", "critical")]
    assert not visit.complaints
