"""Encoder-decoders: T5, BART and their kin, Whisper. The decoder keeps its own cache and, constant, K and V of the encoder's tokens."""

from __future__ import annotations

from collections.abc import Sequence

from planner.readers.hf_keys import Keys
from planner.readers.hf_shape import Shape

T5_CONTEXT_TOK = 512
"""Tokens T5 is trained for where the file does not say (`n_positions` of `pypi:transformers==4.30.0`, T5Config)."""
BART_POSITION_EXTRA = 2


def t5(k: Keys) -> Shape:
    """T5, Flan-T5, mT5, UMT5: no biases; heads of `d_kv`; relative positions a stack, or a layer in UMT5; encoder tokens as the prompt."""
    h, width, size, head_count = k.count("d_model"), k.count("d_kv"), k.count("d_ff"), k.count("num_heads")
    gated = "gated" in k.text("feed_forward_proj", default="gated-gelu" if k.model_type in ("mt5", "umt5") else "relu")
    n_encoder = k.count("num_layers")
    n_decoder = k.count("num_decoder_layers", default=n_encoder)
    if is_encoder_alone(k.names("architectures")):
        return _t5_encoder(k, n_encoder, gated)
    s = Shape(h, k.count("vocab_size"), k.flag("tie_word_embeddings", default=True))
    s.add_embedding()
    buckets = k.count("relative_attention_num_buckets", default=32) * head_count
    every = k.model_type == "umt5"
    attention, dense = 4 * h * head_count * width, (3 if gated else 2) * h * size
    _encoder(s, n_encoder * (attention + dense + 2 * h) + buckets * (n_encoder if every else 1) + h)
    encoder_tok = k.count("n_positions", default=T5_CONTEXT_TOK)
    for _ in range(n_decoder):
        s.add_gqa(head_count, head_count, width)
        s.add_cross(head_count, width, encoder_tok)
        s.add_dense(size, is_gated=gated)
        s.add_norms(3)
    s.counts["attention"] += buckets * (n_decoder if every else 1)
    s.add_norms()
    return s


def is_encoder_alone(architectures: Sequence[object]) -> bool:
    """Return whether a checkpoint of an encoder-decoder holds the encoder alone (`T5EncoderModel`)."""
    return bool(architectures) and isinstance(architectures[0], str) and architectures[0].endswith("EncoderModel")


def _t5_encoder(k: Keys, n: int, gated: bool) -> Shape:
    """T5's encoder alone, as embedding models and image generators use it."""
    s = Shape(k.count("d_model"), k.count("vocab_size"), is_tied=True)
    s.add_embedding()
    head_count = k.count("num_heads")
    for _ in range(n):
        s.add_gqa(head_count, head_count, k.count("d_kv"))
        s.add_dense(k.count("d_ff"), is_gated=gated)
        s.add_norms(2)
    s.counts["attention"] += k.count("relative_attention_num_buckets", default=32) * head_count * (n if k.model_type == "umt5" else 1)
    s.add_norms()
    s.lookup_count = s.counts["embedding"]
    return s


def _encoder(s: Shape, count: int) -> None:
    """Count a text encoder: in memory, read once a prompt."""
    s.counts["other"] += count
    s.encoder_count += count
    s.notes.append("other_count holds the encoder; the cache counts the decoder, and the encoder's tokens at their most.")


LEARNT = {"bart": BART_POSITION_EXTRA, "mbart": BART_POSITION_EXTRA, "blenderbot": 0, "blenderbot-small": 0, "pegasus": 0, "marian": 0,
          "m2m_100": None, "nllb": None}
"""Rows of the position table beyond the context; None where positions are computed and hold no parameters."""
EMBEDDING_NORM = {"bart", "mbart", "blenderbot-small"}
FINAL_NORM = {"mbart", "pegasus", "blenderbot", "m2m_100"}


def bart(k: Keys) -> Shape:
    """BART, mBART, Pegasus, Marian, M2M-100 (NLLB), Blenderbot: biases everywhere; K and V of the encoder kept for the sequence."""
    kind, h = k.model_type, k.count("d_model")
    s = Shape(h, k.count("vocab_size"), k.flag("tie_word_embeddings", default=True))
    s.add_embedding()
    context, extra = k.count("max_position_embeddings"), LEARNT[kind]
    table = 0 if extra is None else (context + extra) * h
    embedding_norm, final_norm = 2 * h * (kind in EMBEDDING_NORM), 2 * h * (kind in FINAL_NORM)
    size = k.count("encoder_ffn_dim")
    layer = 4 * h * h + 4 * h + 2 * h * size + size + h + 4 * h
    _encoder(s, k.count("encoder_layers") * layer + table + embedding_norm + final_norm)
    head_count = k.count("decoder_attention_heads")
    width = max(h // head_count, 1)
    for _ in range(k.count("decoder_layers")):
        s.add_gqa(head_count, head_count, width, has_qkv_bias=True, has_o_bias=True)
        s.add_cross(head_count, width, context, has_qkv_bias=3, has_o_bias=True)
        s.add_dense(k.count("decoder_ffn_dim"), is_gated=False, has_bias=True)
        s.add_norms(3, has_bias=True)
    s.counts["embedding"] += table
    s.lookup_count += table if s.is_tied else 0
    s.counts["norm"] += embedding_norm + final_norm
    return s


def whisper(k: Keys) -> Shape:
    """Whisper: an audio encoder of 1,500 positions, whose K and V every decoder layer keeps; the encoder counts as a tower."""
    h, mels, source = k.count("d_model"), k.count("num_mel_bins", default=80), k.count("max_source_positions", default=1500)
    s = Shape(h, k.count("vocab_size"), is_tied=True)
    s.add_embedding()
    size = k.count("encoder_ffn_dim")
    layer = 4 * h * h + 3 * h + 2 * h * size + size + h + 4 * h
    s.counts["vision"] += 3 * mels * h + h + 3 * h * h + h + source * h + k.count("encoder_layers") * layer + 2 * h
    head_count = k.count("decoder_attention_heads")
    width = max(h // head_count, 1)
    for _ in range(k.count("decoder_layers")):
        s.add_gqa(head_count, head_count, width, has_o_bias=True, extra_count=2 * head_count * width)
        s.add_cross(head_count, width, source, has_qkv_bias=2, has_o_bias=True)
        s.add_dense(k.count("decoder_ffn_dim"), is_gated=False, has_bias=True)
        s.add_norms(3, has_bias=True)
    positions = k.count("max_target_positions", default=448) * h
    s.counts["embedding"] += positions
    s.lookup_count += positions
    s.add_norms(has_bias=True)
    s.notes.append("vision_count holds the audio encoder.")
    return s
