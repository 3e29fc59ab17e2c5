#include "services/box/named_pack.h"

#include <algorithm>
#include <cctype>
#include <filesystem>

namespace moestro::box {

Status check_model_name(const std::string& name) {
  const bool plain = std::all_of(name.begin(), name.end(),
                                 [](unsigned char c) { return std::isalnum(c) || c == '.' || c == '_' || c == '-'; });
  if (name.empty() || name.size() > 64 || !plain || name.front() == '.' || name.front() == '-')
    return invalid_argument("model name '" + name.substr(0, 80) +
                            "' is not made of 1 to 64 letters, digits, '.', '_' and '-'; give one with --name, or "
                            "model.name in the YAML file");
  return Status::ok();
}

Result<NamedPack> parse_named_pack(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
    return invalid_argument("--model '" + text + "': write NAME=PACK");
  NamedPack model{text.substr(0, equals), text.substr(equals + 1)};
  MOESTRO_RETURN_IF_ERROR(check_model_name(model.name));
  return model;
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
