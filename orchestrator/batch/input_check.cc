#include "orchestrator/batch/input_check.h"

namespace moestro::orchestrator {

namespace {
constexpr size_t kPiece = 1 << 20;
constexpr int kPiecesOfAStep = 4;
}  // namespace

std::optional<std::string> difference(const FileRecord& file, const FileSum& seen) {
  if (seen.bytes() != file.bytes)
    return "file " + file.id + " has " + std::to_string(seen.bytes()) + " bytes, and " + std::to_string(file.bytes) +
           " were uploaded";
  if (!file.checksum.empty() && seen.text() != file.checksum)
    return "the bytes of file " + file.id + " are not those that were uploaded";
  return std::nullopt;
}

Result<bool> InputCheck::step() {
  for (int i = 0; i < kPiecesOfAStep; ++i) {
    MOESTRO_ASSIGN_OR_RETURN(const std::string piece, bytes_->read(sum_.bytes(), kPiece));
    sum_.add(piece);
    if (!piece.empty()) continue;
    if (auto why = difference(file_, sum_)) return corrupt(std::move(*why));
    return false;
  }
  return true;
}

}  // namespace moestro::orchestrator
