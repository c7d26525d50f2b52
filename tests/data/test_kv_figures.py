"""Cache of one sequence at 8,192 and at 131,072 tokens of every shipped shape, KV in 16 bit, against figures worked apart.

The figures follow growth x tokens + (filling - growth) x min(tokens, window) + index keys x tokens + recurrent state, from the
configuration each maker publishes; Llama-3-8B and Qwen3.5-9B agree with the buffers llama.cpp logs. None: beyond the model's context.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
import yaml

from planner.physics.kv_cache import kv_part
from planner.schema.llm import Llm

MODELS = Path(__file__).resolve().parents[2] / "workloads" / "models"
SHORT_TOK, LONG_TOK = 8_192, 131_072
BYTES_OF_SEQUENCE: dict[str, tuple[int | None, int | None]] = {
    "llama_3_8b": (1_073_741_824, None),
    "llama_3_70b": (2_684_354_560, None),
    "llama_3.1_8b": (1_073_741_824, 17_179_869_184),
    "llama_3.1_70b": (2_684_354_560, 42_949_672_960),
    "llama_3.1_405b": (4_227_858_432, 67_645_734_912),
    "llama_3.2_1b": (268_435_456, 4_294_967_296),
    "llama_3.2_3b": (939_524_096, 15_032_385_536),
    "llama_3.3_70b_instruct": (2_684_354_560, 42_949_672_960),
    "llama_3.2_11b_vision": (1_073_741_824, 17_179_869_184),
    "llama_3.2_90b_vision": (2_684_354_560, 42_949_672_960),
    "llama_4_scout": (1_610_612_736, 7_650_410_496),
    "llama_4_maverick": (1_610_612_736, 7_650_410_496),
    "mistral_7b_v0.1": (536_870_912, None),
    "mistral_7b_v0.3": (1_073_741_824, None),
    "mistral_nemo_12b": (1_342_177_280, 21_474_836_480),
    "mistral_small_3_24b": (1_342_177_280, None),
    "mistral_large_2": (2_952_790_016, 47_244_640_256),
    "mixtral_8x7b": (1_073_741_824, None),
    "mixtral_8x22b": (1_879_048_192, None),
    "qwen2.5_0.5b": (100_663_296, None),
    "qwen2.5_1.5b": (234_881_024, None),
    "qwen2.5_3b": (301_989_888, None),
    "qwen2.5_7b": (469_762_048, None),
    "qwen2.5_14b": (1_610_612_736, None),
    "qwen2.5_32b": (2_147_483_648, None),
    "qwen2.5_72b": (2_684_354_560, None),
    "qwen2.5_vl_7b": (469_762_048, None),
    "qwen3_0.6b": (939_524_096, None),
    "qwen3_1.7b": (939_524_096, None),
    "qwen3_4b": (1_207_959_552, None),
    "qwen3_8b": (1_207_959_552, None),
    "qwen3_14b": (1_342_177_280, None),
    "qwen3_32b": (2_147_483_648, None),
    "qwen3_30b_a3b": (805_306_368, None),
    "qwen3_235b_a22b": (1_577_058_304, None),
    "qwen3_coder_480b_a35b": (2_080_374_784, 33_285_996_544),
    "qwen3_coder_30b_a3b": (805_306_368, 12_884_901_888),
    "qwen3_next_80b_a3b": (278_593_536, 3_298_492_416),
    "qwen3.5_27b": (690_814_976, 8_743_878_656),
    "qwen3.5_35b_a3b": (232_161_280, 2_748_743_680),
    "qwen3.5_122b_a10b": (354_975_744, 3_374_874_624),
    "qwen3.5_397b_a17b": (443_719_680, 4_218_593_280),
    "qwen3.6_27b": (690_814_976, 8_743_878_656),
    "qwen3.6_35b_a3b": (232_161_280, 2_748_743_680),
    "qwen3.8_27b": (690_814_976, 8_743_878_656),
    "qwen3.5_4b": (319_946_752, 4_346_478_592),
    "qwen3.5_9b": (319_946_752, 4_346_478_592),
    "deepseek_v2_lite": (254_803_968, 4_076_863_488),
    "deepseek_v2.5": (566_231_040, 9_059_696_640),
    "deepseek_v3": (575_668_224, 9_210_691_584),
    "deepseek_r1": (575_668_224, 9_210_691_584),
    "deepseek_v3.2": (641_630_208, 10_266_083_328),
    "deepseek_v4_flash": (65_085_440, 786_636_800),
    "deepseek_v4_pro": (94_355_456, 1_127_530_496),
    "gemma_2_2b": (654_311_424, None),
    "gemma_2_9b": (2_113_929_216, None),
    "gemma_2_27b": (2_315_255_808, None),
    "gemma_3_1b": (45_088_768, None),
    "gemma_3_4b": (289_406_976, 2_805_989_376),
    "gemma_3_12b": (872_415_232, 8_925_478_912),
    "gemma_3_27b": (1_107_296_256, 11_173_625_856),
    "gemma_4_26b_a4b": (377_487_360, 2_894_069_760),
    "gemma_4_31b": (1_509_949_440, 11_576_279_040),
    "gemma_4_e2b": (56_623_104, 811_597_824),
    "gemma_4_e4b": (155_189_248, 2_168_455_168),
    "phi_3_mini_128k": (3_221_225_472, 51_539_607_552),
    "phi_3.5_mini": (3_221_225_472, 51_539_607_552),
    "phi_3_medium_128k": (1_677_721_600, 26_843_545_600),
    "phi_4": (1_677_721_600, None),
    "phi_4_mini": (1_073_741_824, 17_179_869_184),
    "phi_3.5_moe": (1_073_741_824, 17_179_869_184),
    "gpt_oss_20b": (204_472_320, 3_224_371_200),
    "gpt_oss_120b": (306_708_480, 4_836_556_800),
    "command_r_v01": (10_737_418_240, 171_798_691_840),
    "command_r_08_2024": (1_342_177_280, 21_474_836_480),
    "command_r_plus_08_2024": (2_147_483_648, 34_359_738_368),
    "command_r7b": (671_088_640, 4_697_620_480),
    "command_a": (1_342_177_280, 9_395_240_960),
    "glm_4.5": (3_087_007_744, 49_392_123_904),
    "glm_4.5_air": (1_543_503_872, 24_696_061_952),
    "glm_4.6": (3_087_007_744, 49_392_123_904),
    "glm_4.7_flash": (443_547_648, 7_096_762_368),
    "glm_5": (820_445_184, 13_127_122_944),
    "glm_5.1": (820_445_184, 13_127_122_944),
    "glm_5.2": (758_808_576, 12_140_937_216),
    "kimi_k2": (575_668_224, 9_210_691_584),
    "kimi_k2.5": (575_668_224, 9_210_691_584),
    "kimi_k3": (675_864_576, 4_073_250_816),
    "minimax_m2": (2_080_374_784, 33_285_996_544),
    "minimax_m2.5": (2_080_374_784, 33_285_996_544),
    "minimax_m2.7": (2_080_374_784, 33_285_996_544),
    "minimax_m3": (1_126_170_624, 18_018_729_984),
    "nemotron_h_8b": (236_355_584, None),
    "nemotron_nano_9b_v2": (277_766_144, 2_291_032_064),
    "nemotron_nano_12b_v2": (350_191_616, 3_370_090_496),
    "nemotron_h_56b": (1_248_149_504, None),
    "nemotron_3_nano_30b_a3b": (99_414_016, 854_388_736),
    "nemotron_3_super_120b_a12b": (237_338_624, 1_243_971_584),
    "nemotron_3_ultra_550b_a55b": (508_624_896, 2_018_574_336),
    "llama_3.3_nemotron_super_49b": (1_644_167_168, 26_306_674_688),
    "jamba_1.5_mini": (150_274_048, 2_163_539_968),
    "jamba_1.5_large": (374_243_328, 4_904_091_648),
    "granite_4.0_h_small": (287_037_440, 2_300_303_360),
    "granite_4.0_h_tiny": (124_450_816, 1_131_083_776),
    "granite_4.0_h_micro": (143_546_368, 1_150_179_328),
    "granite_4.0_micro": (671_088_640, 10_737_418_240),
    "granite_3.3_8b": (1_342_177_280, 21_474_836_480),
    "olmo_3_7b": (2_684_354_560, None),
    "olmo_3.1_32b": (1_342_177_280, None),
    "starcoder2_3b": (125_829_120, None),
    "starcoder2_7b": (268_435_456, None),
    "starcoder2_15b": (335_544_320, None),
    "mimo_v2_flash": (214_302_720, 3_045_457_920),
    "mimo_7b": (1_207_959_552, None),
    "step_3.7_flash": (471_859_200, 6_511_656_960),
    "bge_m3": (0, None),
    "multilingual_e5_large": (0, None),
    "bge_large_en_v1.5": (0, None),
    "e5_mistral_7b": (1_073_741_824, None),
    "qwen3_embedding_0.6b": (939_524_096, None),
    "qwen3_embedding_4b": (1_207_959_552, None),
    "qwen3_embedding_8b": (1_207_959_552, None),
}


@cache
def model(name: str) -> Llm:
    return Llm.model_validate(yaml.safe_load((MODELS / f"{name}.yaml").read_text(encoding="utf-8")))


def bytes_of_sequence(llm: Llm, context_tok: int) -> float:
    groups = () if llm.is_encoder else llm.attention
    parts = [part for group in groups if (part := kv_part(group, 2)) is not None]
    index = sum(group.indexer_bytes_per_tok for group in groups) * context_tok
    return sum(part.bytes_of(context_tok, 1, 16) for part in parts) + index + sum(group.state_bytes_per_sequence for group in groups)


@pytest.mark.parametrize("name", BYTES_OF_SEQUENCE)
def test_the_cache_of_one_sequence(name: str) -> None:
    short, long = BYTES_OF_SEQUENCE[name]
    assert short is None or bytes_of_sequence(model(name), SHORT_TOK) == short
    assert long is None or bytes_of_sequence(model(name), LONG_TOK) == long


def test_most_shipped_shapes_are_held() -> None:
    assert len(BYTES_OF_SEQUENCE) >= 120
    assert sum(long is not None for _, long in BYTES_OF_SEQUENCE.values()) >= 70
