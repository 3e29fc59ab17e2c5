#include "common/model/config_reader.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "common/model/strict_json.h"

namespace moestro::model {

ConfigReader::ConfigReader(const nlohmann::json& object, std::string where)
    : object_(object), where_(std::move(where)) {}

const nlohmann::json* ConfigReader::find(std::string_view key) {
  read_.emplace(key);
  const auto it = object_.find(key);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

std::string ConfigReader::name(std::string_view key) const { return where_ + ": " + std::string(key); }

void ConfigReader::refuse(Status error) {
  if (!failed()) error_ = std::move(error);
}

void ConfigReader::refuse_unsupported(std::string_view key, std::string_view why) {
  refuse(unsupported(name(key) + " " + std::string(why)));
}

bool ConfigReader::has(std::string_view key) { return find(key) != nullptr; }

bool ConfigReader::is_null(std::string_view key) {
  read_.emplace(key);
  const auto it = object_.find(key);
  return it != object_.end() && it->is_null();
}

const nlohmann::json* ConfigReader::find_or_absent(std::string_view key) {
  if (is_null(key)) refuse(invalid_argument(name(key) + " is null; give a value, or remove the key for the default"));
  return find(key);
}

int64_t ConfigReader::whole(std::string_view key, const nlohmann::json& value, int64_t min, int64_t max) {
  if (!value.is_number_integer()) return refuse(invalid_argument(name(key) + " must be a whole number")), min;
  // Unsigned numbers beyond int64 would wrap in a plain get<int64_t>().
  const bool huge = value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(max);
  if (huge || value.get<int64_t>() < min || value.get<int64_t>() > max) {
    refuse(invalid_argument(name(key) + " is " + value.dump() + "; it must be between " + std::to_string(min) +
                            " and " + std::to_string(max)));
    return min;
  }
  return value.get<int64_t>();
}

std::optional<double> ConfigReader::real(std::string_view key, const nlohmann::json& value) {
  if (!value.is_number() || !std::isfinite(value.get<double>())) {
    refuse(invalid_argument(name(key) + " must be a finite number"));
    return std::nullopt;
  }
  return value.get<double>();
}

int64_t ConfigReader::count(std::string_view key, int64_t max) {
  const auto* value = find_or_absent(key);
  if (value == nullptr) return refuse(invalid_argument(name(key) + " is missing")), 1;
  return whole(key, *value, 1, max);
}

int64_t ConfigReader::count_or(std::string_view key, int64_t standard, int64_t max, int64_t min) {
  const auto* value = find_or_absent(key);
  return value == nullptr ? standard : whole(key, *value, min, max);
}

double ConfigReader::positive(std::string_view key) {
  if (find_or_absent(key) == nullptr) return refuse(invalid_argument(name(key) + " is missing")), 1.0;
  return positive_or(key, 1.0);
}

double ConfigReader::positive_or(std::string_view key, double standard) {
  const auto* value = find_or_absent(key);
  if (value == nullptr) return standard;
  const auto number = real(key, *value);
  if (number && *number <= 0) refuse(invalid_argument(name(key) + " is " + value->dump() + "; it must be above 0"));
  return number && *number > 0 ? *number : standard;
}

std::optional<double> ConfigReader::number(std::string_view key) {
  const auto* value = find(key);
  return value == nullptr ? std::nullopt : real(key, *value);
}

double ConfigReader::number_or(std::string_view key, double standard) {
  const auto* value = find_or_absent(key);
  return value == nullptr ? standard : real(key, *value).value_or(standard);
}

bool ConfigReader::flag_or(std::string_view key, bool standard) {
  const auto* value = find_or_absent(key);
  if (value == nullptr) return standard;
  if (!value->is_boolean()) return refuse(invalid_argument(name(key) + " must be true or false")), standard;
  return value->get<bool>();
}

bool ConfigReader::truth_or(std::string_view key, bool standard) {
  if (const auto* value = find(key); value != nullptr && value->is_number()) return number(key) != 0.0;
  return flag_or(key, standard);
}

std::string ConfigReader::text_or(std::string_view key, std::string standard) {
  const auto* value = find_or_absent(key);
  if (value == nullptr) return standard;
  if (!value->is_string()) return refuse(invalid_argument(name(key) + " must be a string")), standard;
  return value->get<std::string>();
}

std::vector<int64_t> ConfigReader::counts(std::string_view key, int64_t max) {
  std::vector<int64_t> list;
  const auto* value = find(key);
  if (value == nullptr) return list;
  if (!value->is_array()) return refuse(invalid_argument(name(key) + " must be a list of numbers")), list;
  for (const auto& item : *value) list.push_back(whole(key, item, 0, max));
  return list;
}

std::vector<double> ConfigReader::positives(std::string_view key) {
  std::vector<double> list;
  const auto* value = find(key);
  if (value == nullptr) return list;
  if (!value->is_array()) return refuse(invalid_argument(name(key) + " must be a list of numbers")), list;
  for (const auto& item : *value) {
    const std::optional<double> number = real(key, item);
    if (!number || *number <= 0) return refuse(invalid_argument(name(key) + " must be numbers above 0")), list;
    list.push_back(*number);
  }
  return list;
}

std::vector<std::string> ConfigReader::texts(std::string_view key) {
  std::vector<std::string> list;
  const auto* value = find(key);
  if (value == nullptr) return list;
  if (!value->is_array()) return refuse(invalid_argument(name(key) + " must be a list of strings")), list;
  for (const auto& item : *value) {
    if (!item.is_string()) return refuse(invalid_argument(name(key) + " must be a list of strings")), list;
    list.push_back(item.get<std::string>());
  }
  return list;
}

std::vector<int64_t> ConfigReader::one_or_more(std::string_view key, int64_t max) {
  const auto* value = find(key);
  if (value == nullptr) return {};
  if (value->is_array()) return counts(key, max);
  return {whole(key, *value, 0, max)};
}

const nlohmann::json* ConfigReader::object(std::string_view key) {
  const auto* value = find(key);
  if (value == nullptr || value->is_object()) return value;
  refuse(invalid_argument(name(key) + " must be an object"));
  return nullptr;
}

Status ConfigReader::finish(bool (*harmless)(std::string_view)) {
  if (failed()) return error_;
  for (const auto& [key, value] : object_.items())
    if (!value.is_null() && !read_.contains(key) && !harmless(key))
      return unsupported(where_ + ": this build does not know the setting " + in_quotes(key) +
                         ", which may change what the model computes; remove it if it does not");
  return Status::ok();
}

}  // namespace moestro::model
