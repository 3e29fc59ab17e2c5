// The manifest as bytes: header (manifest_layout.h) and FlatBuffers payload.

#include <xxhash.h>

#include <bit>
#include <cstring>
#include <type_traits>

#include "common/wire/pack_manifest_generated.h"
#include "store/pack/manifest.h"
#include "store/pack/manifest_check.h"
#include "store/pack/manifest_layout.h"

namespace moestro::store {
namespace {

flatbuffers::Offset<wire::PackBlob> write_blob(flatbuffers::FlatBufferBuilder& builder, const Blob& b) {
  std::vector<wire::PackSlice> slices;
  slices.reserve(b.slices.size());
  for (const Slice& s : b.slices) slices.emplace_back(s.offset, s.xxh3_64, s.length, s.file, s.directory);
  return wire::CreatePackBlobDirect(builder, static_cast<uint8_t>(b.kind), static_cast<uint8_t>(b.precision),
                                    b.moe_layer.value, b.expert.value, b.length, &slices);
}

flatbuffers::Offset<wire::PackManifest> write_payload(flatbuffers::FlatBufferBuilder& builder, const Manifest& m) {
  std::vector<flatbuffers::Offset<wire::PackBlob>> blobs;
  for (const Blob& b : m.blobs) blobs.push_back(write_blob(builder, b));
  std::vector<flatbuffers::Offset<wire::PackTensor>> tensors;
  for (const PackedTensor& t : m.tensors) {
    const auto name = builder.CreateString(t.name);
    tensors.push_back(wire::CreatePackTensor(builder, name, static_cast<uint8_t>(t.dtype),
                                             builder.CreateVector(t.shape), t.blob, t.offset));
  }
  std::vector<flatbuffers::Offset<wire::PackCopiedFile>> copied;
  for (const CopiedFile& c : m.copied)
    copied.push_back(wire::CreatePackCopiedFile(builder, builder.CreateString(c.name), c.bytes, c.xxh3_64));
  std::vector<uint8_t> precisions;
  for (const DType d : m.expert_precisions) precisions.push_back(static_cast<uint8_t>(d));
  std::vector<uint8_t> formats;
  for (const ExpertFormats& f : m.expert_formats)
    for (const DType d : {f.gate, f.up, f.down}) formats.push_back(static_cast<uint8_t>(d));
  const auto expert_formats = formats.empty() ? 0 : builder.CreateVector(formats);
  const auto name = builder.CreateString(m.model_name);
  const auto config = builder.CreateString(m.config_json);
  const auto generation = builder.CreateString(m.generation_config_json);
  const auto files = builder.CreateVectorOfStrings(m.files);
  return wire::CreatePackManifest(builder, m.layout_id, name, config, generation, files,
                                  builder.CreateVector(precisions), builder.CreateVector(blobs),
                                  builder.CreateVector(tensors), builder.CreateVector(copied), expert_formats);
}

std::string text(const flatbuffers::String* s) { return s == nullptr ? std::string() : s->str(); }

// The verifier of FlatBuffers checks that a vector lies in the buffer, not that its 8-byte elements are aligned: so
// they are copied out, never read where they lie.
template <typename T, typename V>
std::vector<T> copy_elements(const flatbuffers::Vector<V>* in) {
  static_assert(std::endian::native == std::endian::little && std::is_trivially_copyable_v<T>);
  std::vector<T> out(in == nullptr ? 0 : in->size());
  if (!out.empty()) std::memcpy(static_cast<void*>(out.data()), in->Data(), out.size() * sizeof(T));
  return out;
}

Blob read_blob(const wire::PackBlob& in) {
  Blob b;
  b.kind = static_cast<BlobKind>(in.kind());
  b.moe_layer = MoeLayerId(in.moe_layer());
  b.expert = ExpertId(in.expert());
  b.precision = static_cast<DType>(in.precision());
  b.length = in.length();
  for (const wire::PackSlice& s : copy_elements<wire::PackSlice>(in.slices()))
    b.slices.push_back({s.directory(), s.file(), s.offset(), s.length(), s.xxh3_64()});
  return b;
}

PackedTensor read_tensor(const wire::PackTensor& in) {
  PackedTensor t;
  t.name = text(in.name());
  t.dtype = static_cast<DType>(in.dtype());
  t.shape = copy_elements<int64_t>(in.shape());
  t.blob = in.blob();
  t.offset = in.offset();
  return t;
}

Manifest read_payload(const wire::PackManifest& in) {
  Manifest m;
  m.layout_id = in.layout_id();
  m.model_name = text(in.model_name());
  m.config_json = text(in.config_json());
  m.generation_config_json = text(in.generation_config_json());
  if (in.files() != nullptr)
    for (const auto* file : *in.files()) m.files.push_back(file->str());
  if (in.expert_precisions() != nullptr)
    for (const uint8_t d : *in.expert_precisions()) m.expert_precisions.push_back(static_cast<DType>(d));
  if (in.blobs() != nullptr)
    for (const auto* b : *in.blobs()) m.blobs.push_back(read_blob(*b));
  if (in.tensors() != nullptr)
    for (const auto* t : *in.tensors()) m.tensors.push_back(read_tensor(*t));
  if (in.copied() != nullptr)
    for (const auto* c : *in.copied()) m.copied.push_back({text(c->name()), c->bytes(), c->xxh3_64()});
  if (in.expert_formats() != nullptr)  // check_manifest compares their number with that of the layers
    for (uint32_t i = 0; i + 2 < in.expert_formats()->size(); i += 3) {
      const auto format = [&](uint32_t at) { return static_cast<DType>(in.expert_formats()->Get(i + at)); };
      m.expert_formats.emplace_back(format(0), format(1), format(2));
    }
  return m;
}

Status check_header(const ManifestHeader& header, size_t size) {
  if (std::memcmp(header.magic, kManifestMagic, sizeof kManifestMagic) != 0)
    return corrupt("manifest: not the manifest of a pack");
  if (header.version > kPackVersion)
    return unsupported("manifest: pack version " + std::to_string(header.version) + "; this build reads up to " +
                       std::to_string(kPackVersion) + "; use a newer Moestro or pack the model again");
  if (header.version == 0 || header.zero != 0) return corrupt("manifest: header is damaged");
  if (header.payload_bytes != size - sizeof header)
    return corrupt("manifest: is " + std::to_string(size) + " bytes long, its header says " +
                   std::to_string(header.payload_bytes) + " and 32; it is truncated or damaged");
  return Status::ok();
}

}  // namespace

std::vector<std::byte> serialise_manifest(const Manifest& manifest) {
  flatbuffers::FlatBufferBuilder builder(1 << 16);
  wire::FinishPackManifestBuffer(builder, write_payload(builder, manifest));
  ManifestHeader header{};
  std::memcpy(header.magic, kManifestMagic, sizeof header.magic);
  header.version = kPackVersion;
  header.payload_bytes = builder.GetSize();
  header.payload_xxh3_64 = XXH3_64bits(builder.GetBufferPointer(), builder.GetSize());
  std::vector<std::byte> out(sizeof header + builder.GetSize());
  std::memcpy(out.data(), &header, sizeof header);
  std::memcpy(out.data() + sizeof header, builder.GetBufferPointer(), builder.GetSize());
  return out;
}

Result<Manifest> parse_manifest(const std::byte* data, size_t size) {
  ManifestHeader header;
  if (size < sizeof header) return corrupt("manifest: too short");
  if (size > kManifestBytesMax) return corrupt("manifest: above 1 GiB");
  std::memcpy(&header, data, sizeof header);
  MOESTRO_RETURN_IF_ERROR(check_header(header, size));
  // FlatBuffers reads in place and wants alignment; vectors are aligned, `data` need not be.
  const std::vector<std::byte> payload(data + sizeof header, data + size);
  if (XXH3_64bits(payload.data(), payload.size()) != header.payload_xxh3_64)
    return corrupt("manifest: checksum differs; the file is damaged");
  const auto* bytes = reinterpret_cast<const uint8_t*>(payload.data());
  flatbuffers::Verifier verifier(bytes, payload.size(), 16, 1u << 22);
  if (!wire::VerifyPackManifestBuffer(verifier)) return corrupt("manifest: not a valid PackManifest");
  Manifest manifest = read_payload(*wire::GetPackManifest(bytes));
  manifest.version = header.version;
  manifest.identity = header.payload_xxh3_64;
  MOESTRO_RETURN_IF_ERROR(check_manifest(manifest));
  return manifest;
}

}  // namespace moestro::store
