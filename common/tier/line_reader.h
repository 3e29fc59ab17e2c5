#pragma once
// The lines of a text file, one at a time, plain or compressed with zstd (a name that ends in .zst). The only place
// that includes zstd.

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "common/status.h"

namespace moestro::tier {

class LineReader {
 public:
  static Result<LineReader> open(const std::filesystem::path& path);
  ~LineReader();
  LineReader(LineReader&&) noexcept;
  LineReader& operator=(LineReader&&) noexcept;

  /// The next line without its line break; nullopt at the end of the file. kCorrupt: not zstd, truncated, or a line of
  /// more than 16 MiB.
  Result<std::optional<std::string>> next();

 private:
  struct Impl;
  explicit LineReader(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace moestro::tier
