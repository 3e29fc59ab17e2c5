#include "common/config/yaml_file.h"

#include <yaml-cpp/yaml.h>

#include <cerrno>
#include <fstream>
#include <set>
#include <sstream>

namespace moestro::config {
namespace {

std::string at_line(const std::string& name, const YAML::Mark& mark) {
  return mark.line < 0 ? name : name + " line " + std::to_string(mark.line + 1);
}

/// A map's key as text, refused where it is not a plain scalar or stands there a second time.
Result<std::string> key_text(const YAML::Node& key, const std::string& prefix, const std::string& name,
                             std::set<std::string>& seen) {
  const std::string where = at_line(name, key.Mark());
  if (!key.IsScalar()) return invalid_argument(where + ": a key must be a plain word");
  std::string text = prefix + key.Scalar();
  if (!seen.insert(text).second)
    return invalid_argument(where + ": '" + text + "' stands here a second time");
  return text;
}

/// The text of a key: one value or, where the key takes several, a list of them.
Result<std::string> value_text(const YAML::Node& value, const Row& row, const std::string& where) {
  if (value.IsScalar()) return value.Scalar();
  if (!row.list || !value.IsSequence())
    return invalid_argument(where + ": " + row.key + (row.list ? ": needs a value or a list" : ": needs one value"));
  std::string text;
  for (const auto& one : value) {
    if (!one.IsScalar()) return invalid_argument(where + ": " + row.key + ": a list of plain values is needed");
    text += (text.empty() ? "" : ",") + one.Scalar();
  }
  return text;
}

Status load_section(const YAML::Node& section, const std::string& title, const std::string& name,
                    Schema& schema) {
  if (section.IsNull()) return Status::ok();  // "store:" with every key commented out
  if (!section.IsMap())
    return invalid_argument(at_line(name, section.Mark()) + ": section '" + title +
                            "' must hold lines of `key: value`");
  std::set<std::string> seen;
  for (const auto& entry : section) {
    MOESTRO_ASSIGN_OR_RETURN(const std::string key, key_text(entry.first, title + ".", name, seen));
    const std::string where = at_line(name, entry.first.Mark());
    const Row* row = schema.find(key);
    if (row == nullptr) return schema.unknown_key(key, where);
    MOESTRO_ASSIGN_OR_RETURN(const std::string text, value_text(entry.second, *row, where));
    MOESTRO_RETURN_IF_ERROR(schema.set(key, text, where));
  }
  return Status::ok();
}

Status load_document(const YAML::Node& root, const std::string& name, Schema& schema) {
  if (root.IsNull()) return Status::ok();
  if (!root.IsMap())
    return invalid_argument(at_line(name, root.Mark()) + ": must hold sections of `key: value`");
  std::set<std::string> seen;
  for (const auto& entry : root) {
    MOESTRO_ASSIGN_OR_RETURN(const std::string title, key_text(entry.first, "", name, seen));
    if (!schema.has_section(title)) {
      std::string known;
      for (const Schema::Section& section : schema.sections())
        known += (known.empty() ? "" : ", ") + section.name;
      return invalid_argument(at_line(name, entry.first.Mark()) + ": unknown section '" +
                              title.substr(0, 64) + "'; sections are: " + known);
    }
    MOESTRO_RETURN_IF_ERROR(load_section(entry.second, title, name, schema));
  }
  return Status::ok();
}

}  // namespace

Status load_yaml(const std::string& text, const std::string& name, Schema& schema) {
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(text);
    if (documents.empty()) return Status::ok();
    if (documents.size() > 1)
      return invalid_argument(name + ": holds " + std::to_string(documents.size()) +
                              " YAML documents; one is read");
    return load_document(documents.front(), name, schema);
  } catch (const YAML::Exception& error) {
    return invalid_argument(at_line(name, error.mark) + ": not YAML: " + error.msg);
  } catch (const std::exception& error) {
    return invalid_argument(name + ": not YAML: " + error.what());
  }
}

Status load_yaml_file(const std::filesystem::path& path, Schema& schema) {
  std::error_code error;
  const std::uintmax_t bytes = std::filesystem::file_size(path, error);
  if (error) return not_found("config file " + path.string() + ": " + error.message());
  if (bytes > kConfigBytesMax)
    return invalid_argument("config file " + path.string() + " has " + std::to_string(bytes) +
                            " bytes; at most " + std::to_string(kConfigBytesMax) + " are read");
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in) return io_error("config file " + path.string(), errno);
  return load_yaml(text.str(), path.string(), schema);
}

std::string to_yaml(const Schema& schema) {
  YAML::Emitter out;
  out << YAML::BeginMap;
  for (const Schema::Section& section : schema.sections()) {
    out << YAML::Key << section.name << YAML::Value << YAML::BeginMap;
    for (const Row& row : schema.rows()) {
      const size_t dot = row.key.find('.');
      if (row.key.substr(0, dot) != section.name) continue;
      out << YAML::Key << row.key.substr(dot + 1) << YAML::Value;
      if (std::holds_alternative<std::string*>(row.field)) out << YAML::DoubleQuoted;
      out << schema.get(row.key);
    }
    out << YAML::EndMap;
  }
  out << YAML::EndMap;
  return std::string(out.c_str()) + "\n";
}

}  // namespace moestro::config
