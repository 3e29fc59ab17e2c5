// The format: https://www.sqlite.org/fileformat2.html#the_write_ahead_log

#include "orchestrator/state/wal_check.h"

#include <array>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <span>
#include <vector>

namespace moestro::orchestrator {
namespace {

constexpr size_t kHeader = 32, kFrameHeader = 24;
constexpr uint32_t kMagic = 0x377f0682;  // the lowest bit: checksums are of big-endian words
constexpr uint32_t kPageMin = 512, kPageMax = 65536;

uint32_t big(const uint8_t* at) {
  return uint32_t{at[0]} << 24 | uint32_t{at[1]} << 16 | uint32_t{at[2]} << 8 | at[3];
}

uint32_t little(const uint8_t* at) {
  return uint32_t{at[3]} << 24 | uint32_t{at[2]} << 16 | uint32_t{at[1]} << 8 | at[0];
}

/// Each frame's goes on from the one before it.
class Checksum {
 public:
  explicit Checksum(bool big_endian) : big_endian_(big_endian) {}
  void add(std::span<const uint8_t> bytes) {
    for (size_t i = 0; i + 8 <= bytes.size(); i += 8) {
      a_ += word(&bytes[i]) + b_;
      b_ += word(&bytes[i + 4]) + a_;
    }
  }
  bool stands_at(const uint8_t* at) const { return big(at) == a_ && big(at + 4) == b_; }

 private:
  uint32_t word(const uint8_t* at) const { return big_endian_ ? big(at) : little(at); }
  const bool big_endian_;
  uint32_t a_ = 0, b_ = 0;
};

Status damaged(const std::filesystem::path& database) {
  return corrupt("the state " + database.string() + ": its journal " + database.string() +
                 "-wal is damaged, and what was kept last is lost with it; put back a copy of both, or move the "
                 "journal away to go on with what was kept before");
}

}  // namespace

Status check_wal(const std::filesystem::path& database) {
  const std::filesystem::path path = database.string() + "-wal";
  std::ifstream in(path, std::ios::binary);
  std::array<uint8_t, kHeader> header{};
  const auto read = [&in](std::span<uint8_t> into) {
    return static_cast<bool>(in.read(reinterpret_cast<char*>(into.data()), static_cast<std::streamsize>(into.size())));
  };
  if (!in || !read(header)) return Status::ok();  // none, or nothing was ever in it
  const uint32_t magic = big(header.data()), page = big(&header[8]);
  const bool plausible = (magic & ~1u) == kMagic && std::has_single_bit(page) && page >= kPageMin && page <= kPageMax;
  Checksum checksum((magic & 1) != 0);
  checksum.add(std::span(header).first(24));
  // The header is synced before the first frame is written: so it is whole wherever frames are.
  std::vector<uint8_t> frame(kFrameHeader + (plausible ? page : 4096));
  if (!plausible || !checksum.stands_at(&header[24])) return read(frame) ? damaged(database) : Status::ok();
  bool whole = true, committed_behind = false;
  while (read(frame)) {
    if (std::memcmp(&frame[8], &header[16], 8) != 0) {  // of an earlier round of the journal, or not what was written
      whole = false;
      continue;
    }
    if (committed_behind) return damaged(database);  // a later transaction: the one before it was synced
    if (whole) {
      checksum.add(std::span(frame).first(8));
      checksum.add(std::span(frame).subspan(kFrameHeader));
      whole = checksum.stands_at(&frame[16]);
    }
    const bool commit = big(&frame[4]) != 0;
    committed_behind = !whole && commit;
  }
  return Status::ok();
}

}  // namespace moestro::orchestrator
