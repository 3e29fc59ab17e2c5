#pragma once
// Reads the keys of one JSON object (config.json, rope_scaling) and keeps the first error, so that an architecture's
// file is a list of what it reads. At the end, finish() refuses keys that were not read.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace moestro::model {

class ConfigReader {
 public:
  /// `where` names the object in errors. `object` must outlive the reader.
  ConfigReader(const nlohmann::json& object, std::string where);

  /// Present and not null.
  bool has(std::string_view key);
  /// Present, but null. transformers keeps such a None: it does not become the key's default.
  bool is_null(std::string_view key);

  /// Whole numbers, in [1, max] unless stated. `count` requires the key. The `_or` functions use a default if the key
  /// is absent, and refuse null. If null has a meaning, call `has` or `is_null` first.
  int64_t count(std::string_view key, int64_t max);
  int64_t count_or(std::string_view key, int64_t standard, int64_t max, int64_t min = 1);
  /// Finite numbers > 0.
  double positive(std::string_view key);
  double positive_or(std::string_view key, double standard);
  std::optional<double> number(std::string_view key);  ///< any finite number, or nothing
  double number_or(std::string_view key, double standard);  ///< any finite number
  bool flag_or(std::string_view key, bool standard);
  bool truth_or(std::string_view key, bool standard);  ///< true or false, or a number, which is true unless it is 0
  std::string text_or(std::string_view key, std::string standard);
  std::vector<int64_t> counts(std::string_view key, int64_t max);  ///< list of numbers in [0, max]; empty if not set
  std::vector<double> positives(std::string_view key);  ///< list of finite numbers > 0; empty if not set
  std::vector<std::string> texts(std::string_view key);            ///< empty if not set
  std::vector<int64_t> one_or_more(std::string_view key, int64_t max);  ///< a number or a list of them, in [0, max]
  const nlohmann::json* object(std::string_view key);              ///< null if not set

  /// Records an error of the caller's, unless there is one already.
  void refuse(Status error);
  void refuse_unsupported(std::string_view key, std::string_view why);
  bool failed() const { return !error_.is_ok(); }
  const Status& error() const { return error_; }
  const std::string& where() const { return where_; }

  /// The first error. If there is none, an error for the first key that was neither read nor is harmless.
  Status finish(bool (*harmless)(std::string_view key));

 private:
  const nlohmann::json* find(std::string_view key);  ///< null if absent or JSON null; marks the key as read
  const nlohmann::json* find_or_absent(std::string_view key);  ///< the same, but JSON null is refused
  std::string name(std::string_view key) const;
  int64_t whole(std::string_view key, const nlohmann::json& value, int64_t min, int64_t max);
  std::optional<double> real(std::string_view key, const nlohmann::json& value);

  const nlohmann::json& object_;
  std::string where_;
  std::set<std::string, std::less<>> read_;
  Status error_;
};

}  // namespace moestro::model
