#pragma once
// moestro pack: a Hugging Face checkpoint to a pack; and packs of random weights, for benchmarks.

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
      {};  ///< side by side, the first is the default; empty: the narrowest that holds the checkpoint's own exactly
  std::optional<DType> dense = std::nullopt;   ///< any; absent: the same, for the dense weights
  unsigned jobs = 1;            ///< threads
  std::string model_name = {};       ///< empty: the source directory's name
  std::vector<PackDirectory> spread = {};  ///< further directories, on other drives, that hold parts of it
  uint32_t own_share = 1;       ///< of the pack's own directory, beside theirs
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

/// Packs `source` into the directory `pack` (made if need be). Refuses a directory that holds anything but an
/// unfinished pack. An interrupted pack of the same source and options goes on where it stopped. The manifest is
/// written last.
Result<PackSummary> pack_checkpoint(const std::filesystem::path& source, const std::filesystem::path& pack,
                                    const PackOptions& options, const PackObserver& observer);

/// A model that config.json describes; its weights are random_weights.h's.
struct RandomModel {
  std::string config_json, generation_config_json;
  std::vector<TextFile> files;  ///< what the pack holds beside its weights: these two, and a tokenizer's
  uint64_t seed = 1;
};

/// Packs it as above, options.model_name given; the same model, seed and options give the same bytes whatever `jobs`.
/// No room on the disk is found before anything is written.
Result<PackSummary> pack_random(const RandomModel& model, const std::filesystem::path& pack, const PackOptions& options,
                                const PackObserver& observer);

}  // namespace moestro::store
