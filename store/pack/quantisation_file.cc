#include "store/pack/quantisation_file.h"

#include <nlohmann/json.hpp>
#include <string_view>

#include "common/model/strict_json.h"
#include "store/pack/file.h"

namespace moestro::store {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr uint64_t kBytesMax = 16 << 20;
constexpr char kKey[] = "quantization_config";

void name_method(Json& keys, const char* method) {
  if (!keys.contains("quant_method")) keys["quant_method"] = method;
}

/// A key that is there under both names keeps them, and the old one is refused as unknown.
void rename(Json& keys, const char* from, const char* to) {
  if (!keys.contains(from) || keys.contains(to)) return;
  keys[to] = keys[from];
  keys.erase(from);
}

Json of_gptq(Json keys) {
  name_method(keys, "gptq");
  return keys;
}

Json of_awq(Json keys) {
  name_method(keys, "awq");
  rename(keys, "w_bit", "bits");
  rename(keys, "q_group_size", "group_size");
  return keys;
}

// {"producer": ..., "quantization": {"quant_algo": ...}}: null if no weights are quantised, only a cache.
Json of_modelopt(Json file) {
  Json keys = file.value("quantization", Json(false));
  if (!keys.is_object()) return keys;
  if (keys.contains("quant_algo") && keys["quant_algo"].is_null()) return {};
  name_method(keys, "modelopt");
  return keys;
}

struct Source {
  const char* name;
  Json (*keys)(Json file);
};
constexpr Source kSources[] = {{"quantize_config.json", of_gptq},
                               {"quant_config.json", of_awq},
                               {"hf_quant_config.json", of_modelopt}};

/// At the top, or in the section of the text model.
bool describes_quantisation(const Json& config) {
  const auto has = [](const Json& keys) { return keys.contains(kKey) && !keys[kKey].is_null(); };
  return has(config) || (config.contains("text_config") && has(config["text_config"]));
}

}  // namespace

Result<QuantisationFile> read_quantisation_file(const fs::path& dir, const std::string& config_json) {
  MOESTRO_ASSIGN_OR_RETURN(Json config, model::parse_json_object(config_json, (dir / "config.json").string()));
  QuantisationFile found;
  if (describes_quantisation(config)) return found;
  for (const Source& source : kSources) {
    MOESTRO_ASSIGN_OR_RETURN(const auto text, read_text_file_if_any(dir / source.name, kBytesMax));
    if (!text) continue;
    const std::string where = (dir / source.name).string();
    if (!found.name.empty())
      return invalid_argument(where + ": " + found.name + " describes the quantisation too; remove the wrong one");
    MOESTRO_ASSIGN_OR_RETURN(Json file, model::parse_json_object(*text, where));
    Json keys = source.keys(std::move(file));
    if (keys.is_null()) continue;
    if (!keys.is_object()) return invalid_argument(where + ": quantization is missing or no object");
    config[kKey] = std::move(keys);
    found.name = source.name;
  }
  if (!found.name.empty()) found.config_json = config.dump();
  return found;
}

}  // namespace moestro::store
