#pragma once
// Sizes and durations as people write them.

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/status.h"

namespace moestro::config {

/// "4GiB", "512M", "1.5G", "4096". K, M, G, T and KiB, MiB, GiB, TiB are powers of 1024; KB, MB, GB, TB powers of 1000;
/// none or B: bytes. A fraction of a byte is cut off. kInvalidArgument names the text and shows valid forms.
Result<uint64_t> parse_size(std::string_view text);

/// The shortest exact form in powers of 1024: "4GiB", "1536MiB", "1000B" as "1000".
std::string format_size(uint64_t bytes);
/// For people to read, three digits: "1.46 GiB", "17.0 MiB", "512 B".
std::string readable_size(uint64_t bytes);

/// "250ms", "30s", "5min", "2h". A number without a unit is refused, because its meaning is not clear.
Result<std::chrono::milliseconds> parse_duration(std::string_view text);
std::string format_duration(std::chrono::milliseconds duration);

/// For hardware: "800ns", "10us", "1.5ms", "1s". A number without a unit is refused, except 0.
Result<std::chrono::nanoseconds> parse_fine_duration(std::string_view text);
/// Bytes a second, as a size with or without "/s": "16GB/s", "700MiB".
Result<uint64_t> parse_rate(std::string_view text);

}  // namespace moestro::config
