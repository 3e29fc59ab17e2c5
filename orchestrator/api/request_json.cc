#include "orchestrator/api/request_json.h"

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "common/utf8.h"

namespace moestro::orchestrator {

namespace {

constexpr size_t kNestingMax = 64;  // copies and printing of nlohmann's values recurse

/// As it may stand in a one-line message.
std::string shown(const std::string& key) {
  constexpr size_t kBytesMax = 60;
  std::string text;
  for (const char c : key.substr(0, kBytesMax)) text += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  text.resize(text.size() - unfinished_utf8_bytes(text));
  return text + (key.size() > kBytesMax ? "..." : "");
}

/// Builds the value from the parser's events. nlohmann's own builder looks for every key among those before it, which
/// for ordered objects takes quadratic time; here each object's keys are in a set as long as it is open.
class Builder : public nlohmann::json_sax<RequestJson> {
 public:
  explicit Builder(const std::string& what) : what_(what) {}

  RequestJson result;
  std::string problem;

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }  // JSON text has none
  bool start_object(size_t) override { return open(RequestJson::object()); }
  bool start_array(size_t) override { return open(RequestJson::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    if (!open_.back().keys.insert(name).second) {
      problem = what_ + " gives '" + shown(name) + "' twice in one object";
      return false;
    }
    key_ = std::move(name);
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override {
    problem = what_ + " is not JSON";
    return false;
  }

 private:
  struct Open {
    RequestJson* value;
    std::set<std::string> keys;
  };

  /// Puts a value where it belongs and says where that is: until its container takes the next one.
  RequestJson* put(RequestJson&& value) {
    if (open_.empty()) return &(result = std::move(value));
    RequestJson& parent = *open_.back().value;
    if (parent.is_array()) {
      auto& items = parent.get_ref<RequestJson::array_t&>();
      return &items.emplace_back(std::move(value));
    }
    auto& members = parent.get_ref<RequestJson::object_t&>();
    return &members.emplace_back(std::move(key_), std::move(value)).second;
  }
  bool add(RequestJson&& value) { return put(std::move(value)), true; }
  bool open(RequestJson&& value) {
    if (open_.size() >= kNestingMax) {
      problem = what_ + " is JSON nested deeper than " + std::to_string(kNestingMax) + " levels";
      return false;
    }
    open_.push_back({put(std::move(value)), {}});
    return true;
  }
  bool close() { return open_.pop_back(), true; }

  const std::string what_;
  std::vector<Open> open_;
  std::string key_;
};

}  // namespace

std::variant<RequestJson, ApiError> parse_body(const std::string& body, const std::string& what) {
  if (const size_t at = find_invalid_utf8(body); at < body.size())
    return bad_request(what + " is not UTF-8: byte " + std::to_string(at) + " cannot be there");
  Builder builder(what);
  if (!RequestJson::sax_parse(body, &builder))
    return bad_request(builder.problem.empty() ? what + " is not JSON" : builder.problem);
  if (!builder.result.is_object()) return bad_request(what + " must be a JSON object");
  return std::move(builder.result);
}

}  // namespace moestro::orchestrator
