// fuzz-deps: moestro_pack PkgConfig::xxhash
// A pack's manifest. The input is the payload; half of the time the header is made to fit it, so that the fuzzer gets
// past the checksum.

#include <xxhash.h>

#include <cstring>
#include <vector>

#include "common/check.h"
#include "store/pack/manifest.h"
#include "store/pack/manifest_layout.h"

namespace store = moestro::store;

namespace {

void check_use(const store::Manifest& m) {
  for (const auto& b : m.blobs) {
    if (b.kind != store::BlobKind::kExpert) continue;
    const auto found = m.expert_blob(b.moe_layer, b.expert, b.precision);
    MOESTRO_CHECK(found.is_ok() && &m.blobs[*found] == &b, "every expert is found under its own name");
  }
  const auto bytes = store::serialise_manifest(m);
  MOESTRO_CHECK(store::parse_manifest(bytes.data(), bytes.size()).is_ok(),
                "what was let in can be written and read again");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  if (size == 0) return 0;
  std::vector<std::byte> file(bytes + 1, bytes + size);
  if ((data[0] & 1) != 0) {
    store::ManifestHeader header{};
    std::memcpy(header.magic, store::kManifestMagic, sizeof header.magic);
    header.version = store::kPackVersion;
    header.payload_bytes = file.size();
    header.payload_xxh3_64 = XXH3_64bits(file.data(), file.size());
    const auto* first = reinterpret_cast<const std::byte*>(&header);
    file.insert(file.begin(), first, first + sizeof header);
  }
  if (const auto m = store::parse_manifest(file.data(), file.size())) check_use(*m);
  return 0;
}
