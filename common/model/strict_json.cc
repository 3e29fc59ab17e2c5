#include "common/model/strict_json.h"

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "common/utf8.h"

namespace moestro::model {
namespace {

constexpr size_t kDepthMax = 64;  // none of the files read here nests deeper than 4

/// Finds what the text must not have, before anything is made of it. (With the library's own callback, an object of n
/// objects takes n * n steps.)
class Watcher : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    return keys_.back().insert(name).second || refuse(in_quotes(name) + " is given twice");
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    return refuse("not valid JSON at byte " + std::to_string(position));
  }

  const std::string& problem() const { return problem_; }

 private:
  bool open() {
    if (keys_.size() >= kDepthMax) return refuse("nested too deeply");
    keys_.emplace_back();
    return true;
  }
  bool close() {
    keys_.pop_back();
    return true;
  }
  bool refuse(std::string why) {
    problem_ = std::move(why);
    return false;
  }

  std::vector<std::set<std::string>> keys_;  ///< of every open object; none of an array
  std::string problem_;
};

}  // namespace

std::string in_quotes(std::string_view text) {
  constexpr size_t kLengthMax = 120;
  std::string_view shown = text.substr(0, kLengthMax);
  if (shown.size() < text.size()) shown.remove_suffix(unfinished_utf8_bytes(shown));
  std::string out = lossy_utf8(shown);
  for (char& c : out)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return "'" + out + (shown.size() < text.size() ? "...'" : "'");
}

Result<nlohmann::json> parse_json_object(std::string_view text, std::string_view where) {
  Watcher watcher;
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &watcher))
    return invalid_argument(std::string(where) + ": " + watcher.problem());
  nlohmann::json parsed = nlohmann::json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object()) return invalid_argument(std::string(where) + ": not a JSON object");
  return parsed;
}

}  // namespace moestro::model
