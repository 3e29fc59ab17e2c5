#pragma once
// Reads the metadata of one family's models.

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/model/strict_json.h"
#include "store/pack/gguf_header.h"

namespace moestro::store {

/// A number that the file has as f32, in the decimal form that it was made from.
double as_written(double value);

/// The fewest digits that mean this number: "64", "1e-07".
std::string shortest_text(double value);

/// Reads "ARCH.key" and keeps the first error. finish() refuses those of the family that were not read.
class GgufConfigReader {
 public:
  GgufConfigReader(const GgufHeader& header, std::string arch) : header_(header), arch_(std::move(arch)) {
    for (const GgufTensor& t : header.tensors) tensors_[t.name] = &t;
  }

  std::optional<int64_t> integer_if_any(const std::string& key) {
    if (const auto* list = per_layer(key)) return *list;
    return value(key, header_.metadata.integer(full(key)));
  }
  int64_t integer(const std::string& key) {
    const auto found = integer_if_any(key);
    if (!found) refuse(invalid_argument("metadata " + model::in_quotes(full(key)) + " is missing"));
    return found.value_or(1);
  }
  std::optional<double> number_if_any(const std::string& key) {
    const auto found = value(key, header_.metadata.number(full(key)));
    return found ? std::optional(as_written(*found)) : std::nullopt;
  }
  std::optional<bool> flag_if_any(const std::string& key) { return value(key, header_.metadata.flag(full(key))); }
  std::optional<std::string> text_if_any(const std::string& key) {
    return value(key, header_.metadata.text(full(key)));
  }
  /// Empty if it is not there.
  std::vector<int64_t> integers_if_any(const std::string& key) {
    read_.insert(full(key));
    const auto list = header_.metadata.integers(full(key));
    if (!list) refuse(list.status());
    return list && *list != nullptr ? **list : std::vector<int64_t>();
  }
  /// The same of truth values, which may be whole numbers.
  std::vector<bool> flags_if_any(const std::string& key) {
    const auto found = header_.metadata.values.find(full(key));
    if (found != header_.metadata.values.end())
      if (const auto* flags = std::get_if<std::vector<bool>>(&found->second)) {
        read_.insert(full(key));
        return *flags;
      }
    std::vector<bool> out;
    for (const int64_t number : integers_if_any(key)) out.push_back(number != 0);
    return out;
  }
  bool has(const std::string& key) const { return header_.metadata.values.contains(full(key)); }
  bool has_tensor(const std::string& name) const { return tensors_.contains(name); }
  /// A dimension of a tensor; 0 if it is not there.
  int64_t dimension(const std::string& name, size_t index) const {
    const auto found = tensors_.find(name);
    return found == tensors_.end() || found->second->shape.size() <= index ? 0 : found->second->shape[index];
  }
  /// The same of "blk.N" + suffix in any layer that has such a tensor.
  int64_t dimension_in_any_layer(const char* suffix, size_t index) const {
    for (const auto& [name, tensor] : tensors_)
      if (name.ends_with(suffix) && tensor->shape.size() > index) return tensor->shape[index];
    return 0;
  }
  void refuse(Status error) {
    if (error_.is_ok()) error_ = std::move(error);
  }
  /// A setting with one value that is computed.
  void expect(const std::string& key, const std::optional<double>& found, double only) {
    if (found && *found != only)
      refuse(unsupported("metadata " + model::in_quotes(full(key)) + " is " + shortest_text(*found) + "; only " +
                         shortest_text(only) + " is supported"));
  }
  /// Something that the file does not say, and what is taken for it.
  void remark(std::string line) { remarks_.push_back(std::move(line)); }
  const std::vector<std::string>& remarks() const { return remarks_; }
  std::string full(const std::string& key) const { return arch_ + "." + key; }
  const GgufMetadata& metadata() const { return header_.metadata; }
  const std::string& arch() const { return arch_; }
  Status finish() {
    MOESTRO_RETURN_IF_ERROR(error_);
    for (const auto& [key, unused] : header_.metadata.values)
      if (key.starts_with(arch_ + ".") && !read_.contains(key))
        return unsupported("metadata " + model::in_quotes(key) + " is not supported for models of the family " + arch_);
    return Status::ok();
  }

 private:
  template <typename T>
  std::optional<T> value(const std::string& key, Result<std::optional<T>> found) {
    read_.insert(full(key));
    if (found) return *found;
    refuse(found.status());
    return std::nullopt;
  }
  /// A list with one number for each layer, all the same.
  const int64_t* per_layer(const std::string& key) {
    const auto found = header_.metadata.values.find(full(key));
    if (found == header_.metadata.values.end()) return nullptr;
    const auto* list = std::get_if<std::vector<int64_t>>(&found->second);
    if (list == nullptr) return nullptr;
    read_.insert(full(key));
    if (list->empty() || std::ranges::any_of(*list, [&](int64_t n) { return n != list->front(); })) {
      refuse(unsupported("metadata " + model::in_quotes(full(key)) + " differs from layer to layer"));
      return nullptr;
    }
    return &list->front();
  }

  const GgufHeader& header_;
  std::string arch_;
  std::map<std::string, const GgufTensor*> tensors_;
  std::set<std::string> read_;
  std::vector<std::string> remarks_;
  Status error_;
};

}  // namespace moestro::store
