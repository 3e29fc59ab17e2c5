#include "store/pack/weight_files.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "common/model/strict_json.h"
#include "store/pack/file.h"

namespace moestro::store {
namespace {

using model::in_quotes;
namespace fs = std::filesystem;

constexpr uint64_t kIndexBytesMax = 256 << 20;
constexpr char kStandard[] = "model", kFile[] = ".safetensors", kIndex[] = ".safetensors.index.json";

/// Names of the files there that end so, sorted.
std::vector<std::string> names_ending(const fs::path& dir, std::string_view end, std::error_code& error) {
  std::vector<std::string> names;
  for (fs::directory_iterator entry(dir, error); !error && entry != fs::directory_iterator(); entry.increment(error))
    if (std::string name = entry->path().filename().string(); name.ends_with(end)) names.push_back(std::move(name));
  std::ranges::sort(names);
  return names;
}

/// A name of any letters and with spaces, but no path.
bool is_in_directory(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find_first_of(std::string_view("/\\\0", 3)) == name.npos;
}

Result<WeightFiles> read_index(const fs::path& dir, const std::string& index) {
  const std::string where = (dir / index).string();
  MOESTRO_ASSIGN_OR_RETURN(const std::string text, read_text_file(dir / index, kIndexBytesMax));
  MOESTRO_ASSIGN_OR_RETURN(const nlohmann::json parsed, model::parse_json_object(text, where));
  const auto map = parsed.find("weight_map");
  if (map == parsed.end() || !map->is_object() || map->empty()) return invalid_argument(where + ": has no weight_map");
  WeightFiles files{.names = {}, .index = index, .weights = {}};
  std::set<std::string> names;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string()) return invalid_argument(where + ": weight_map names no file for " + in_quotes(tensor));
    const auto& name = file.get_ref<const std::string&>();
    if (!is_in_directory(name))
      return invalid_argument(where + ": " + in_quotes(name) + " is not a file name in this directory");
    files.weights[tensor] = name;
    names.insert(name);
  }
  files.names.assign(names.begin(), names.end());
  return files;
}

/// "model", or another name that config.json gives the files.
std::string base_name(const std::string& config_json) {
  const auto config = nlohmann::json::parse(config_json, nullptr, false);
  const auto key = nlohmann::json::json_pointer("/quantization_config/model_file_base_name");
  return config.contains(key) && config[key].is_string() ? config[key].get<std::string>() : kStandard;
}

/// "NAME-00001-of-00003.safetensors": nothing without the others.
bool is_part(const std::string& file) { return file.find("-of-") != std::string::npos; }

Status not_there(const fs::path& dir, const std::vector<std::string>& files, const std::vector<std::string>& indices) {
  const std::string what = dir.string() + ": neither model.safetensors nor model.safetensors.index.json is there";
  const std::vector<std::string>& others = indices.empty() ? files : indices;
  if (others.empty()) return not_found(what + "; convert other formats to safetensors first");
  std::string names = others[0];
  if (others.size() > 1) names += " and " + others[1] + (others.size() > 2 ? " and more" : "");
  std::string advice = "rename the one that is meant to model.safetensors";
  if (!indices.empty()) advice = "rename the one that is meant to model.safetensors.index.json";
  else if (std::ranges::any_of(others, is_part)) advice = "download the index, which lists all parts";
  return not_found(what + ", but " + names + (others.size() > 1 ? " are; " : " is; ") + advice);
}

}  // namespace

bool has_safetensors(const fs::path& dir) {
  std::error_code ignored;
  return !names_ending(dir, kFile, ignored).empty() || !names_ending(dir, kIndex, ignored).empty();
}

Result<WeightFiles> find_weight_files(const fs::path& dir, const std::string& config_json) {
  std::error_code error;
  const std::vector<std::string> files = names_ending(dir, kFile, error), indices = names_ending(dir, kIndex, error);
  if (error) return io_error(dir.string() + ": cannot be listed", error.value());
  for (const std::string& base : {std::string(kStandard), base_name(config_json)}) {
    if (std::ranges::binary_search(files, base + kFile)) return WeightFiles{{base + kFile}, {}, {}};
    if (std::ranges::binary_search(indices, base + kIndex)) return read_index(dir, base + kIndex);
  }
  if (indices.size() == 1) return read_index(dir, indices.front());
  if (indices.empty() && files.size() == 1 && !is_part(files.front())) return WeightFiles{files, {}, {}};
  return not_there(dir, files, indices);
}

}  // namespace moestro::store
