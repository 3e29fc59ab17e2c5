#include "common/model/quantisation.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <nlohmann/json.hpp>
#include <optional>

#include "common/model/decoder_config.h"
#include "common/model/strict_json.h"

namespace moestro::model {
namespace {

using namespace std::string_view_literals;
using Method = Quantisation::Method;

constexpr int64_t kGroupMax = 1 << 20;

/// How a model was quantised, how activations or a cache are to be rounded, and which modules are not quantised: their
/// tensors say so. None of it changes what the weights are.
constexpr std::array kHarmless = {
    "act_group_aware"sv, "activation_scheme"sv, "backend"sv, "batch_size"sv, "block_name_to_quantize"sv,
    "cache_block_outputs"sv, "compression_ratio"sv, "damp_auto_increment"sv, "damp_percent"sv, "dataset"sv,
    "dequantize"sv, "disable_exllama"sv, "do_fuse"sv, "exclude_modules"sv, "exllama_config"sv, "fuse_max_seq_len"sv,
    "global_compression_ratio"sv, "hyb_act"sv, "ignore"sv, "ignored_layers"sv, "kv_cache_quant_algo"sv,
    "kv_cache_scheme"sv, "max_input_length"sv, "meta"sv, "model_file_base_name"sv, "model_name_or_path"sv,
    "model_seqlen"sv, "module_name_preceding_first_block"sv, "modules_in_block_to_quantize"sv, "modules_to_convert"sv,
    "modules_to_fuse"sv, "modules_to_not_convert"sv, "mse"sv, "observer"sv, "observer_kwargs"sv, "pad_token_id"sv,
    "producer"sv, "quantization_status"sv, "run_compressed"sv, "scale_fmt"sv, "static_groups"sv, "tokenizer"sv,
    "true_sequential"sv, "use_cuda_fp16"sv, "use_exllama"sv, "version"sv};
static_assert(std::is_sorted(kHarmless.begin(), kHarmless.end()));

bool is_harmless_here(std::string_view key) { return std::binary_search(kHarmless.begin(), kHarmless.end(), key); }

void expect_bits(ConfigReader& format, std::string_view key, int64_t only) {
  if (const int64_t bits = format.count_or(key, only, 64); bits != only)
    format.refuse_unsupported(key, std::to_string(bits) + " is not supported (" + std::to_string(only) + " is)");
}

/// -1, as GPTQ says it: all columns of a row.
int64_t read_group(ConfigReader& format, int64_t standard) {
  const int64_t group = format.count_or("group_size", standard, kGroupMax, -1);
  if (group == -1) return 0;
  if (group == 0 || group % 32 != 0)
    format.refuse_unsupported("group_size", std::to_string(group) + " is not supported (multiples of 32 are)");
  return group;
}

Quantisation read_mxfp4(ConfigReader& format) {
  for (const std::string& name : format.texts("modules_to_not_convert"))
    if (name.find("experts") != std::string::npos)
      format.refuse_unsupported("modules_to_not_convert", "with " + in_quotes(name) + " is not supported");
  expect_flag(format, "dequantize", false);
  return {.method = Method::kMxfp4};
}

/// Rows and columns of FP8 that share a scale.
void read_block(ConfigReader& format, std::string_view key, Quantisation& q) {
  const std::vector<int64_t> block = format.counts(key, kGroupMax);
  if (block.size() != 2 || block[0] < 1 || block[1] < 1 || block[1] % 32 != 0)
    format.refuse_unsupported(key, "must be two sizes, of which the second is a multiple of 32");
  else
    q.block_rows = block[0], q.block_cols = block[1];
}

Quantisation read_fp8(ConfigReader& format) {
  Quantisation q{.method = Method::kFp8};
  if (const std::string fmt = format.text_or("fmt", "e4m3"); fmt != "e4m3" && fmt != "float8_e4m3fn")
    format.refuse_unsupported("fmt", in_quotes(fmt) + " is not supported (e4m3 is)");
  expect_text(format, "expert_dtype", "fp8");
  if (format.has("weight_block_size")) read_block(format, "weight_block_size", q);
  return q;
}

// A rule for some modules: "-:EXPRESSION" leaves them as they are; others change their numbers.
void refuse_rules(ConfigReader& format) {
  const nlohmann::json* rules = format.object("dynamic");
  if (rules == nullptr) return;
  for (const auto& [rule, settings] : rules->items())
    if (!rule.starts_with("-:"))
      format.refuse_unsupported("dynamic", "with " + in_quotes(rule) + " is not supported (only rules that leave "
                                           "modules as they are, '-:...', are)");
}

/// GPTQModel writes its name: "meta": {"quantizer": ["gptqmodel:1.9.0"]}.
bool is_of_gptqmodel(ConfigReader& format) {
  const nlohmann::json* meta = format.object("meta");
  if (meta == nullptr || !meta->contains("quantizer")) return false;
  return (*meta)["quantizer"].dump().find("gptqmodel") != std::string::npos;
}

Quantisation read_gptq(ConfigReader& format) {
  Quantisation q{.method = Method::kGptq};
  expect_bits(format, "bits", 4);
  q.group = read_group(format, 128);
  const std::string layout = format.text_or("checkpoint_format", format.text_or("format", "gptq"));
  if (layout != "gptq" && layout != "gptq_v2")
    format.refuse_unsupported("checkpoint_format", in_quotes(layout) + " is not supported (gptq and gptq_v2 are)");
  if (format.flag_or("sym", false)) q.gptq_zeros = Quantisation::GptqZeros::kMiddle;
  else if (layout == "gptq_v2") q.gptq_zeros = Quantisation::GptqZeros::kAsTheyAre;
  else if (is_of_gptqmodel(format)) q.gptq_zeros = Quantisation::GptqZeros::kWordLess1;
  expect_text(format, "pack_dtype", "int32");
  expect_flag(format, "is_marlin_format", false);
  // desc_act: columns may belong to groups out of turn. Their g_idx says whether they do, and is read.
  const bool static_groups = format.has("static_groups") && format.flag_or("static_groups", false);
  q.needs_order = format.flag_or("desc_act", false) && !static_groups;
  format.flag_or("lm_head", false);
  refuse_rules(format);
  return q;
}

Quantisation read_awq(ConfigReader& format) {
  Quantisation q{.method = Method::kAwq};
  expect_bits(format, "bits", 4);
  q.group = read_group(format, 128);
  std::string layout = format.text_or("version", format.text_or("format", "gemm"));
  std::ranges::transform(layout, layout.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (layout != "gemm") format.refuse_unsupported("version", in_quotes(layout) + " is not supported (gemm is)");
  expect_flag(format, "zero_point", true);
  return q;
}

/// One group of compressed-tensors: what its weights are.
Quantisation read_weights(ConfigReader& weights, const std::string& format_name) {
  const int64_t bits = weights.count("num_bits", 64);
  const std::string type = weights.text_or("type", "int"), strategy = weights.text_or("strategy", "tensor");
  const auto refuse = [&] {
    weights.refuse_unsupported("num_bits", std::to_string(bits) + " of type " + in_quotes(type) + ", strategy " +
                                               in_quotes(strategy) + ", as " + in_quotes(format_name) +
                                               " are not supported (4 bits of int by group or channel, 8 of float by "
                                               "tensor, channel or block, 4 of float by tensor_group are)");
  };
  Quantisation q;
  if (type == "float" && bits == 8) {
    q.method = Method::kFp8;
    if (strategy == "block")
      read_block(weights, "block_structure", q);
    else if (strategy != "tensor" && strategy != "channel")
      refuse();
  } else if (type == "float" && bits == 4) {
    q.method = Method::kNvfp4;
    if (weights.count_or("group_size", 16, kGroupMax) != 16) refuse();
  } else if (type == "int" && bits == 4 && (strategy == "group" || strategy == "channel")) {
    q.method = Method::kPackedInt4;
    q.group = strategy == "channel" ? 0 : read_group(weights, 128);
    q.symmetric = weights.flag_or("symmetric", true);
  } else {
    refuse();
  }
  return q;
}

bool is_any_key(std::string_view) { return true; }

Quantisation read_groups(ConfigReader& format, const std::string& format_name) {
  const nlohmann::json* groups = format.object("config_groups");
  if (groups == nullptr || groups->empty()) {
    format.refuse(invalid_argument(format.where() + ": config_groups is missing"));
    return {};
  }
  std::optional<Quantisation> first;
  for (const auto& [name, group] : groups->items()) {
    const std::string where = format.where() + ": config_groups." + name;
    if (!group.is_object() || !group.contains("weights") || !group["weights"].is_object()) {
      format.refuse(unsupported(where + ": says nothing of weights"));
      return {};
    }
    ConfigReader weights(group["weights"], where + ".weights");
    const Quantisation q = read_weights(weights, format_name);
    if (Status status = weights.finish(is_any_key); !status.is_ok()) format.refuse(std::move(status));
    if (first && *first != q)
      format.refuse_unsupported("config_groups", "of several kinds are not supported: all weights must be of one");
    first = q;
  }
  return *first;
}

Quantisation read_compressed_tensors(ConfigReader& format) {
  const std::string name = format.text_or("format", "");
  Quantisation q = read_groups(format, name);
  const char* wanted = q.method == Method::kFp8     ? "float-quantized"
                       : q.method == Method::kNvfp4 ? "nvfp4-pack-quantized"
                                                    : "pack-quantized";
  if (name != wanted && !(q.method == Method::kFp8 && name == "naive-quantized"))
    format.refuse_unsupported("format", in_quotes(name) + " is not supported (" + std::string(wanted) + " is)");
  if (const nlohmann::json* config = format.object("sparsity_config"); config != nullptr && !config->empty()) {
    ConfigReader sparsity(*config, format.where() + ": sparsity_config");
    const std::string kind = sparsity.text_or("format", "");
    if (sparsity.failed()) format.refuse(sparsity.error());
    if (kind != "dense") format.refuse_unsupported("sparsity_config", "is not supported");
  }
  if (const nlohmann::json* config = format.object("transform_config"); config != nullptr && !config->empty())
    format.refuse_unsupported("transform_config", "is not supported");
  return q;
}

Quantisation read_modelopt(ConfigReader& format) {
  const std::string algorithm = format.text_or("quant_algo", "NVFP4");
  if (algorithm != "NVFP4" && algorithm != "FP8")
    format.refuse_unsupported("quant_algo", in_quotes(algorithm) + " is not supported (NVFP4 and FP8 are)");
  const Quantisation named{.method = algorithm == "FP8" ? Method::kFp8 : Method::kNvfp4};
  const Quantisation q = format.has("config_groups") ? read_groups(format, algorithm) : named;
  if (q != named) format.refuse_unsupported("config_groups", "of another kind than quant_algo are not supported");
  if (named.method == Method::kFp8) {
    if (format.has("group_size")) format.refuse_unsupported("group_size", "is not supported with FP8");
    return q;  // a scale for each tensor
  }
  if (format.count_or("group_size", 16, kGroupMax) != 16) format.refuse_unsupported("group_size", "must be 16");
  return q;
}

struct Dialect {
  std::string_view name;
  Quantisation (*read)(ConfigReader& format);
};
constexpr Dialect kDialects[] = {{"fp8", read_fp8},
                                 {"gptq", read_gptq},
                                 {"awq", read_awq},
                                 {"compressed-tensors", read_compressed_tensors},
                                 {"modelopt", read_modelopt}};

}  // namespace

Quantisation read_quantisation(ConfigReader& config, bool mxfp4) {
  const nlohmann::json* object = config.object("quantization_config");
  if (object == nullptr) return {};
  ConfigReader format(*object, config.where() + ": quantization_config");
  const std::string method = format.text_or("quant_method", "");
  Quantisation q;
  const auto* dialect = std::ranges::find(kDialects, method, &Dialect::name);
  if (mxfp4 && method == "mxfp4") {
    q = read_mxfp4(format);
  } else if (!mxfp4 && dialect != std::end(kDialects)) {
    q = dialect->read(format);
  } else {
    std::string names;
    for (const Dialect& d : kDialects) names += (names.empty() ? "" : ", ") + std::string(d.name);
    format.refuse_unsupported("quant_method", in_quotes(method) + " is not supported (" +
                                                  (mxfp4 ? "mxfp4 is" : names + " are") +
                                                  "); pack the unquantised checkpoint, with --experts int8 if it is "
                                                  "to be smaller");
  }
  if (Status status = format.finish(is_harmless_here); !status.is_ok()) config.refuse(std::move(status));
  return q;
}

}  // namespace moestro::model
