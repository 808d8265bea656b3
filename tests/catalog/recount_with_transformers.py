"""
Counts the configs of `oracle_configs.jsonl` again on the real model classes; by hand, where transformers is installed.

    python tests/catalog/recount_with_transformers.py

Parameters are counted on torch's meta device. Cached values were counted the same way from the cache object after
forward passes of 2, 3, 24 and 31 tokens: the slope between the short ones counts every layer, between the long ones
only layers without a window; they are not measured again here, since each class passes its cache in its own way.
"""

import json
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent


def main() -> int:
    """Number of configs whose count differs."""
    import torch
    import transformers
    from transformers.models.auto import modeling_auto as auto

    classes: dict[str, str] = {}
    for mapping in (
        auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
        auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
        auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES,
    ):
        classes.update({name: cls if isinstance(cls, str) else cls[0] for name, cls in mapping.items()})
    different = 0
    for line in (HERE / "oracle_configs.jsonl").read_text().splitlines()[1:]:
        row = json.loads(line)
        # Token ids lie within the small vocabularies; they change no count.
        config = dict(row["config"], pad_token_id=0, bos_token_id=1, eos_token_id=2)
        if isinstance(config.get("text_config"), dict):
            config["text_config"] = dict(config["text_config"], pad_token_id=0, bos_token_id=1, eos_token_id=2)
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "config.json").write_text(json.dumps(config))
            loaded = transformers.AutoConfig.from_pretrained(folder)
        with torch.device("meta"):
            model = getattr(transformers, classes[loaded.model_type])(loaded)
        model.tie_weights()
        counted = sum(parameter.numel() for parameter in model.parameters())
        if counted != row["params"]:
            different += 1
            sys.stdout.write(f"{loaded.model_type}: {counted:,} counted, {row['params']:,} in the table\n")
    sys.stdout.write(f"{different} differ\n")
    return different


if __name__ == "__main__":
    sys.exit(min(main(), 1))
