#pragma once
// One function per architecture: reads its config.json, with the keys of transformers, into a ModelSpec.

#include "common/model/checkpoint_names.h"
#include "common/model/config_reader.h"
#include "common/model/decoder_config.h"
#include "common/model/model_spec.h"

namespace moestro::model {

struct Architecture {
  const char* name;  ///< as in config.json "architectures"
  void (*describe)(ConfigReader& config, ModelSpec& spec);
  const CheckpointNames& names;
};

void describe_mixtral(ConfigReader& config, ModelSpec& spec);
void describe_qwen2_moe(ConfigReader& config, ModelSpec& spec);
void describe_qwen3_moe(ConfigReader& config, ModelSpec& spec);
void describe_olmoe(ConfigReader& config, ModelSpec& spec);
void describe_glm4_moe(ConfigReader& config, ModelSpec& spec);
void describe_solar_open(ConfigReader& config, ModelSpec& spec);
void describe_dots1(ConfigReader& config, ModelSpec& spec);
void describe_deepseek_v2(ConfigReader& config, ModelSpec& spec);
void describe_deepseek_v3(ConfigReader& config, ModelSpec& spec);
void describe_glm4_moe_lite(ConfigReader& config, ModelSpec& spec);
void describe_minimax_m2(ConfigReader& config, ModelSpec& spec);
void describe_gpt_oss(ConfigReader& config, ModelSpec& spec);
void describe_ernie4_5_moe(ConfigReader& config, ModelSpec& spec);
void describe_granitemoe(ConfigReader& config, ModelSpec& spec);
void describe_phimoe(ConfigReader& config, ModelSpec& spec);
void describe_dbrx(ConfigReader& config, ModelSpec& spec);
void describe_arctic(ConfigReader& config, ModelSpec& spec);
void describe_llama4(ConfigReader& config, ModelSpec& spec);
void describe_llama4_text_part(ConfigReader& config, ModelSpec& spec);
void describe_qwen3_next(ConfigReader& config, ModelSpec& spec);
void describe_qwen3_5_moe(ConfigReader& config, ModelSpec& spec);
void describe_qwen3_5_moe_text(ConfigReader& config, ModelSpec& spec);
void describe_switch_transformers(ConfigReader& config, ModelSpec& spec);
void describe_nllb_moe(ConfigReader& config, ModelSpec& spec);

}  // namespace moestro::model
