#pragma once
// A history that lies in memory of another process of this host, mapped for reading only.

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include "common/activation/eamc_view.h"
#include "common/shm/mapped_file.h"

namespace moestro::activation {

/// What a reader has been told, and knows of its model.
struct HistoryExpected {
  uint64_t segment = 0, pack_identity = 0;
  EamcShape shape;
};

/// The collections in `memory`, which outlives the view and begins at a multiple of 64 bytes. kCorrupt: no history,
/// damaged or shorter than it says; kUnsupported: of another version; kInvalidArgument: not the one expected.
Result<HistoryView> view_history(std::span<const std::byte> memory, const HistoryExpected& expected);

class HistoryMapping {
 public:
  /// Also kInvalidArgument: the memory can be cut short by somebody, and whoever reads it then would die of that.
  static Result<HistoryMapping> of(shm::UniqueFd memory, const HistoryExpected& expected);
  /// From whoever hands it out at `socket`. kUnavailable: nobody does.
  static Result<HistoryMapping> receive(const std::filesystem::path& socket, const HistoryExpected& expected,
                                        std::chrono::milliseconds timeout);

  const HistoryView& view() const { return view_; }
  uint64_t segment() const { return segment_; }

 private:
  HistoryMapping(shm::MappedFile memory, const HistoryView& view, uint64_t segment)
      : memory_(std::move(memory)), view_(view), segment_(segment) {}
  shm::MappedFile memory_;
  HistoryView view_;
  uint64_t segment_;
};

/// Where the orchestrator whose workers connect to `endpoint` hands out its history: a socket beside that one. Nothing:
/// not on this host.
std::optional<std::filesystem::path> history_socket(const std::string& endpoint);

}  // namespace moestro::activation
