#include "store/pack/same_model.h"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

namespace moestro::store {
namespace {

using nlohmann::json;

/// Keys of config.json that say how the weights were kept, or by what, and not which model they are.
constexpr std::array<std::string_view, 6> kOfTheFile{"_name_or_path",        "torch_dtype", "dtype",
                                                     "transformers_version", "use_cache",   "quantization_config"};

json model_of(const Manifest& manifest) {
  json config = json::parse(manifest.config_json, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) return json::object();
  for (const std::string_view key : kOfTheFile) config.erase(std::string(key));
  return config;
}

std::string value(const json& config, const std::string& key) {
  return config.contains(key) ? config[key].dump(-1, ' ', false, json::error_handler_t::replace) : "none";
}

Status another(const std::string& difference) {
  return invalid_argument("it is another model: " + difference +
                          "; serve it under a name of its own (moestro store add)");
}

}  // namespace

Status check_same_model(const Manifest& before, const Manifest& now) {
  const json was = model_of(before), is = model_of(now);
  for (const json* config : {&was, &is})
    for (const auto& [key, unused] : config->items())
      if (!was.contains(key) || !is.contains(key) || was[key] != is[key])
        return another(key + " in its config.json is " + value(is, key) + ", in that of the model served " +
                       value(was, key));
  const auto tokenizer = tokenizer_of(before);
  if (const auto its = tokenizer_of(now); tokenizer && its && *tokenizer != *its)
    return another("its tokenizer.json differs");
  return Status::ok();
}

std::string other_texts(const Manifest& before, const Manifest& now) {
  if (before.copied.empty() || now.copied.empty()) return "";
  std::map<std::string_view, std::array<uint64_t, 2>> sums;
  for (const CopiedFile& file : before.copied) sums[file.name][0] = file.xxh3_64;
  for (const CopiedFile& file : now.copied) sums[file.name][1] = file.xxh3_64;
  std::string names;
  for (const auto& [name, both] : sums)
    if (name != "config.json" && both[0] != both[1]) names += (names.empty() ? "" : ", ") + std::string(name);
  return names;
}

}  // namespace moestro::store
