"""Named sizes have the parameters that their publishers state: the totals of their checkpoints and papers."""

import pytest

import clearhead as ch
from clearhead.families import SIZES, family_and_config

# With the language-model head; a tied matrix counts once.
PUBLISHED = {
    "gpt2": 124_439_808, "gpt2-medium": 354_823_168, "gpt2-large": 774_030_080, "gpt2-xl": 1_557_611_200,
    "gpt3": 174_604_259_328, "gpt-neo-125m": 125_198_592, "gpt-neo-1.3b": 1_315_575_808,
    "gpt-neo-2.7b": 2_651_307_520, "gpt-j-6b": 6_050_882_784, "neox-20b": 20_554_567_680,
    "pythia-70m": 70_426_624, "pythia-160m": 162_322_944, "pythia-410m": 405_334_016,
    "pythia-1b": 1_011_781_632, "pythia-1.4b": 1_414_647_808, "pythia-2.8b": 2_775_208_960,
    "pythia-6.9b": 6_857_302_016, "pythia-12b": 11_846_072_320,
    "opt-125m": 125_239_296, "opt-350m": 331_196_416, "opt-1.3b": 1_315_758_080, "opt-2.7b": 2_651_596_800,
    "opt-6.7b": 6_658_473_984, "opt-13b": 12_853_473_280, "opt-30b": 29_974_540_288,
    "bloom-560m": 559_214_592, "bloom-7b1": 7_069_016_064, "bloom": 176_247_271_424,
    "falcon-7b": 6_921_720_704, "phi-2": 2_779_683_840, "phi3-mini": 3_821_079_552, "phi4": 14_659_507_200,
    "llama-7b": 6_738_415_616, "llama-13b": 13_015_864_320, "llama-65b": 65_285_660_672,
    "llama2-70b": 68_976_648_192, "llama3.1-8b": 8_030_261_248, "llama3.1-70b": 70_553_706_496,
    "llama3.1-405b": 405_853_388_800, "llama3.2-1b": 1_235_814_400, "llama3.2-3b": 3_212_749_824,
    "smollm2-135m": 134_515_008, "smollm2-360m": 361_821_120, "mistral-7b": 7_241_732_096,
    "mixtral-8x7b": 46_702_792_704, "mixtral-8x22b": 140_620_634_112,
    "qwen2.5-0.5b": 494_032_768, "qwen2.5-1.5b": 1_543_714_304, "qwen2.5-3b": 3_085_938_688,
    "qwen2.5-7b": 7_615_616_512, "qwen2.5-14b": 14_770_033_664, "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648, "qwen3-0.6b": 596_049_920, "qwen3-1.7b": 1_720_574_976,
    "qwen3-4b": 4_022_468_096, "qwen3-8b": 8_190_735_360, "qwen3-14b": 14_768_307_200,
    "qwen3-32b": 32_762_123_264, "qwen3-30b-a3b": 30_532_122_624,
    "gpt-oss-20b": 20_914_757_184, "gpt-oss-120b": 116_829_156_672,
    "deepseek-v2-lite": 15_706_484_224, "deepseek-v2": 235_741_434_880, "deepseek-v3": 671_026_419_200,
    "gemma-2b": 2_506_172_416, "gemma-7b": 8_537_680_896, "gemma2-2b": 2_614_341_888,
    "gemma2-9b": 9_241_705_984, "gemma2-27b": 27_227_128_320, "gemma3-270m": 268_098_176,
    "gemma3-1b": 999_885_952, "starcoder2-3b": 3_030_371_328, "starcoder2-7b": 7_173_923_840,
    "smollm3-3b": 3_075_098_624, "olmo-1b": 1_176_764_416, "olmo-7b": 6_888_095_744,
    "olmo2-1b": 1_484_916_736, "olmo2-7b": 7_298_617_344, "stablelm-3b": 2_795_443_200,
    "stablelm2-1.6b": 1_644_515_328, "stablelm2-12b": 12_143_185_920, "command-r": 34_980_831_232,
    "seed-oss-36b": 36_151_104_512, "glm4-9b": 9_399_951_360,
    "t5-small": 60_506_624, "t5-base": 222_903_552, "t5-large": 737_668_096, "t5-3b": 2_851_598_336,
    "t5-11b": 11_307_321_344, "t5-v1.1-small": 76_961_152, "t5-v1.1-base": 247_577_856,
    "t5-v1.1-large": 783_150_080, "t5-v1.1-xl": 2_849_757_184, "t5-v1.1-xxl": 11_135_332_352,
    }  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_named_size_has_the_published_number_of_parameters(name: str) -> None:
    family, config = family_and_config(name)
    assert family.spec(config, "tokens").count() == PUBLISHED[name]


def test_names_of_sizes_are_unique_and_none_is_the_name_of_another_family() -> None:
    """`ch.build(name)` and `clearhead inspect NAME` take either."""
    names = [size for sizes in ch.families().values() for size in sizes]
    assert len(set(names)) == len(names) == len(SIZES)
    assert all(SIZES[name].name == name for name in SIZES if name in ch.families())
