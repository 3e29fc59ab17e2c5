#pragma once
// Reads the fields of a JSON object with types and ranges, remembers the first error, and knows which fields nobody
// asked for.

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "orchestrator/api/api_error.h"
#include "orchestrator/api/request_json.h"

namespace moestro::orchestrator {

class FieldReader {
 public:
  explicit FieldReader(const RequestJson& object) : object_(object) {}

  /// The field, or null if it is absent or null.
  const RequestJson* field(const std::string& name);
  std::optional<double> number(const std::string& name, double least, double most);
  std::optional<int64_t> integer(const std::string& name, int64_t least, int64_t most);
  std::optional<bool> boolean(const std::string& name);
  std::optional<std::string> string(const std::string& name);

  /// Refuses the field unless it is absent, null or equal to `neutral`.
  void only(const std::string& name, const RequestJson& neutral, const std::string& why);
  /// The field may hold anything: it changes no answer.
  void ignore(const std::string& name) { known_.insert(name); }
  /// Refuses the first field that was not asked for and is not null.
  void refuse_unknown();
  /// All of those.
  std::vector<std::string> unknown() const;

  void fail(ApiError error) {
    if (!error_) error_ = std::move(error);
  }
  const std::optional<ApiError>& error() const { return error_; }

 private:
  void wrong_type(const std::string& name, const char* type, const RequestJson& value);
  const RequestJson& object_;
  std::set<std::string> known_;
  std::optional<ApiError> error_;
};

}  // namespace moestro::orchestrator
