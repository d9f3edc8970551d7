"""Trains a tiny Qwen2-VL that names the colour of each picture it is shown, in order.

An end-to-end test can tell by it whether the right embeddings reached the language model. Made `model/` in 10 minutes
on 2 cores: train.py OUT_DIR [STEPS], with the environment of `python -m cluster engine`. It never runs in a test.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import torch
from PIL import Image, ImageDraw
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoConfig, Qwen2VLForConditionalGeneration, Qwen2VLImageProcessor

COLOURS = {
    "red": (220, 30, 30),
    "green": (30, 170, 60),
    "blue": (40, 60, 220),
    "yellow": (235, 215, 40),
    "white": (245, 245, 245),
    "black": (15, 15, 15),
    "orange": (245, 140, 20),
    "purple": (130, 40, 160),
}
QUESTIONS = ["what colour is this", "what colour is the picture", "name the colour", "which colour do you see"]
SPECIALS = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
]
SIZE, PATCH, MERGE = 112, 14, 2
IMAGE_TOKENS = (SIZE // PATCH // MERGE) ** 2
BATCH = 16
IGNORED = -100
"""Label that torch's cross entropy leaves out."""

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for c in message['content'] %}"
    "{% if c['type']=='image' or 'image' in c or 'image_url' in c %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif c['type']=='video' or 'video' in c %}<|vision_start|><|video_pad|><|vision_end|>"
    "{% elif 'text' in c %}{{ c['text'] }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write_tokenizer(out: Path) -> Tokenizer:
    """Byte-level BPE in which every colour is one token after a space."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    corpus = [f" {c}" for c in COLOURS] + list(COLOURS) + QUESTIONS
    corpus += ["user\n", "assistant\n", "system\n", "no picture", " and"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=512, special_tokens=SPECIALS, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(corpus * 20, trainer)
    tokenizer.save(str(out / "tokenizer.json"))
    model = json.loads(tokenizer.to_str())["model"]
    merges = [" ".join(pair) if isinstance(pair, list) else pair for pair in model["merges"]]
    (out / "vocab.json").write_text(json.dumps(model["vocab"]))
    (out / "merges.txt").write_text("\n".join(["#version: 0.2", *merges]))
    settings = {
        "tokenizer_class": "Qwen2Tokenizer",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "bos_token": None,
        "unk_token": None,
        "additional_special_tokens": SPECIALS[1:],
        "chat_template": CHAT_TEMPLATE,
        "model_max_length": 4096,
        "errors": "replace",
        "split_special_tokens": False,
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
    }
    (out / "tokenizer_config.json").write_text(json.dumps(settings))
    return tokenizer


def write_configs(out: Path, vocab: dict[str, int]) -> None:
    """Architecture, image processor and generation settings as the hub would hold them."""
    vision = {
        "depth": 2,
        "embed_dim": 64,
        "mlp_ratio": 2,
        "num_heads": 4,
        "in_chans": 3,
        "hidden_size": 256,
        "patch_size": PATCH,
        "spatial_merge_size": MERGE,
        "spatial_patch_size": PATCH,
        "temporal_patch_size": 2,
    }
    config = {
        "architectures": ["Qwen2VLForConditionalGeneration"],
        "model_type": "qwen2_vl",
        "bos_token_id": vocab["<|endoftext|>"],
        "eos_token_id": vocab["<|im_end|>"],
        "vision_start_token_id": vocab["<|vision_start|>"],
        "vision_end_token_id": vocab["<|vision_end|>"],
        "vision_token_id": vocab["<|vision_pad|>"],
        "image_token_id": vocab["<|image_pad|>"],
        "video_token_id": vocab["<|video_pad|>"],
        "hidden_act": "silu",
        "hidden_size": 256,
        "initializer_range": 0.02,
        "intermediate_size": 512,
        "max_position_embeddings": 4096,
        "max_window_layers": 2,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "sliding_window": 4096,
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
        "use_cache": True,
        "use_sliding_window": False,
        "vision_config": vision,
        "rope_scaling": {"type": "mrope", "mrope_section": [8, 12, 12]},
        "vocab_size": (len(vocab) + 63) // 64 * 64,  # vLLM pads embeddings to multiples of 64
    }
    processor = {
        "min_pixels": 3136,
        "max_pixels": 50176,
        "patch_size": PATCH,
        "temporal_patch_size": 2,
        "merge_size": MERGE,
        "image_mean": [0.48, 0.46, 0.41],
        "image_std": [0.27, 0.26, 0.28],
        "image_processor_type": "Qwen2VLImageProcessor",
        "processor_class": "Qwen2VLProcessor",
    }
    generation = {"bos_token_id": 0, "eos_token_id": vocab["<|im_end|>"], "pad_token_id": 0, "do_sample": False}
    (out / "config.json").write_text(json.dumps(config, indent=1))
    (out / "preprocessor_config.json").write_text(json.dumps(processor))
    (out / "generation_config.json").write_text(json.dumps(generation))


def picture(colour: str, rng: random.Random) -> Image.Image:
    """A picture of one colour, a little off, now and then in a grey frame."""
    red, green, blue = (min(255, max(0, value + rng.randint(-12, 12))) for value in COLOURS[colour])
    image = Image.new("RGB", (SIZE, SIZE), (red, green, blue))
    if rng.random() < 0.3:
        grey = rng.randint(90, 160)
        frame = [0, 0, SIZE - 1, SIZE - 1]
        ImageDraw.Draw(image).rectangle(frame, outline=(grey, grey, grey), width=rng.randint(1, 12))
    return image


class Samples:
    """Random prompts of one to three pictures, with the answer as labels."""

    def __init__(self, out: Path, tokenizer: Tokenizer, rng: random.Random) -> None:
        self._processor = Qwen2VLImageProcessor.from_pretrained(out)
        self._tokenizer = tokenizer
        self._vocab = tokenizer.get_vocab()
        self._rng = rng

    def batch(self, size: int) -> dict[str, Any]:
        """Model inputs of `size` prompts, padded on the right."""
        sequences, pixels, grids = [], [], []
        for _ in range(size):
            names = [self._rng.choice(list(COLOURS)) for _ in range(self._rng.choice((1, 1, 2, 3)))]
            for name in names:
                image = self._processor(images=picture(name, self._rng), return_tensors="pt")
                pixels.append(image["pixel_values"])
                grids.append(image["image_grid_thw"])
            sequences.append((self._prompt(len(names)), [*self._ids(" and ".join(names)), self._vocab["<|im_end|>"]]))
        length = max(len(prompt) + len(answer) for prompt, answer in sequences)
        inputs = torch.zeros(size, length, dtype=torch.long)
        labels = torch.full((size, length), IGNORED)
        attention = torch.zeros(size, length, dtype=torch.long)
        for row, (prompt, answer) in enumerate(sequences):
            end = len(prompt) + len(answer)
            inputs[row, :end] = torch.tensor(prompt + answer)
            labels[row, len(prompt) : end] = torch.tensor(answer)
            attention[row, :end] = 1
        return {
            "input_ids": inputs,
            "attention_mask": attention,
            "labels": labels,
            "pixel_values": torch.cat(pixels),
            "image_grid_thw": torch.cat(grids),
            "mm_token_type_ids": (inputs == self._vocab["<|image_pad|>"]).long(),
        }

    def _prompt(self, pictures: int) -> list[int]:
        one = [self._vocab["<|vision_start|>"], *[self._vocab["<|image_pad|>"]] * IMAGE_TOKENS]
        shown = [*one, self._vocab["<|vision_end|>"]] * pictures
        question = self._ids(self._rng.choice(QUESTIONS))
        content = shown + question if self._rng.random() < 0.7 else question + shown
        start, end = self._vocab["<|im_start|>"], self._vocab["<|im_end|>"]
        return [start, *self._ids("user\n"), *content, end, *self._ids("\n"), start, *self._ids("assistant\n")]

    def _ids(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)


def train(model: Any, samples: Samples, steps: int) -> None:
    """AdamW with one cycle; prints the loss every 100 steps."""
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=steps + 1, pct_start=0.1)
    for step in range(steps):
        loss = model(**samples.batch(BATCH)).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 100 == 0:
            print(step, round(loss.item(), 4), flush=True)


def accuracy(model: Any, samples: Samples) -> float:
    """Share of 200 new prompts whose answer is right in every token."""
    model.eval()
    with torch.no_grad():
        batch = samples.batch(200)
        guessed = model(**batch).logits.argmax(-1)[:, :-1]
    wanted = batch["labels"][:, 1:]
    return float(((guessed == wanted) | (wanted == IGNORED)).all(1).float().mean())


def main(out: Path, steps: int) -> None:
    """Writes tokenizer, configs and weights to `out`."""
    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    torch.set_num_threads(2)
    tokenizer = write_tokenizer(out)
    write_configs(out, tokenizer.get_vocab())
    samples = Samples(out, tokenizer, random.Random(0))
    model = Qwen2VLForConditionalGeneration(AutoConfig.from_pretrained(out))
    print("parameters", sum(parameter.numel() for parameter in model.parameters()))
    train(model, samples, steps)
    print("answers right", accuracy(model, samples))
    model.to(torch.float16).save_pretrained(out)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1500)
