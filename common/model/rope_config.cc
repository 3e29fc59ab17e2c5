#include "common/model/rope_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/model/decoder_config.h"
#include "common/model/strict_json.h"

namespace moestro::model {
namespace {

using Scaling = RopeSpec::Scaling;

std::optional<Scaling> parse_scaling(const std::string& type) {
  if (type == "default") return Scaling::kNone;
  if (type == "linear") return Scaling::kLinear;
  if (type == "dynamic") return Scaling::kDynamic;
  if (type == "yarn") return Scaling::kYarn;
  if (type == "llama3") return Scaling::kLlama3;
  return std::nullopt;
}

// A value of 0 means "not set" to transformers wherever it writes `x or default`.
std::optional<double> nonzero(std::optional<double> value) { return value == 0.0 ? std::nullopt : value; }

int64_t original_length(ConfigReader& config, ConfigReader& rope, int64_t max_position) {
  const int64_t inner = rope.count_or("original_max_position_embeddings", max_position, kPositionsMax);
  return config.count_or("original_max_position_embeddings", inner, kPositionsMax);
}

void read_yarn(ConfigReader& config, ConfigReader& rope, int64_t max_position, RopeSpec& spec) {
  spec.original_max_position = original_length(config, rope, max_position);
  spec.factor = rope.has("factor")
                    ? rope.positive("factor")
                    : static_cast<double>(max_position) / static_cast<double>(spec.original_max_position);
  spec.beta_fast = nonzero(rope.number("beta_fast")).value_or(32.0);
  spec.beta_slow = nonzero(rope.number("beta_slow")).value_or(1.0);
  if (spec.beta_fast < spec.beta_slow || spec.beta_slow <= 0)
    rope.refuse(invalid_argument(rope.where() + ": beta_fast must not be below beta_slow, and both above 0"));
  spec.attention_factor = rope.number("attention_factor");
  if (spec.attention_factor && *spec.attention_factor <= 0)
    rope.refuse(invalid_argument(rope.where() + ": attention_factor must be above 0"));
  spec.mscale = nonzero(rope.number("mscale"));
  spec.mscale_all_dim = nonzero(rope.number("mscale_all_dim"));
  spec.truncate = !rope.is_null("truncate") && rope.flag_or("truncate", true);  // transformers takes None for false
  if (spec.theta <= 1.0) rope.refuse(invalid_argument(rope.where() + ": yarn needs a rope_theta above 1"));
}

void read_llama3(ConfigReader& config, ConfigReader& rope, int64_t max_position, RopeSpec& spec) {
  spec.original_max_position = original_length(config, rope, max_position);
  spec.factor = rope.positive("factor");
  spec.low_freq_factor = rope.positive("low_freq_factor");
  spec.high_freq_factor = rope.positive("high_freq_factor");
  if (spec.high_freq_factor <= spec.low_freq_factor)
    rope.refuse(invalid_argument(rope.where() + ": high_freq_factor must be above low_freq_factor"));
}

void read_scaling(ConfigReader& config, ConfigReader& rope, int64_t max_position, RopeSpec& spec) {
  switch (spec.scaling) {
    case Scaling::kNone: return;
    case Scaling::kLinear: spec.factor = rope.positive("factor"); return;
    case Scaling::kDynamic:
      spec.factor = rope.positive("factor");
      spec.original_max_position = max_position;  // transformers reads no other length here
      if (spec.factor < 1.0) rope.refuse(invalid_argument(rope.where() + ": factor must be at least 1"));
      if (spec.rotary_dim <= 2) rope.refuse_unsupported("rope_type", "'dynamic' needs heads of more than 2 components");
      return;
    case Scaling::kYarn: return read_yarn(config, rope, max_position, spec);
    case Scaling::kLlama3: return read_llama3(config, rope, max_position, spec);
  }
}

void refuse_partial_rotary(ConfigReader& reader) {
  if (reader.number("partial_rotary_factor").value_or(1.0) != 1.0)
    reader.refuse_unsupported("partial_rotary_factor", "other than 1 is not supported");
}

// Keys that belong to another type: transformers warns and goes on, and so the numbers are the same without them.
bool is_key_of_another_type(std::string_view key) {
  for (const auto* known : {"factor", "original_max_position_embeddings", "beta_fast", "beta_slow", "attention_factor",
                            "mscale", "mscale_all_dim", "truncate", "low_freq_factor", "high_freq_factor", "type"})
    if (key == known) return true;
  return false;
}

}  // namespace

RopeSpec read_rope(ConfigReader& config, int64_t head_dim, int64_t max_position, double standard_theta) {
  static const nlohmann::json kEmpty = nlohmann::json::object();
  RopeSpec spec;
  spec.rotary_dim = head_dim;
  refuse_partial_rotary(config);
  const auto* parameters = config.object("rope_parameters");
  const auto* scaling = config.object("rope_scaling");
  const bool older = scaling != nullptr && !scaling->empty();  // the older spelling wins where both are given
  const std::string section = older ? ": rope_scaling" : ": rope_parameters";
  ConfigReader rope(older ? *scaling : parameters != nullptr ? *parameters : kEmpty, config.where() + section);
  if (rope.has("full_attention") || rope.has("sliding_attention"))
    rope.refuse(unsupported(rope.where() + " that differ by layer type are not supported"));
  const std::string type = rope.text_or("rope_type", rope.text_or("type", "default"));
  // The outer value may be null where the inner one counts.
  spec.theta = rope.is_null("rope_theta") || rope.has("rope_theta") ? rope.positive("rope_theta")
                                                                     : config.positive_or("rope_theta", standard_theta);
  if (config.has("rope_theta")) config.positive("rope_theta");
  refuse_partial_rotary(rope);
  if (const auto known = parse_scaling(type))
    spec.scaling = *known;
  else
    rope.refuse(unsupported(rope.where() + ": rope_type " + in_quotes(type) +
                            " is not supported (default, linear, dynamic, yarn and llama3 are)"));
  if (!rope.failed()) read_scaling(config, rope, max_position, spec);
  if (Status status = rope.finish(is_key_of_another_type); !status.is_ok()) config.refuse(std::move(status));
  return spec;
}

int64_t usable_positions(const RopeSpec& rope, int64_t max_position) {
  double reach = 0;
  if (rope.scaling == Scaling::kDynamic || rope.scaling == Scaling::kYarn)
    reach = static_cast<double>(rope.original_max_position) * rope.factor;
  return std::max(max_position, static_cast<int64_t>(std::min(reach, static_cast<double>(kPositionsMax))));
}

}  // namespace moestro::model
