#pragma once
// A history in memory of another process of this host, mapped read-only.

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include "common/activation/eamc_view.h"
#include "common/shm/mapped_file.h"

namespace moestro::activation {

/// What a reader expects: the segment that it was told, and its own model.
struct HistoryExpected {
  uint64_t segment = 0, pack_identity = 0;
  EamcShape shape;
};

/// The collections in `memory`, which outlives the view and begins at a multiple of 64 bytes. kCorrupt: no history,
/// damaged or shorter than it says; kUnsupported: of another version; kInvalidArgument: not the one expected.
Result<HistoryView> view_history(std::span<const std::byte> memory, const HistoryExpected& expected);

class HistoryMapping {
 public:
  /// Also kInvalidArgument if a process could shorten the memory, because its readers would then be killed by SIGBUS.
  static Result<HistoryMapping> of(shm::UniqueFd memory, const HistoryExpected& expected);
  /// Asks for the memory at `socket`. kUnavailable: no process answers there.
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

/// The socket at which an orchestrator gives out its history. It is next to `endpoint`, to which workers connect.
/// nullopt: not on this host.
std::optional<std::filesystem::path> history_socket(const std::string& endpoint);

}  // namespace moestro::activation
