#include "orchestrator/api/field_reader.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace moestro::orchestrator {

using json = RequestJson;

namespace {
std::string plain(double n) {
  return n == std::floor(n) && std::fabs(n) < 1e15 ? std::to_string(static_cast<int64_t>(n)) : std::to_string(n);
}
}  // namespace

const json* FieldReader::field(const std::string& name) {
  known_.insert(name);
  const auto it = object_.find(name);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

void FieldReader::wrong_type(const std::string& name, const char* type, const json& value) {
  fail(bad_request("'" + name + "' must be " + type + ", but is " + value.type_name(), name));
}

std::optional<double> FieldReader::number(const std::string& name, double least, double most) {
  const json* value = field(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) return wrong_type(name, "a number", *value), std::nullopt;
  const double n = value->get<double>();
  if (!(n >= least && n <= most)) {
    fail(bad_request("'" + name + "' must be between " + plain(least) + " and " + plain(most), name));
    return std::nullopt;
  }
  return n;
}

std::optional<int64_t> FieldReader::integer(const std::string& name, int64_t least, int64_t most) {
  const json* value = field(name);
  if (value == nullptr) return std::nullopt;
  const auto out_of_range = [&]() -> std::optional<int64_t> {
    fail(bad_request("'" + name + "' must be between " + std::to_string(least) + " and " + std::to_string(most), name));
    return std::nullopt;
  };
  if (value->is_number_float()) {  // 16.0 is an integer to many clients; 1e30 is out of range, 1.5 is no integer
    const double n = value->get<double>();
    if (n != std::floor(n)) return wrong_type(name, "an integer", *value), std::nullopt;
    if (!(n >= static_cast<double>(least) && n <= static_cast<double>(most))) return out_of_range();
    return static_cast<int64_t>(n);
  }
  if (!value->is_number_integer()) return wrong_type(name, "an integer", *value), std::nullopt;
  if (value->is_number_unsigned() && value->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) return out_of_range();
  const auto n = value->get<int64_t>();
  if (n < least || n > most) return out_of_range();
  return n;
}

std::optional<bool> FieldReader::boolean(const std::string& name) {
  const json* value = field(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) return wrong_type(name, "true or false", *value), std::nullopt;
  return value->get<bool>();
}

std::optional<std::string> FieldReader::string(const std::string& name) {
  const json* value = field(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) return wrong_type(name, "a string", *value), std::nullopt;
  return value->get<std::string>();
}

void FieldReader::only(const std::string& name, const json& neutral, const std::string& why) {
  const json* value = field(name);
  if (value != nullptr && *value != neutral) fail(not_supported(name, why));
}

std::vector<std::string> FieldReader::unknown() const {
  std::vector<std::string> names;
  for (const auto& [name, value] : object_.items())
    if (!known_.contains(name) && !value.is_null()) names.push_back(name);
  return names;
}

void FieldReader::refuse_unknown() {
  const auto names = unknown();
  if (!names.empty()) fail(not_supported(names.front(), "this field is not known here; leave it out"));
}

void FieldReader::settle_unknown() {
  if (ignored_ == nullptr) return refuse_unknown();
  for (const std::string& name : unknown()) ignored_->push_back(place_ + name);
}

}  // namespace moestro::orchestrator
