#pragma once
// What the canonical names of dense tensors say (model_spec.h).

#include <charconv>
#include <cstddef>
#include <optional>
#include <string_view>

namespace moestro::model {

/// N of "layers.N.REST"; nullopt: a tensor of no layer.
inline std::optional<size_t> layer_of_tensor(std::string_view name) {
  constexpr std::string_view kPrefix = "layers.";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  size_t layer = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  if (error != std::errc() || end == name.data() + name.size() || *end != '.') return std::nullopt;
  return layer;
}

}  // namespace moestro::model
