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
  /// `ignored`: fields that are not known are named there; null: they are refused.
  explicit FieldReader(const RequestJson& object, std::vector<std::string>* ignored = nullptr)
      : object_(object), ignored_(ignored) {}
  /// For an object in the field `name` of another, which decides about fields that are not known: "NAME.FIELD".
  FieldReader(const RequestJson& object, const FieldReader& outer, const std::string& name)
      : object_(object), ignored_(outer.ignored_), place_(outer.place_ + name + ".") {}

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
  /// The fields that were not asked for and are not null.
  std::vector<std::string> unknown() const;
  /// Refuses the first of those.
  void refuse_unknown();
  /// Refuses it, or names all of them in `ignored`.
  void settle_unknown();
  std::vector<std::string>* ignored() const { return ignored_; }

  void fail(ApiError error) {
    if (!error_) error_ = std::move(error);
  }
  const std::optional<ApiError>& error() const { return error_; }

 private:
  void wrong_type(const std::string& name, const char* type, const RequestJson& value);
  const RequestJson& object_;
  std::vector<std::string>* const ignored_;
  const std::string place_;  ///< of the object in the body: "" or "NAME."
  std::set<std::string> known_;
  std::optional<ApiError> error_;
};

}  // namespace moestro::orchestrator
