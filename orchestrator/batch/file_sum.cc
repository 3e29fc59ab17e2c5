#include "orchestrator/batch/file_sum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <array>
#include <cinttypes>
#include <cstdio>

namespace moestro::orchestrator {

struct FileSum::State {
  State() { XXH3_128bits_reset(&xxh3); }
  XXH3_state_t xxh3;
};

FileSum::FileSum() : state_(std::make_unique<State>()) {}
FileSum::FileSum(FileSum&&) noexcept = default;
FileSum& FileSum::operator=(FileSum&&) noexcept = default;
FileSum::~FileSum() = default;

void FileSum::add(std::string_view bytes) {
  XXH3_128bits_update(&state_->xxh3, bytes.data(), bytes.size());
  bytes_ += bytes.size();
}

std::string FileSum::text() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(&state_->xxh3);
  std::array<char, 33> digits;
  std::snprintf(digits.data(), digits.size(), "%016" PRIx64 "%016" PRIx64, static_cast<uint64_t>(hash.high64),
                static_cast<uint64_t>(hash.low64));
  return digits.data();
}

}  // namespace moestro::orchestrator
