#pragma once
// The contents of a pack, in memory. On disk this is the FlatBuffers file `manifest` (common/wire/pack_manifest.fbs),
// which is written last.
//
//   PACK/ manifest  config.json  generation_config.json  tokenizer.json  tokenizer_config.json
//         dense.bin  experts-PRECISION-NNN.bin

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/dtype.h"
#include "common/expert_layout.h"
#include "common/ids.h"
#include "common/model/model_spec.h"
#include "common/status.h"

namespace moestro::store {

inline constexpr uint32_t kPackVersion = 1;

/// A piece of a blob that is read at once: at most kSliceBytesMax, kDiskAlign-aligned in the file and in the arena.
struct Slice {
  uint32_t directory = 0;  ///< 0: the pack's own; others: drives that hold shards of it
  uint32_t file = 0;       ///< index in Manifest::files
  uint64_t offset = 0;     ///< in the file
  uint32_t length = 0;
  uint64_t xxh3_64 = 0;
};

enum class BlobKind : uint8_t { kDense = 0, kExpert = 1 };

/// One contiguous range of the arena: an expert at one precision, or the dense tensors of one layer (or of the model's
/// ends).
struct Blob {
  BlobKind kind = BlobKind::kDense;
  MoeLayerId moe_layer;  ///< experts only
  ExpertId expert;       ///< experts only
  DType precision = DType::kF32;
  uint64_t length = 0;   ///< sum of the slices
  std::vector<Slice> slices;
};

/// A dense tensor: row-major, at `offset` (64-byte aligned) in blob `blob`.
struct PackedTensor {
  std::string name;  ///< canonical, model_spec.h
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  uint32_t blob = 0;
  uint64_t offset = 0;
};

/// A file copied unchanged from the checkpoint (copied_files.h), or made from the metadata of a GGUF file.
struct CopiedFile {
  std::string name;
  uint64_t bytes = 0;
  uint64_t xxh3_64 = 0;
};
inline constexpr uint64_t kCopiedBytesMax = 256 << 20;

struct Manifest {
  uint32_t version = kPackVersion;
  uint32_t layout_id = 0;
  std::string model_name;
  uint64_t identity = 0;  ///< XXH3-64 over the manifest's content: names this version of this pack
  std::string config_json, generation_config_json;
  std::vector<std::string> files;  ///< plain names, no separators
  std::vector<DType> expert_precisions;  ///< the first is served by default
  std::vector<Blob> blobs;
  std::vector<PackedTensor> tensors;
  std::vector<CopiedFile> copied;  ///< empty in packs from before this list existed
  std::vector<ExpertFormats> expert_formats;  ///< of kMixed, by MoE layer; empty if that is not among the precisions

  /// The layout of the experts of each MoE layer at a precision of the list; one alone in a manifest without blobs,
  /// which only describes a shape. kCorrupt if their rows are not whole blocks.
  Result<std::vector<ExpertLayout>> expert_layouts(const model::ExpertSpec& expert, DType precision) const;
  /// Index in `blobs` of an expert, or an error that names it.
  Result<uint32_t> expert_blob(MoeLayerId layer, ExpertId expert, DType precision) const;
};

/// The checksum of tokenizer.json; nullopt: the manifest does not have it.
std::optional<uint64_t> tokenizer_of(const Manifest& manifest);

/// The dense blobs whose tensors are all of layers, in the order of a step.
std::vector<uint32_t> dense_layers(const Manifest& manifest);

/// Converts to the bytes of the manifest file and back. Parsing verifies everything: format, version (a newer one is
/// refused by number), sizes, alignment, overlaps, slices inside `files`, tensors inside their blobs. Accepts any
/// bytes; never throws.
std::vector<std::byte> serialise_manifest(const Manifest& manifest);
Result<Manifest> parse_manifest(const std::byte* data, size_t size);

/// Reads and parses DIR/manifest and checks that the files it names exist with the sizes it implies.
Result<Manifest> open_pack(const std::filesystem::path& dir);

}  // namespace moestro::store
