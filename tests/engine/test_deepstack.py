"""A Qwen3-VL configuration: its embeddings carry the features of some layers of the tower, beyond the hidden size."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from engine.core import MODEL, VERSION, item, publish
from engine.pretended import Script

HIDDEN, LAYERS = 256, [0, 1]
WIDE = HIDDEN * (1 + len(LAYERS))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """The tiny model's tokenizer with a configuration of the other architecture."""
    path = tmp_path / "qwen3vl"
    shutil.copytree(MODEL, path, ignore=shutil.ignore_patterns("*.safetensors"))
    tiny = json.loads((MODEL / "config.json").read_text())
    text = {
        **{key: tiny["text_config"][key] for key in ("hidden_size", "intermediate_size", "vocab_size", "rms_norm_eps")},
        "model_type": "qwen3_vl_text",
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "max_position_embeddings": 4096,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [8, 12, 12]},
    }
    vision = {
        "model_type": "qwen3_vl",
        "depth": 2,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_heads": 4,
        "out_hidden_size": HIDDEN,
        "deepstack_visual_indexes": LAYERS,
    }
    config = {
        "architectures": ["Qwen3VLForConditionalGeneration"],
        "model_type": "qwen3_vl",
        "dtype": "float16",
        "image_token_id": tiny["image_token_id"],
        "video_token_id": tiny["video_token_id"],
        "vision_start_token_id": 4,
        "vision_end_token_id": 5,
        "text_config": text,
        "vision_config": vision,
    }
    (path / "config.json").write_text(json.dumps(config))
    preprocessor = {
        "image_processor_type": "Qwen2VLImageProcessorFast",
        "processor_class": "Qwen3VLProcessor",
        "size": {"shortest_edge": 3136, "longest_edge": 50176},
        "patch_size": 16,
        "temporal_patch_size": 2,
        "merge_size": 2,
    }
    (path / "preprocessor_config.json").write_text(json.dumps(preprocessor))
    (path / "video_preprocessor_config.json").write_text(
        json.dumps(preprocessor | {"video_processor_type": "Qwen3VLVideoProcessor"})
    )
    return path


def test_the_configuration_says_how_wide_its_embeddings_are(start, root, model):
    consumer = start("ec_consumer", script=Script(width=WIDE), model=model)
    publish(root, consumer, "red", 32)
    publish(root, consumer, "narrow", 32, width=HIDDEN)
    bare = consumer.ask("b", item("red", 4, 32, pixels=False))
    narrow = consumer.ask("n", item("narrow", 4, 32, pixels=False))
    consumer.run()
    assert (bare.reason, narrow.reason, consumer.script.loads) == ("length", "error", ["red"])
    assert consumer.counts["rejects"] == {"width": 1}
    assert not (root / ".epd-gc" / "versions" / f"{VERSION}.widths.json").exists()


def test_an_encoder_and_a_consumer_agree(start, model):
    encoder = start("ec_producer", script=Script(width=WIDE), model=model)
    consumer = start("ec_consumer", script=Script(width=WIDE), model=model)
    encoded = encoder.ask("e", item("red", 4, 32))
    encoder.run()
    assert encoded.items == {"red": {"item_indices": [0], "metadata": {"image_grid_thw": [1, 2, 64]}}}
    answer = consumer.ask("c", item("red", 4, 32, pixels=False))
    consumer.run()
    assert (answer.reason, consumer.script.loads) == ("length", ["red"])
