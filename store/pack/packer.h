#pragma once
// moestro pack: converts a Hugging Face checkpoint to a pack. Also makes packs of random weights, for benchmarks.

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/dtype.h"
#include "common/status.h"
#include "store/pack/copied_files.h"
#include "store/pack/spread.h"

namespace moestro::store {

struct PackOptions {
  std::vector<DType> experts =
      {};  ///< all of them are packed, and the first is the default; empty: the narrowest that holds the checkpoint's
           ///< weights exactly
  std::optional<DType> dense = std::nullopt;   ///< any; nullopt: the narrowest exact one, for the dense weights
  unsigned jobs = 1;            ///< threads
  std::string model_name = {};       ///< empty: the source directory's name
  std::vector<PackDirectory> spread = {};  ///< further directories, on other drives, for parts of it
  uint32_t own_share = 1;       ///< share of the pack's own directory
  uint64_t file_bytes_max = uint64_t{4} << 30;      ///< expert files are split here
  uint64_t commit_bytes = uint64_t{256} << 20;      ///< an interruption loses at most this much work
  uint64_t scratch_bytes_max = uint64_t{768} << 20; ///< of all threads together
};

/// Called by any of the packing threads, one at a time. Both may be empty.
struct PackObserver {
  std::function<void(uint64_t done_bytes, uint64_t total_bytes)> progress;
  std::function<void(const std::string& line)> note;
};

struct PackSummary {
  uint64_t bytes = 0;          ///< of weights in the pack
  uint64_t resumed_bytes = 0;  ///< of them, written by an earlier, interrupted run
  uint32_t blobs = 0;
};

/// Packs `source` into the directory `pack`, which is created if needed. Refuses a directory that contains anything but
/// an unfinished pack. An interrupted run with the same source and options is resumed. The manifest is written last.
Result<PackSummary> pack_checkpoint(const std::filesystem::path& source, const std::filesystem::path& pack,
                                    const PackOptions& options, const PackObserver& observer);

/// A model with the given config.json and random weights (random_weights.h).
struct RandomModel {
  std::string config_json, generation_config_json;
  std::vector<TextFile> files;  ///< the other files of the pack: these two, and a tokenizer's
  uint64_t seed = 1;
};

/// Packs it as above, with options.model_name. The same model, seed and options give the same bytes with any `jobs`. A
/// lack of room on the disk is found before anything is written.
Result<PackSummary> pack_random(const RandomModel& model, const std::filesystem::path& pack, const PackOptions& options,
                                const PackObserver& observer);

}  // namespace moestro::store
