"""Every family of config.json on a small file of invented sizes: cache, state and parameters.

The cache is worked by hand from the sizes (hidden 64, 4 layers, 4 heads of 16, 2 KV heads, feed-forward 96, vocabulary 100 where
nothing else is said). Totals marked `COUNTED` were counted on meta tensors by `pypi:transformers==5.24.0` from the same file.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from planner.physics.kv_cache import kv_part
from planner.readers.config_json import read_config_json
from planner.readers.hf_vision import image_tok, vision_count
from planner.schema.llm import Llm

FIXTURES = Path(__file__).parent / "fixtures" / "config_json"
MHA = 2 * 4 * 16 * 2  # a layer, a token, 16 bit: key and value of 4 heads of 16
GQA = 2 * 2 * 16 * 2  # of 2 KV heads
MQA = 2 * 1 * 16 * 2
WIDE = 2 * 2 * 32 * 2  # 2 KV heads of 32
MLA = (32 + 8) * 2  # one latent of 32 and a rotary key of 8
CROSS = 4 * MHA  # 4 decoder layers keep this for every token of the encoder


def read(name: str) -> Llm:
    return read_config_json(FIXTURES / f"{name}.json")


def cache(llm: Llm) -> tuple[float, float, float, float]:
    """Bytes a token while windows fill, past them, bytes of cross attention a sequence, bytes of state a sequence; KV in 16 bit."""
    groups = () if llm.is_encoder else llm.attention
    parts = [part for group in groups if (part := kv_part(group, 2)) is not None]
    past = sum(part.bytes_per_tok() for part in parts if part.window_tok is None)
    state = sum(group.state_bytes_per_sequence for group in groups)
    return sum(part.bytes_per_tok() for part in parts), past, sum(part.constant_bytes() for part in parts), state


@pytest.mark.parametrize(
    ("name", "filling", "past"),
    [
        # multi-head
        ("gpt2", 4 * MHA, 4 * MHA), ("gptj", 4 * MHA, 4 * MHA), ("codegen", 4 * MHA, 4 * MHA), ("gpt_neox", 4 * MHA, 4 * MHA),
        ("opt", 4 * MHA, 4 * MHA), ("opt350", 4 * MHA, 4 * MHA), ("bloom", 4 * MHA, 4 * MHA), ("mpt", 4 * MHA, 4 * MHA),
        ("persimmon", 4 * MHA, 4 * MHA), ("baichuan", 4 * MHA, 4 * MHA), ("qwen1", 4 * MHA, 4 * MHA), ("chatglm_first", 4 * MHA, 4 * MHA),
        ("deepseek", 4 * MHA, 4 * MHA), ("deepseek_vl2_small", 4 * MHA, 4 * MHA), ("llava", 4 * MHA, 4 * MHA),
        ("llava_defaults", 2 * 32 * 32 * 128 * 2, 2 * 32 * 32 * 128 * 2),  # the class's own sizes: 32 layers, 32 heads of 128
        # multi-query and grouped
        ("gpt_bigcode", 4 * MQA, 4 * MQA), ("phi", 4 * GQA, 4 * GQA), ("stablelm", 4 * GQA, 4 * GQA), ("stablelm2", 4 * GQA, 4 * GQA),
        ("stablelm12", 4 * GQA, 4 * GQA), ("chatglm", 4 * GQA, 4 * GQA), ("phi3small", 4 * GQA, 4 * GQA), ("internlm2", 4 * GQA, 4 * GQA),
        ("internlm3", 4 * GQA, 4 * GQA), ("olmo", 4 * GQA, 4 * GQA), ("olmo2", 4 * GQA, 4 * GQA), ("olmoe", 4 * GQA, 4 * GQA),
        ("ernie4_5", 4 * WIDE, 4 * WIDE), ("ernie4_5_moe", 4 * GQA, 4 * GQA), ("hunyuan_v1_dense", 4 * GQA, 4 * GQA),
        ("hunyuan_v1_moe", 4 * GQA, 4 * GQA), ("seed_oss", 4 * WIDE, 4 * WIDE), ("smollm3", 4 * GQA, 4 * GQA), ("glm", 4 * GQA, 4 * GQA),
        ("glm4", 4 * GQA, 4 * GQA), ("dots1", 4 * GQA, 4 * GQA), ("apertus", 4 * GQA, 4 * GQA), ("helium", 4 * GQA, 4 * GQA),
        ("nemotron", 4 * GQA, 4 * GQA), ("arcee", 4 * GQA, 4 * GQA), ("granitemoe", 4 * GQA, 4 * GQA), ("bitnet", 4 * GQA, 4 * GQA),
        ("granitemoeshared", 4 * GQA, 4 * GQA), ("qwen2_moe", 4 * GQA, 4 * GQA), ("ministral3", 4 * GQA, 4 * GQA),
        ("solar_open", 4 * GQA, 4 * GQA), ("gemma", 4 * WIDE, 4 * WIDE), ("arctic", 4 * GQA, 4 * GQA), ("grok1", 4 * GQA, 4 * GQA),
        ("bailing_moe", 4 * GQA, 4 * GQA), ("dbrx", 4 * GQA, 4 * GQA), ("aria", 4 * GQA, 4 * GQA), ("qwen2_vl", 4 * GQA, 4 * GQA),
        ("paligemma", 4 * 2 * 32 * 2, 4 * 2 * 32 * 2), ("mistral3", 4 * WIDE, 4 * WIDE), ("internvl_chat", 4 * GQA, 4 * GQA),
        ("qwen2_5_omni", 4 * GQA, 4 * GQA), ("mllama_vision", 3 * GQA, 3 * GQA),
        ("deci", MHA + GQA + 2 * MQA, MHA + GQA + 2 * MQA), ("openelm", MQA + GQA, MQA + GQA),  # KV heads of their own a layer
        ("grok2", 4 * GQA, 4 * GQA), ("llava_flat", 4 * MHA, 4 * MHA),
        ("qwen2_audio", 2 * 32 * 32 * 128 * 2, 2 * 32 * 32 * 128 * 2),  # the class's own sizes
        # layers in pairs use one cache
        ("hunyuan_cla", 2 * GQA, 2 * GQA),
        # windows: three of four layers, one of two, all, none
        ("exaone4", 4 * GQA, GQA), ("exaone4_letters", 4 * GQA, GQA), ("exaone_moe", 4 * GQA, GQA), ("afmoe", 4 * GQA, GQA),
        ("gpt_neo", 4 * MHA, 2 * MHA), ("vaultgemma", 4 * WIDE, 2 * WIDE), ("ministral", 4 * GQA, 0),
        ("smollm3_windowed", 4 * GQA, 3 * GQA),
        # two head shapes in one model, in the newer spelling; the last two layers read a cache of the first two
        ("gemma4_newer", 2 * GQA + 2 * 2 * 32 * 2, 2 * 2 * 32 * 2), ("gemma3n_text", 2 * GQA, GQA),
        # latent; two latents a layer
        ("minicpm3", 4 * MLA, 4 * MLA), ("longcat_flash", 2 * 2 * MLA, 2 * 2 * MLA), ("kimi_linear", MLA, MLA),
        ("kimi_linear_newer", MLA, MLA), ("deepseek_v4_newer", 4 * 64 + 2 * 64 / 4 + 64 / 128, 2 * 64 / 4 + 64 / 128),
        # hybrids: layers with attention alone keep a cache
        ("lfm2", GQA, GQA), ("lfm2_moe", GQA, GQA), ("minimax", GQA, GQA), ("minimax_text_01", GQA, GQA), ("falcon_h1", 4 * GQA, 4 * GQA),
        ("bamba", GQA, GQA), ("zamba2", 2 * 2 * 4 * 32 * 2, 2 * 2 * 4 * 32 * 2), ("recurrent_gemma", MQA, 0), ("olmo_hybrid", GQA, GQA),
        ("bailing_hybrid", 2 * MLA, 2 * MLA), ("granite_swa", 4 * GQA, GQA), ("zamba", 2 * 2 * 4 * 32 * 2, 2 * 2 * 4 * 32 * 2),
        ("bailing_moe_linear", 3 * GQA, 3 * GQA), ("nemotron_h_newer", WIDE, WIDE), ("minimax_m3_vl", 4 * WIDE, 4 * WIDE),
        # recurrent alone
        ("rwkv", 0, 0), ("rwkv6", 0, 0), ("rwkv7", 0, 0), ("mamba", 0, 0), ("falcon_mamba", 0, 0), ("mamba2", 0, 0),
        # encoder-decoders: the decoder's own
        ("t5", 4 * MHA, 4 * MHA), ("bart", 4 * MHA, 4 * MHA), ("mbart", 4 * MHA, 4 * MHA), ("pegasus", 4 * MHA, 4 * MHA),
        ("marian", 4 * MHA, 4 * MHA), ("m2m_100", 4 * MHA, 4 * MHA), ("blenderbot", 4 * MHA, 4 * MHA), ("whisper", 4 * MHA, 4 * MHA),
        # encoders
        ("roberta", 0, 0), ("xlm_roberta", 0, 0), ("camembert", 0, 0), ("mpnet", 0, 0), ("modernbert", 0, 0), ("nomic_bert", 0, 0),
        ("gte", 0, 0), ("jina_embeddings_v3", 0, 0), ("electra", 0, 0), ("distilbert", 0, 0), ("albert", 0, 0), ("deberta_v2", 0, 0),
        ("t5_encoder", 0, 0), ("nomic_moe", 0, 0),
    ],
)  # fmt: skip
def test_cache_a_token(name: str, filling: float, past: float) -> None:
    assert cache(read(name))[:2] == (filling, past)


MAMBA_2 = 8 * 16 * 16 * 4 + (128 + 2 * 16) * 3 * 2  # fp32 state of 8 heads 16 x 16, three past inputs of 160 channels in 16 bit
MAMBA_1 = 128 * 16 * 4 + 128 * 3 * 2


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("lfm2", 3 * 64 * 2 * 2),  # a convolution over 3 tokens keeps 2 of them
        ("minimax", 3 * 4 * 16 * 16 * 4),
        ("minimax_text_01", 3 * 4 * 16 * 16 * 4),
        ("falcon_h1", 4 * (8 * 8 * 16 * 4 + (64 + 2 * 16) * 3 * 2)),
        ("bamba", 3 * MAMBA_2),
        ("zamba2", 6 * MAMBA_2),  # every layer, the two with attention too
        ("mamba2", 4 * MAMBA_2),
        ("mamba", 4 * MAMBA_1),
        ("falcon_mamba", 4 * MAMBA_1),
        ("recurrent_gemma", 3 * (64 * 4 + 64 * 3 * 2)),
        ("rwkv", 4 * (3 * 64 * 4 + 2 * 64 * 2)),
        ("rwkv6", 4 * (4 * 16 * 16 * 4 + 2 * 64 * 2)),  # a matrix a head in fp32, two past inputs in 16 bit
        ("rwkv7", 4 * (4 * 16 * 16 * 4 + 2 * 64 * 2)),
        ("kimi_linear", 3 * (4 * 16 * 16 * 4 + 3 * 64 * 3 * 2)),
        ("kimi_linear_newer", 3 * (4 * 16 * 16 * 4 + 3 * 64 * 3 * 2)),
        ("olmo_hybrid", 3 * (4 * 8 * 16 * 4 + (2 * 32 + 64) * 3 * 2)),
        ("nemotron_h_newer", 4 * 8 * 16 * 4 + (32 + 2 * 2 * 16) * 3 * 2),
        ("zamba", 8 * MAMBA_1),
        ("bailing_hybrid", 2 * (4 * 16 * 16 * 4 + 3 * 64 * 3 * 2)),
        ("bailing_moe_linear", 2 * 4 * 16 * 16 * 4),  # groups of two: layers 1 and 3 recurrent, 2, 4 and the odd 5 full
        ("gpt2", 0),
    ],
)
def test_state_a_sequence(name: str, state: int) -> None:
    assert cache(read(name))[3] == state


@pytest.mark.parametrize(
    ("name", "encoder_tok"), [("t5", 512), ("bart", 512), ("mbart", 512), ("pegasus", 512), ("marian", 512), ("whisper", 1500)]
)
def test_cross_attention_keeps_the_encoder_s_tokens_for_the_sequence(name: str, encoder_tok: int) -> None:
    """4 decoder layers keep a key and a value of 4 heads of 16 for every token of the encoder, whatever the decoder has written."""
    assert cache(read(name))[2] == CROSS * encoder_tok


def test_whisper_large_as_published() -> None:
    """Whisper large: 32 decoder layers of 20 heads of 64 over 1,500 positions: 32 x 2 x 20 x 64 x 2 x 1500 = 245,760,000 bytes."""
    large = {"layer_count": 32, "head_count": 20, "kv_head_count": 20, "head_dim": 64}
    part = kv_part(read("whisper").attention[1].model_copy(update=large), 2)
    assert part is not None
    assert part.constant_bytes() == 245_760_000
    assert part.bytes_per_tok() == 0


COUNTED = {
    "gpt2": 239_232, "gptj": 211_428, "codegen": 211_428, "gpt_bigcode": 214_272, "gpt_neox": 130_304, "gpt_neo": 238_464, "opt": 156_800,
    "opt350": 157_568, "bloom": 206_592, "mpt": 203_584, "phi": 113_252, "stablelm": 136_832, "stablelm2": 137_344, "stablelm12": 136_704,
    "persimmon": 130_560, "exaone4": 136_384, "olmo": 135_680, "olmo2": 136_640, "olmoe": 654_784, "ernie4_5": 179_008,
    "ernie4_5_moe": 214_360, "hunyuan_v1_dense": 136_384, "hunyuan_v1_moe": 432_320, "seed_oss": 186_432, "smollm3": 129_856,
    "glm": 136_768, "glm4": 137_280, "dots1": 220_864, "apertus": 111_816, "helium": 136_256, "nemotron": 112_256, "arcee": 111_680,
    "granitemoe": 654_400, "granitemoeshared": 691_264, "minicpm3": 139_296, "qwen2_moe": 221_440, "internlm3": 136_256,
    "ministral3": 136_256, "ministral": 136_256, "afmoe": 223_960, "solar_open": 230_464, "gemma": 179_008, "vaultgemma": 179_008,
    "exaone_moe": 207_040, "bitnet": 136_896, "lfm2": 142_752, "lfm2adj": 118_176, "lfm2_moe": 199_584, "minimax": 679_168,
    "falcon_h1": 197_664, "bamba": 183_656, "zamba2": 401_040, "recurrent_gemma": 99_904, "rwkv": 212_480, "mamba": 137_280,
    "falcon_mamba": 137_280, "mamba2": 125_472, "kimi_linear": 239_452, "olmo_hybrid": 151_784, "gemma3n_text": 145_176, "t5": 274_176,
    "bart": 336_672, "mbart": 336_928, "pegasus": 336_416, "marian": 336_160, "m2m_100": 270_880, "blenderbot": 336_416,
    "whisper": 430_880, "roberta": 160_960, "xlm_roberta": 160_960, "camembert": 160_960, "mpnet": 160_960, "modernbert": 146_240,
    "nomic_bert": 146_944, "gte": 148_160, "jina_embeddings_v3": 128_128, "electra": 204_480, "distilbert": 156_672, "albert": 55_328,
    "deberta_v2": 156_672, "zamba": 352_256, "bailing_hybrid": 243_496, "granite_swa": 129_872,
}  # fmt: skip


@pytest.mark.parametrize(("name", "total"), COUNTED.items())
def test_parameters_are_those_the_library_builds(name: str, total: int) -> None:
    assert read(name).params.total_count == total


def published(tmp_path: Path, **keys: object) -> Llm:
    path = tmp_path / "published.json"
    path.write_text(json.dumps(keys), encoding="utf-8")
    return read_config_json(path)


def test_qwen_72b_keeps_20_gib_at_8192_tokens(tmp_path: Path) -> None:
    """Qwen-72B is multi-head (arXiv:2309.16609): 2 x 80 layers x 64 heads x 128 x 2 bytes x 8,192 tokens = 20.0 GiB."""
    llm = published(
        tmp_path, model_type="qwen", hidden_size=8192, intermediate_size=49152, num_attention_heads=64, num_hidden_layers=80,
        kv_channels=128, seq_length=32768, vocab_size=152064, no_bias=True, tie_word_embeddings=False,
    )  # fmt: skip
    assert cache(llm)[0] * 8192 == 20 * 2**30


@pytest.mark.parametrize(
    ("keys", "total"),
    [
        # the totals the hub prints for the safetensors of Qwen-7B, ChatGLM2-6B, Baichuan2-7B, InternLM2-7B, LFM2-1.2B, Phi-3-small-8k
        ({"model_type": "qwen", "hidden_size": 4096, "intermediate_size": 22016, "num_attention_heads": 32, "num_hidden_layers": 32,
          "kv_channels": 128, "seq_length": 8192, "vocab_size": 151936, "no_bias": True, "tie_word_embeddings": False}, 7_721_324_544),
        ({"model_type": "chatglm", "hidden_size": 4096, "ffn_hidden_size": 13696, "num_attention_heads": 32, "num_layers": 28,
          "kv_channels": 128, "multi_query_attention": True, "multi_query_group_num": 2, "padded_vocab_size": 65024, "seq_length": 32768,
          "add_qkv_bias": True, "add_bias_linear": False, "rmsnorm": True}, 6_243_584_000),
        ({"model_type": "baichuan", "hidden_size": 4096, "intermediate_size": 11008, "num_attention_heads": 32, "num_hidden_layers": 32,
          "vocab_size": 125696, "max_position_embeddings": 4096}, 7_505_973_248),
        ({"model_type": "internlm2", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_hidden_layers": 32,
          "num_key_value_heads": 8, "vocab_size": 92544, "max_position_embeddings": 32768, "bias": False}, 7_737_708_544),
        ({"model_type": "lfm2", "hidden_size": 2048, "block_ff_dim": 12288, "num_attention_heads": 32, "num_key_value_heads": 8,
          "num_hidden_layers": 16, "full_attn_idxs": [2, 5, 8, 10, 12, 14], "conv_L_cache": 3, "vocab_size": 65536,
          "block_auto_adjust_ff_dim": True, "block_multiple_of": 256, "block_ffn_dim_multiplier": 1.0,
          "max_position_embeddings": 128000}, 1_170_340_608),
        ({"model_type": "phi3small", "hidden_size": 4096, "ff_intermediate_size": 14336, "num_attention_heads": 32, "num_hidden_layers": 32,
          "num_key_value_heads": 8, "vocab_size": 100352, "max_position_embeddings": 8192}, 7_392_272_384),
        # RWKV-7 World 1.5B; OpenELM-270M; DeepSeek-MoE-16B
        ({"model_type": "rwkv7", "hidden_size": 2048, "head_dim": 64, "num_hidden_layers": 24, "vocab_size": 65536,
          "intermediate_size": 8192, "decay_low_rank_dim": 96, "a_low_rank_dim": 96,
          "gate_low_rank_dim": 256, "v_low_rank_dim": 64}, 1_527_404_544),
        ({"model_type": "openelm", "model_dim": 1280, "num_transformer_layers": 16, "head_dim": 64,
          "num_query_heads": [12] * 5 + [16] * 7 + [20] * 4, "num_kv_heads": [3] * 5 + [4] * 7 + [5] * 4, "ffn_dim_divisor": 256,
          "ffn_multipliers": [0.5, 0.73, 0.97, 1.2, 1.43, 1.67, 1.9, 2.13, 2.37, 2.6, 2.83, 3.07, 3.3, 3.53, 3.77, 4.0],
          "vocab_size": 32000, "max_context_length": 2048}, 271_527_168),
        ({"model_type": "deepseek", "hidden_size": 2048, "intermediate_size": 10944, "num_attention_heads": 16, "num_hidden_layers": 28,
          "num_key_value_heads": 16, "vocab_size": 102400, "max_position_embeddings": 4096, "n_routed_experts": 64, "n_shared_experts": 2,
          "num_experts_per_tok": 6, "moe_intermediate_size": 1408, "first_k_dense_replace": 1, "moe_layer_freq": 1}, 16_375_728_128),
    ],
    ids=["qwen", "chatglm2", "baichuan2", "internlm2", "lfm2", "phi3small", "rwkv7", "openelm", "deepseek_moe"],
)  # fmt: skip
def test_totals_of_families_that_bring_their_own_code(tmp_path: Path, keys: dict[str, object], total: int) -> None:
    assert published(tmp_path, **keys).params.total_count == total


def test_recurrent_parameters_have_their_own_component() -> None:
    """A Mamba-2 mixer of 8 heads of 16: in 64 x (128 + 160 + 8), convolution 160 x 5, three values a head, norm 128, out 128 x 64."""
    p = read("bamba").params
    assert p.recurrent_count == 3 * (64 * (128 + 160 + 8) + 160 * 5 + 3 * 8 + 128 + 128 * 64)
    assert p.other_count == 0
    assert p.active_count == p.total_count - p.embedding_count


def test_the_sixth_version_of_rwkv_by_hand() -> None:
    """A layer of width 64: five 64 x 64, six shifts, low ranks 2 x 5 x 32 and 2 x 64, decay, bonus and norm of 4 x 64; wide part of 224."""
    p = read("rwkv6").params
    assert p.recurrent_count == 4 * (5 * 64 * 64 + 6 * 64 + 2 * 5 * 32 * 64 + 2 * 64 * 64 + 4 * 64)
    assert p.mlp_count == 4 * (2 * 64 * 224 + 64 * 64 + 2 * 64)


def test_an_encoder_s_weights_are_held_and_not_multiplied_by_a_decoded_token() -> None:
    """T5: 3 encoder layers of 4 x 64 x 64 attention, 2 x 64 x 96 feed-forward and 2 norms, a bias table of 32 x 4, a last norm."""
    p = read("t5").params
    assert p.other_count == 3 * (4 * 64 * 64 + 2 * 64 * 96 + 2 * 64) + 32 * 4 + 64
    assert p.active_count == p.total_count - p.other_count


def test_an_encoder_alone_holds_no_decoder() -> None:
    """T5's encoder: embedding 100 x 64, 3 layers of attention 4 x 64 x 64, feed-forward 2 x 64 x 96, two norms; bias table 32 x 4."""
    llm = read("t5_encoder")
    assert llm.is_encoder
    assert llm.params.total_count == 6400 + 3 * (4 * 64 * 64 + 2 * 64 * 96 + 2 * 64) + 32 * 4 + 64


def test_experts_beside_a_dense_part() -> None:
    """Grok-2: in each layer a dense part of 3 x 64 x 96 beside 8 experts of 3 x 64 x 48, two used by a token."""
    p = read("grok2").params
    assert (p.mlp_count, p.experts_count) == (4 * 3 * 64 * 96, 4 * 8 * 3 * 64 * 48)


def test_experts_in_an_encoder() -> None:
    """Nomic Embed v2: every second layer 8 experts of two matrices 64 x 96."""
    assert read("nomic_moe").params.experts_count == 2 * 8 * 2 * 64 * 96


def test_cross_layer_attention_shares_caches() -> None:
    """Hunyuan-Large: with `use_cla` and a factor of 2 every second layer reads the cache of the one before."""
    shared = [g for g in read("hunyuan_cla").attention if g.cache_is_shared]
    assert sum(g.layer_count for g in shared) == 2


def test_experts_that_only_image_tokens_reach(tmp_path: Path) -> None:
    """ERNIE 4.5 VL lists two pools: text experts 3 x 64 x 24, image experts 3 x 64 x 8, each with a router of 64 x 8; layer 0 dense."""
    llm = published(
        tmp_path, model_type="ernie4_5_moe_vl", hidden_size=64, intermediate_size=96, num_attention_heads=4, num_key_value_heads=2,
        num_hidden_layers=4, vocab_size=100, max_position_embeddings=512, moe_num_experts=[8, 8], moe_k=2, moe_intermediate_size=[24, 8],
        moe_num_shared_experts=2, moe_layer_start_index=[1, 1], moe_layer_end_index=[3, 3],
    )  # fmt: skip
    assert llm.params.experts_count == 3 * 8 * 3 * 64 * 24
    assert llm.params.vision_count == 3 * (8 * 3 * 64 * 8 + 64 * 8)
    assert cache(llm)[0] == 4 * GQA


def test_a_head_s_width_under_other_names(tmp_path: Path) -> None:
    """Nemotron-4 calls it `kv_channels`: 2 x 4 layers x 2 heads x 32 x 2 bytes, where hidden / heads would be 16."""
    llm = published(
        tmp_path, model_type="nemotron", hidden_size=64, intermediate_size=96, num_attention_heads=4, num_key_value_heads=2,
        num_hidden_layers=4, vocab_size=100, max_position_embeddings=512, kv_channels=32,
    )  # fmt: skip
    assert cache(llm)[0] == 4 * WIDE


def test_which_layers_hold_experts() -> None:
    """Every way a file says it: first dense, listed dense, listed kinds, a range, a step."""
    experts = {name: sum(g.layer_count for g in read(name).mlp if g.kind == "moe") for name in (
        "dots1", "deepseek", "qwen2_moe", "kimi_linear_newer", "ernie4_5_moe", "afmoe", "exaone_moe", "lfm2_moe", "minimax_m3_vl")}
    assert experts == {"dots1": 3, "deepseek": 3, "qwen2_moe": 3, "kimi_linear_newer": 3, "ernie4_5_moe": 3, "afmoe": 3, "exaone_moe": 3,
                       "lfm2_moe": 3, "minimax_m3_vl": 3}  # fmt: skip


def test_the_sparse_attention_s_index_keys() -> None:
    """MiniMax-M3 in the newer spelling: 3 sparse layers, one key of 16 a token, 16 bit."""
    assert sum(g.indexer_bytes_per_tok for g in read("minimax_m3_vl").attention) == 3 * 16 * 2


@pytest.mark.parametrize(
    ("name", "vision", "image"),
    [
        # 2 layers of 4 x 32 x 33 attention, 2 x 32 x 64 + 96 feed-forward, two norms of 64 each; patches 3 x 14 x 14 x 32
        ("llava", 2 * (4 * 32 * 33 + 2 * 32 * 64 + 96 + 128) + 3 * 196 * 32 + 32 + 5 * 32 + 128 + 32 * 64 + 64 * 64 + 128, 4),
        ("paligemma", 2 * (4 * 32 * 33 + 2 * 32 * 64 + 96 + 128) + 3 * 196 * 32 + 32 + 4 * 32 + 64 + 32 * 64 + 64, 4),
        # merger: norm of 32, 128 x 128 and 128 x 64 with biases; two frames a patch
        ("qwen2_vl", 2 * (4 * 32 * 33 + 2 * 32 * 128 + 160 + 128) + 2 * 3 * 196 * 32 + 64 + 128 * 129 + 128 * 64 + 64, None),
        ("mistral3", 2 * (4 * 32 * 32 + 3 * 32 * 64 + 64) + 3 * 196 * 32 + 32 + 32 + 32 * 32 * 4 + 32 * 64 + 64 * 64, 4),
        ("mllama_vision", None, (16 + 1) * 4),
        ("llama", None, None),
    ],
)
def test_vision_towers(name: str, vision: int | None, image: int | None) -> None:
    data = json.loads((FIXTURES / f"{name}.json").read_text(encoding="utf-8"))
    assert vision_count(data, 64) == vision
    assert image_tok(data) == image
    assert read(name).params.vision_count == (vision or 0)


@pytest.mark.parametrize(
    ("vision", "outer", "hidden", "total"),
    [
        # the towers of Qwen2.5-VL-7B, Gemma 3 4B and Kimi-K2.5, each published total less its language model
        ({"depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "out_hidden_size": 3584, "patch_size": 14, "spatial_merge_size": 2,
          "temporal_patch_size": 2}, "qwen2_5_vl", 3584, 676_550_144),
        ({"model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27, "image_size": 896,
          "patch_size": 14, "vision_use_head": False}, "gemma3", 2560, 419_816_304),
        ({"vt_hidden_size": 1152, "vt_intermediate_size": 4304, "vt_num_hidden_layers": 27, "mm_hidden_size": 1152, "patch_size": 14,
          "merge_kernel_size": [2, 2], "init_pos_emb_height": 64, "init_pos_emb_width": 64}, "kimi_k25", 7168, 471_143_920),
        ({"model_type": "gemma4_vision", "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27, "head_dim": 72,
          "num_attention_heads": 16, "patch_size": 16, "position_embedding_size": 10240}, "gemma4", 2816, 572_792_112),
    ],
    ids=["qwen2.5-vl", "gemma-3", "kimi-k2.5", "gemma-4"],
)  # fmt: skip
def test_published_towers(vision: dict[str, object], outer: str, hidden: int, total: int) -> None:
    assert vision_count({"model_type": outer, "vision_config": vision}, hidden) == total


def test_a_tower_that_lacks_a_key_is_not_counted_and_said() -> None:
    assert vision_count({"model_type": "llava", "vision_config": {"model_type": "clip_vision_model", "hidden_size": 32}}, 64) is None
    assert "vision tower is not counted" in (read("mllama_vision").notes or "")
    assert "audio tower is not counted" in (read("qwen2_5_omni").notes or "")
    assert "vision_count holds" in (read("llava").notes or "")


def test_an_image_in_llama_3_2_vision_is_told_not_counted() -> None:
    """One cross layer keeps a key and a value of 2 heads of 16, 16 bit: 128 bytes a vision token."""
    assert "128 bytes a vision token" in (read("mllama_vision").notes or "")
