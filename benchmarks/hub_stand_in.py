"""A stand-in for the Hub on this machine: configs and weight headers of two models, no weights."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from measured import ROOT

LLAMA_2_7B = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 32000,
    "max_position_embeddings": 4096, "rms_norm_eps": 1e-05, "hidden_act": "silu", "tie_word_embeddings": False,
    "torch_dtype": "float16", "bos_token_id": 1, "eos_token_id": 2, "initializer_range": 0.02, "use_cache": True,
}  # fmt: skip
MODELS: dict[str, dict[str, Any]] = {
    "meta-llama/Llama-3.1-8B": json.loads((ROOT / "data/hf_configs/llama-3.1-8b.json").read_text("utf-8")),
    "meta-llama/Llama-2-7b-hf": LLAMA_2_7B,
}


def header(config: dict[str, Any]) -> bytes:
    """Start of a safetensors file with all tensors of a Llama, in 16 bit."""
    hidden, ffn, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    head = config.get("head_dim") or hidden // config["num_attention_heads"]
    query, key = head * config["num_attention_heads"], head * config["num_key_value_heads"]
    shapes = {"model.embed_tokens.weight": [vocab, hidden], "model.norm.weight": [hidden]}
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = [vocab, hidden]
    for layer in range(config["num_hidden_layers"]):
        name = f"model.layers.{layer}"
        shapes |= {
            f"{name}.self_attn.q_proj.weight": [query, hidden], f"{name}.self_attn.k_proj.weight": [key, hidden],
            f"{name}.self_attn.v_proj.weight": [key, hidden], f"{name}.self_attn.o_proj.weight": [hidden, query],
            f"{name}.mlp.gate_proj.weight": [ffn, hidden], f"{name}.mlp.up_proj.weight": [ffn, hidden],
            f"{name}.mlp.down_proj.weight": [hidden, ffn], f"{name}.input_layernorm.weight": [hidden],
            f"{name}.post_attention_layernorm.weight": [hidden],
        }  # fmt: skip
    tensors, offset = {}, 0
    for name, shape in shapes.items():
        size = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        tensors[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(tensors).encode()
    return len(text).to_bytes(8, "little") + text


class Handler(BaseHTTPRequestHandler):
    """The few addresses that estimators ask for."""

    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def log_message(self, *_: object) -> None:
        """Nothing."""

    def _answer(self, *, body: bool) -> None:
        content = self._content(self.path.split("?")[0])
        if content is None:
            self._send(404, b"{}", body)
            return
        asked = self.headers.get("Range", "")
        if asked.startswith("bytes=") and "," not in asked:
            first, _, last = asked.removeprefix("bytes=").partition("-")
            part = content[int(first) : int(last or len(content)) + 1]
            self._send(206, part, body, {"Content-Range": f"bytes {first}-{int(first) + len(part) - 1}/{len(content)}"})
            return
        self._send(200, content, body)

    def _content(self, path: str) -> bytes | None:
        for name, config in MODELS.items():
            files = ("config.json", "model.safetensors")
            if path == f"/api/models/{name}" or path.startswith(f"/api/models/{name}/revision/"):
                count = sum(t["data_offsets"][1] - t["data_offsets"][0] for t in self._tensors(config).values()) // 2
                about = {
                    "id": name, "modelId": name, "sha": "0" * 40, "private": False, "gated": False, "tags": [],
                    "library_name": "transformers", "pipeline_tag": "text-generation", "downloads": 0, "likes": 0,
                    "config": {"architectures": config["architectures"], "model_type": "llama"},
                    "siblings": [{"rfilename": file} for file in files],
                    "safetensors": {"parameters": {"BF16": count}, "total": count},
                }  # fmt: skip
                return json.dumps(about).encode()
            if path.startswith(f"/api/models/{name}/tree/"):
                return json.dumps([{"type": "file", "path": file, "size": 1, "oid": "0"} for file in files]).encode()
            if path.startswith((f"/{name}/resolve/", f"/{name}/raw/")):
                file = path.rpartition("/")[2]
                return {"config.json": json.dumps(config).encode(), "model.safetensors": header(config)}.get(file)
        return None

    def _tensors(self, config: dict[str, Any]) -> dict[str, Any]:
        tensors: dict[str, Any] = json.loads(header(config)[8:])
        return tensors

    def _send(self, status: int, content: bytes, body: bool, more: dict[str, str] | None = None) -> None:
        self.send_response(status)
        headers = {"ETag": '"0"', "X-Repo-Commit": "0" * 40, "Accept-Ranges": "bytes"} | (more or {})
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if body:
            self.wfile.write(content)


@contextmanager
def hub(port: int) -> Iterator[str]:
    """Serve until the block ends; gives the address."""
    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.shutdown()
        server.server_close()
