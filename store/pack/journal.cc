#include "store/pack/journal.h"

#include <xxhash.h>

#include <cstring>

namespace moestro::store {
namespace {

constexpr char kMagic[8] = {'M', 'O', 'E', 'J', 'R', 'N', 'L', '1'};
constexpr uint64_t kJournalBytesMax = uint64_t{1} << 30;

struct Header {
  char magic[8];
  uint64_t key;
  uint64_t check;
};
static_assert(sizeof(Header) == 24);

struct RecordHead {
  uint32_t blob;
  uint32_t slices;
};
static_assert(sizeof(RecordHead) == 8);

Header make_header(uint64_t key) {
  Header header{{}, key, 0};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.check = XXH3_64bits(&header, offsetof(Header, check));
  return header;
}

}  // namespace

Result<File> Journal::lock(const std::filesystem::path& dir) {
  MOESTRO_ASSIGN_OR_RETURN(File file, File::open_for_writing(dir / kJournalName));
  MOESTRO_ASSIGN_OR_RETURN(const bool locked, file.try_lock());
  // One that is no longer there was removed by a packer that has just finished.
  if (!locked || !file.has_a_name()) return unavailable(dir.string() + ": another process is packing into it");
  return file;
}

Result<Journal> Journal::open(File locked, uint64_t key, const Manifest& plan) {
  Journal journal(std::move(locked), key);
  MOESTRO_RETURN_IF_ERROR(journal.load(plan));
  return journal;
}

Status Journal::load(const Manifest& plan) {
  MOESTRO_ASSIGN_OR_RETURN(const uint64_t size, file_.size());
  if (size == 0) return clear();
  const Header expected = make_header(key_);
  std::vector<std::byte> bytes(size <= kJournalBytesMax ? size : 0);
  MOESTRO_RETURN_IF_ERROR(file_.read_at(0, bytes));
  if (bytes.size() < sizeof expected || std::memcmp(bytes.data(), &expected, sizeof expected) != 0) {
    restarted_ = true;
    return Status::ok();
  }
  end_ = sizeof expected;
  while (bytes.size() - end_ >= sizeof(RecordHead)) {
    RecordHead head;
    std::memcpy(&head, bytes.data() + end_, sizeof head);
    if (head.blob >= plan.blobs.size() || head.slices != plan.blobs[head.blob].slices.size()) break;
    const size_t body = sizeof head + head.slices * sizeof(uint64_t);
    if (bytes.size() - end_ < body + sizeof(uint64_t)) break;
    uint64_t check = 0;
    std::memcpy(&check, bytes.data() + end_ + body, sizeof check);
    if (check != XXH3_64bits(bytes.data() + end_, body)) break;
    Hashes hashes(head.slices);
    std::memcpy(hashes.data(), bytes.data() + end_ + sizeof head, head.slices * sizeof(uint64_t));
    finished_[head.blob] = std::move(hashes);
    end_ += body + sizeof check;
  }
  return file_.truncate(end_);
}

Status Journal::clear() {
  finished_.clear();
  const Header header = make_header(key_);
  MOESTRO_RETURN_IF_ERROR(file_.truncate(0));
  MOESTRO_RETURN_IF_ERROR(file_.write_at(0, std::as_bytes(std::span(&header, 1))));
  end_ = sizeof header;
  return file_.sync();
}

Status Journal::append(const std::map<uint32_t, Hashes>& blobs) {
  std::vector<std::byte> bytes;
  const auto put = [&bytes](const void* data, size_t size) {
    const auto* first = static_cast<const std::byte*>(data);
    bytes.insert(bytes.end(), first, first + size);
  };
  for (const auto& [blob, hashes] : blobs) {
    const size_t begin = bytes.size();
    const RecordHead head{blob, static_cast<uint32_t>(hashes.size())};
    put(&head, sizeof head);
    put(hashes.data(), hashes.size() * sizeof(uint64_t));
    const uint64_t check = XXH3_64bits(bytes.data() + begin, bytes.size() - begin);
    put(&check, sizeof check);
  }
  MOESTRO_RETURN_IF_ERROR(file_.write_at(end_, bytes));
  end_ += bytes.size();
  return file_.sync();
}

}  // namespace moestro::store
