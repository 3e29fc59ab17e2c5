#include <nlohmann/json.hpp>

#include "common/model/architectures/architecture.h"
#include "common/model/config_keys.h"
#include "common/model/encoder_decoder_config.h"
#include "common/model/model_spec.h"
#include "common/model/strict_json.h"

namespace moestro::model {
namespace {

const Architecture kArchitectures[] = {
    {"MixtralForCausalLM", describe_mixtral, kMixtralNames},
    {"Qwen2MoeForCausalLM", describe_qwen2_moe, kMlpNames},
    {"Qwen3MoeForCausalLM", describe_qwen3_moe, kMlpNames},
    {"OlmoeForCausalLM", describe_olmoe, kMlpNames},
    {"Glm4MoeForCausalLM", describe_glm4_moe, kSharedExpertsNames},
    {"SolarOpenForCausalLM", describe_solar_open, kSharedExpertsNames},
    {"Dots1ForCausalLM", describe_dots1, kSharedExpertsNames},
    {"DeepseekV2ForCausalLM", describe_deepseek_v2, kSharedExpertsNames},
    {"DeepseekV3ForCausalLM", describe_deepseek_v3, kSharedExpertsNames},
    {"Glm4MoeLiteForCausalLM", describe_glm4_moe_lite, kSharedExpertsNames},
    {"MiniMaxM2ForCausalLM", describe_minimax_m2, kMiniMaxNames},
    {"GptOssForCausalLM", describe_gpt_oss, kGptOssNames},
    {"Ernie4_5_MoeForCausalLM", describe_ernie4_5_moe, kErnieNames},
    {"GraniteMoeForCausalLM", describe_granitemoe, kGraniteNames},
    {"GraniteMoeSharedForCausalLM", describe_granitemoe, kGraniteNames},
    {"PhimoeForCausalLM", describe_phimoe, kMixtralNames},
    {"PhiMoEForCausalLM", describe_phimoe, kMixtralNames},  // as Microsoft publishes it
    {"DbrxForCausalLM", describe_dbrx, kDbrxNames},
    {"ArcticForCausalLM", describe_arctic, kArcticNames},
    {"Llama4ForCausalLM", describe_llama4, kLlama4Names},
    {"Llama4ForConditionalGeneration", describe_llama4_text_part, kLlama4TextPartNames},
    {"Qwen3NextForCausalLM", describe_qwen3_next, kQwen3NextNames},
    {"Qwen3_5MoeForConditionalGeneration", describe_qwen3_5_moe, kQwen35MoeNames},
    {"Qwen3_5MoeForCausalLM", describe_qwen3_5_moe_text, kQwen35MoeTextNames},
    {"SwitchTransformersForConditionalGeneration", describe_switch_transformers, kSwitchNames},
    {"NllbMoeForConditionalGeneration", describe_nllb_moe, kNllbNames},
};

Result<const Architecture*> find_architecture(ConfigReader& config) {
  const std::vector<std::string> asked = config.texts("architectures");
  if (config.failed()) return config.error();
  if (asked.size() != 1) return invalid_argument("config.json: architectures must name exactly one architecture");
  for (const Architecture& a : kArchitectures)
    if (asked[0] == a.name) return &a;
  std::string known;
  for (const std::string& name : known_architectures()) known += (known.empty() ? "" : ", ") + name;
  return unsupported("config.json: architecture " + in_quotes(asked[0]) + " is not supported (" + known + " are)");
}

// generation_config.json is what transformers' generate() stops by; where it says nothing, config.json does.
Status read_generation_config(const std::string& text, ModelSpec& spec) {
  MOESTRO_ASSIGN_OR_RETURN(const nlohmann::json parsed, parse_json_object(text, "generation_config.json"));
  ConfigReader reader(parsed, "generation_config.json");
  read_token_ids(reader, spec);
  if (spec.is_encoder_decoder()) read_target_begin(reader, spec);
  return reader.finish([](std::string_view) { return true; });  // sampling defaults are the client's business
}

Result<ModelDescription> describe(const std::string& config_json, const std::string& generation_config_json) {
  MOESTRO_ASSIGN_OR_RETURN(const nlohmann::json parsed, parse_json_object(config_json, "config.json"));
  ConfigReader config(parsed, "config.json");
  MOESTRO_ASSIGN_OR_RETURN(const Architecture* architecture, find_architecture(config));
  ModelDescription description;
  description.spec.architecture = architecture->name;
  architecture->describe(config, description.spec);
  MOESTRO_RETURN_IF_ERROR(config.finish(is_harmless_key));
  if (!generation_config_json.empty())
    MOESTRO_RETURN_IF_ERROR(read_generation_config(generation_config_json, description.spec));
  map_checkpoint(architecture->names, description);
  return description;
}

}  // namespace

Result<ModelDescription> describe_model(const std::string& config_json, const std::string& generation_config_json) {
  try {
    return describe(config_json, generation_config_json);
  } catch (const nlohmann::json::exception& e) {
    return invalid_argument(std::string("config.json: ") + e.what());
  }
}

std::vector<std::string> known_architectures() {
  std::vector<std::string> names;
  for (const Architecture& a : kArchitectures) names.emplace_back(a.name);
  return names;
}

}  // namespace moestro::model
