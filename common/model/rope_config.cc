#include "common/model/rope_config.h"

#include <algorithm>
#include <cmath>
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
  if (type == "longrope") return Scaling::kLongrope;
  return std::nullopt;
}

// A value of 0 means "not set" to transformers wherever it writes `x or default`.
std::optional<double> nonzero(std::optional<double> value) { return value == 0.0 ? std::nullopt : value; }

// Versions of transformers differ in whether one beside the section counts (5.24: it does not), so it may say nothing
// else.
int64_t original_length(ConfigReader& config, ConfigReader& rope, int64_t max_position) {
  constexpr std::string_view kKey = "original_max_position_embeddings";
  const int64_t original = rope.count_or(kKey, max_position, kPositionsMax);
  if (const int64_t outer = config.count_or(kKey, original, kPositionsMax); outer != original)
    config.refuse(invalid_argument(config.where() + ": original_max_position_embeddings is " + std::to_string(outer) +
                                   ", but " + std::to_string(original) + " by " + rope.where() +
                                   "; give the length that the model was trained with there"));
  return original;
}

void read_yarn(ConfigReader& config, ConfigReader& rope, int64_t max_position, const RopeDefaults& defaults,
               RopeSpec& spec) {
  spec.original_max_position = original_length(config, rope, max_position);
  spec.mscale = nonzero(rope.number("mscale"));
  spec.mscale_all_dim = nonzero(rope.number("mscale_all_dim"));
  const bool by_lengths = rope.is_null("factor") && !(defaults.factor_scales_latents && spec.mscale_all_dim);
  spec.factor = by_lengths ? static_cast<double>(max_position) / static_cast<double>(spec.original_max_position)
                           : rope.positive("factor");
  spec.beta_fast = nonzero(rope.number("beta_fast")).value_or(32.0);
  spec.beta_slow = nonzero(rope.number("beta_slow")).value_or(1.0);
  if (spec.beta_fast < spec.beta_slow || spec.beta_slow <= 0)
    rope.refuse(invalid_argument(rope.where() + ": beta_fast must not be below beta_slow, and both above 0"));
  spec.attention_factor = rope.number("attention_factor");
  if (spec.attention_factor && *spec.attention_factor <= 0)
    rope.refuse(invalid_argument(rope.where() + ": attention_factor must be above 0"));
  spec.truncate = !rope.is_null("truncate") && rope.flag_or("truncate", true);  // transformers takes None for false
  if (spec.theta <= 1.0) rope.refuse(invalid_argument(rope.where() + ": yarn needs a rope_theta above 1"));
}

void read_llama3(ConfigReader& config, ConfigReader& rope, int64_t max_position, RopeSpec& spec) {
  spec.original_max_position = original_length(config, rope, max_position);
  spec.factor = rope.positive("factor");
  spec.low_freq_factor = rope.positive("low_freq_factor");
  spec.high_freq_factor = rope.positive("high_freq_factor");
  if (spec.high_freq_factor < spec.low_freq_factor)
    rope.refuse(invalid_argument(rope.where() + ": high_freq_factor must not be below low_freq_factor"));
}

// The factor of cos and sin is `attention_factor`, or what follows from the lengths; Phi-3.5-MoE's own keys say it for
// both kinds of factors.
void read_longrope(ConfigReader& config, ConfigReader& rope, int64_t max_position, const RopeDefaults& defaults,
                   RopeSpec& spec) {
  spec.original_max_position = original_length(config, rope, max_position);
  const auto original = static_cast<double>(spec.original_max_position);
  const double factor = rope.has("factor") ? rope.positive("factor") : static_cast<double>(max_position) / original;
  for (const auto& [key, factors] :
       {std::pair{"short_factor", &spec.short_factors}, {"long_factor", &spec.long_factors}}) {
    *factors = rope.positives(key);
    if (static_cast<int64_t>(factors->size()) != spec.rotary_dim / 2)
      rope.refuse(invalid_argument(rope.where() + ": " + key + " must have a number for each pair of components that "
                                                               "is rotated (" +
                                   std::to_string(spec.rotary_dim / 2) + ")"));
  }
  const double standard =
      factor <= 1.0 || original <= 1.0 ? 1.0 : std::sqrt(1.0 + std::log(factor) / std::log(original));
  const double mscale = rope.has("attention_factor") ? rope.positive("attention_factor") : standard;
  spec.short_mscale = defaults.own_mscales ? rope.positive("short_mscale") : rope.positive_or("short_mscale", mscale);
  spec.long_mscale = defaults.own_mscales ? rope.positive("long_mscale") : rope.positive_or("long_mscale", mscale);
}

void read_scaling(ConfigReader& config, ConfigReader& rope, int64_t max_position, const RopeDefaults& defaults,
                  RopeSpec& spec) {
  switch (spec.scaling) {
    case Scaling::kNone: return;
    case Scaling::kLinear: spec.factor = rope.positive("factor"); return;
    case Scaling::kDynamic:
      spec.factor = rope.positive("factor");
      spec.original_max_position = max_position;  // transformers reads no other length here
      if (spec.factor < 1.0) rope.refuse(invalid_argument(rope.where() + ": factor must be at least 1"));
      if (spec.rotary_dim <= 2) rope.refuse_unsupported("rope_type", "'dynamic' needs heads of more than 2 components");
      return;
    case Scaling::kYarn: return read_yarn(config, rope, max_position, defaults, spec);
    case Scaling::kLlama3: return read_llama3(config, rope, max_position, spec);
    case Scaling::kLongrope: return read_longrope(config, rope, max_position, defaults, spec);
  }
}

// The components of a head that are rotated: int(head_dim * factor), as transformers computes it.
int64_t read_rotary_dim(ConfigReader& config, ConfigReader& rope, int64_t head_dim, std::optional<double> standard) {
  constexpr std::string_view kKey = "partial_rotary_factor";
  const std::optional<double> outer = config.number(kKey), inner = rope.number(kKey);
  const double factor = inner.value_or(outer.value_or(standard.value_or(1.0)));
  if (standard && rope.is_null(kKey)) rope.positive(kKey);  // refuses it by name
  if (!standard && factor != 1.0) config.refuse_unsupported(kKey, "other than 1 is not supported");
  const auto rotated = static_cast<int64_t>(static_cast<double>(head_dim) * factor);
  if (!(factor > 0 && factor <= 1) || rotated < 2 || rotated % 2 != 0) {
    config.refuse(invalid_argument(config.where() + ": partial_rotary_factor must rotate an even number of components "
                                                    "of a head, at least 2 and at most head_dim"));
    return head_dim;
  }
  return rotated;
}

// Keys that belong to another type: transformers warns and goes on, and so the numbers are the same without them.
bool is_key_of_another_type(std::string_view key) {
  for (const auto* known : {"factor", "original_max_position_embeddings", "beta_fast", "beta_slow", "attention_factor",
                            "mscale", "mscale_all_dim", "truncate", "low_freq_factor", "high_freq_factor", "type",
                            "short_factor", "long_factor", "short_mscale", "long_mscale",
                            // Of positions in an image; in a text all three are equal.
                            "mrope_section", "mrope_interleaved"})
    if (key == known) return true;
  return false;
}

}  // namespace

RopeSpec read_rope(ConfigReader& config, int64_t head_dim, int64_t max_position, const RopeDefaults& defaults) {
  static const nlohmann::json kEmpty = nlohmann::json::object();
  RopeSpec spec;
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
                                                                     : config.positive_or("rope_theta", defaults.theta);
  if (config.has("rope_theta")) config.positive("rope_theta");
  spec.rotary_dim = read_rotary_dim(config, rope, head_dim, defaults.partial_rotary);
  if (const auto known = parse_scaling(type))
    spec.scaling = *known;
  else
    rope.refuse(unsupported(rope.where() + ": rope_type " + in_quotes(type) +
                            " is not supported (default, linear, dynamic, yarn, llama3 and longrope are)"));
  if (!rope.failed()) read_scaling(config, rope, max_position, defaults, spec);
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
