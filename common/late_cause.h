#pragma once
// Why an expert was not where it is computed when its layer's router chose it.

#include <cstdint>
#include <string_view>

namespace moestro {

enum class LateCause : uint8_t {
  kNotForeseen,      ///< the last forecast did not make it likely enough for a prefetch, or there was none
  kForeseenTooLate,  ///< between its forecast and its router was less time than its copy takes
  kLinkBusy,         ///< there was time, but the link, or the drive, was busy with others
  kNoRoom,           ///< there was time, but no slot for it, or a demand took its slot
};

constexpr std::string_view late_cause_name(LateCause cause) {
  switch (cause) {
    case LateCause::kNotForeseen: return "not foreseen";
    case LateCause::kForeseenTooLate: return "foreseen too late";
    case LateCause::kLinkBusy: return "link busy";
    case LateCause::kNoRoom: return "no room";
  }
  return "?";
}

}  // namespace moestro
