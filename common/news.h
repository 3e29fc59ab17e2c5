#pragma once
// How long something that was put right by itself is worth a warning.

namespace moestro {

/// A day. The alert MoestroMemoryChanges (configs/monitoring/alerts.yml) says the same.
inline constexpr double kNewsSeconds = 24 * 3600;

/// `ago`: seconds since it happened; negative: it never did.
inline bool is_news(double ago) { return ago >= 0 && ago < kNewsSeconds; }

}  // namespace moestro
