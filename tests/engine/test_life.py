"""Requests from admission to answer: where their embeddings came from, and what was counted."""

from __future__ import annotations

from engine.core import item


def test_a_consumer_gets_what_an_encoder_published(start):
    encoder, consumer = start("ec_producer"), start("ec_consumer")
    encoded = encoder.ask("e", item("red", 4, 32))
    encoder.run()
    assert encoded.items == {"red": {"item_indices": [0], "metadata": {"image_grid_thw": [1, 2, 64]}}}
    answer = consumer.ask("c", item("red", 4, 32))
    consumer.run()
    assert (answer.reason, len(answer.tokens)) == ("length", 4)
    assert (consumer.script.loads, consumer.script.encodes) == (["red"], [])
    assert consumer.counts["hits"] == 1
    assert "local_encodes" not in consumer.counts
    assert encoder.counts["saves"] == 1
