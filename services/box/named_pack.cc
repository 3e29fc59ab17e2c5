#include "services/box/named_pack.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <sstream>
#include <string_view>

namespace moestro::box {

namespace {

constexpr size_t kModelNameBytesMax = 128;

bool is_name_part(std::string_view part) {
  return !part.empty() && part.front() != '.' && part.front() != '-' && std::ranges::all_of(part, [](unsigned char c) {
    return (c < 0x80 && std::isalnum(c)) || c == '.' || c == '_' || c == '-' || c == ':';
  });
}

bool is_model_name(std::string_view name) {
  if (name.size() > kModelNameBytesMax) return false;
  for (size_t slash; (slash = name.find('/')) != std::string_view::npos; name.remove_prefix(slash + 1))
    if (!is_name_part(name.substr(0, slash))) return false;
  return is_name_part(name);
}

/// As it may stand in a one-line message.
std::string shown_name(const std::string& name) {
  std::string text = name.substr(0, 80);
  std::ranges::replace_if(text, [](unsigned char c) { return c < 0x20 || c >= 0x7F; }, '?');
  return text + (name.size() > text.size() ? "..." : "");
}

}  // namespace

Status check_model_name(const std::string& name) {
  if (is_model_name(name)) return Status::ok();
  return invalid_argument("'" + shown_name(name) + "' is no model name: it has 1 to " +
                          std::to_string(kModelNameBytesMax) +
                          " letters, digits, '.', '_', '-', ':' and '/', and no part of it is empty or begins with '.' "
                          "or '-'; give another with --name (model.name) or --alias (model.aliases)");
}

std::string name_in_path(const std::string& name) {
  std::string text;
  for (const char c : name) text += c == '/' || c == ':' ? "--" : std::string(1, c);
  return text;
}

Result<NamedPack> parse_named_pack(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
    return invalid_argument("--model '" + text + "': write NAME=PACK");
  NamedPack model{text.substr(0, equals), text.substr(equals + 1)};
  MOESTRO_RETURN_IF_ERROR(check_model_name(model.name));
  return model;
}

Result<std::vector<std::string>> aliases_of(const config::BoxConfig& box) {
  std::vector<std::string> aliases;
  std::istringstream words(box.model.aliases);
  for (std::string alias; std::getline(words, alias, ',');) {
    MOESTRO_RETURN_IF_ERROR(check_model_name(alias));
    if (alias == box.model.name || std::ranges::find(aliases, alias) != aliases.end())
      return invalid_argument("--alias '" + alias + "' is a name that the model has already; leave it out");
    aliases.push_back(std::move(alias));
  }
  return aliases;
}

Result<NamedPack> model_of(const config::BoxConfig& box) {
  if (box.model.pack.empty())
    return invalid_argument("no model to serve: give --model, or model.pack in the YAML file");
  NamedPack model{box.model.name, box.model.pack};
  if (model.name.empty()) {
    std::error_code error;
    const std::filesystem::path pack = std::filesystem::weakly_canonical(std::filesystem::absolute(model.pack), error);
    model.name = (pack.has_filename() ? pack.filename() : pack.parent_path().filename()).string();
  }
  MOESTRO_RETURN_IF_ERROR(check_model_name(model.name));
  return model;
}

}  // namespace moestro::box
