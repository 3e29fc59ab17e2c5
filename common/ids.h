#pragma once
// Strong types for ids, so that an expert's number is never passed where a layer's is meant.

#include <compare>
#include <cstdint>
#include <functional>

namespace moestro {

template <typename Tag, typename Rep>
struct Id {
  using rep = Rep;
  Rep value{};
  constexpr Id() = default;
  constexpr explicit Id(Rep v) : value(v) {}
  friend constexpr auto operator<=>(Id, Id) = default;
};

using ExpertId = Id<struct ExpertTag, uint32_t>;      ///< within its layer
using LayerId = Id<struct LayerTag, uint32_t>;        ///< within its stack, dense layers included
using MoeLayerId = Id<struct MoeLayerTag, uint32_t>;  ///< counts MoE layers only: rows of activation matrices
using SequenceId = Id<struct SequenceTag, uint64_t>;
using PlanId = Id<struct PlanTag, uint64_t>;
using TokenId = int32_t;

}  // namespace moestro

template <typename Tag, typename Rep>
struct std::hash<moestro::Id<Tag, Rep>> {
  size_t operator()(moestro::Id<Tag, Rep> id) const noexcept { return std::hash<Rep>{}(id.value); }
};
