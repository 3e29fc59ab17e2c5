// Why a missing expert was late: since when forecasts called for it, and whether it found room.

#include <utility>

#include "common/tier/tier_impl.h"

namespace moestro::tier {

/// A forecast calls for the key.
void DeviceTier::Impl::follow(Nanos now, Key key) {
  Entry& entry = entries[key];
  followed[key] = 1;
  if (entry.foreseen_at != kNever) return;
  entry.foreseen_at = now;
  entry.no_room = false;
  calls_for_some = true;
}

void DeviceTier::Impl::forget_forecast() {
  candidates.clear();
  forecast.clear();
  if (std::exchange(calls_for_some, false))
    for (Entry& entry : entries) entry.foreseen_at = kNever;
}

/// There is one reason at a time: what a link with nothing else to do would have brought in time was held up.
LateCause DeviceTier::Impl::why_late(Nanos now, Key key) const {
  const Entry& entry = entries[key];
  if (entry.foreseen_at == kNever) return LateCause::kNotForeseen;
  if (now - entry.foreseen_at < pace.time_of(options.bytes_of(key))) return LateCause::kForeseenTooLate;
  return entry.no_room ? LateCause::kNoRoom : LateCause::kLinkBusy;
}

LateCause DeviceTier::late_cause(Key key) const { return impl_->entries[key].late; }

}  // namespace moestro::tier
