#include "orchestrator/scheduler/prefix_key.h"

#include <xxhash.h>

#include <cstring>
#include <random>

namespace moestro::orchestrator {
namespace {

PrefixKey key_of(const XXH128_hash_t& h) { return {h.low64, h.high64}; }

}  // namespace

PrefixSecret random_prefix_secret() {
  PrefixSecret secret;
  std::random_device device;
  for (std::byte& b : secret) b = static_cast<std::byte>(device());
  return secret;
}

PrefixKey PrefixHasher::root(std::string_view domain) const {
  return key_of(XXH3_128bits_withSecret(domain.data(), domain.size(), secret_.data(), secret_.size()));
}

PrefixKey PrefixHasher::next(const PrefixKey& parent, std::span<const TokenId> block) {
  // Of one length for one block size, so no two inputs run into each other.
  input_.resize(sizeof parent + block.size_bytes());
  std::memcpy(input_.data(), &parent, sizeof parent);
  std::memcpy(input_.data() + sizeof parent, block.data(), block.size_bytes());
  return key_of(XXH3_128bits_withSecret(input_.data(), input_.size(), secret_.data(), secret_.size()));
}

}  // namespace moestro::orchestrator
