#include "store/server/change_key.h"

#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <optional>

#include "common/shm/whole_file.h"
#include "store/arena/text_file.h"

namespace moestro::store {
namespace {

constexpr size_t kKeyBytes = 32;

/// A key of ours that nobody else can have read; else none.
std::optional<std::string> key_in(const std::filesystem::path& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_uid != ::geteuid() ||
      (info.st_mode & 077) != 0)
    return std::nullopt;
  auto text = read_lines_file(path, kKeyBytes + 1);
  if (!text || text->size() != kKeyBytes + 1 || text->find_first_not_of("0123456789abcdef") != kKeyBytes ||
      text->back() != '\n')
    return std::nullopt;
  text->pop_back();
  return std::move(*text);
}

}  // namespace

Result<std::string> change_key_in(const std::filesystem::path& run_dir) {
  if (auto key = key_in(run_dir / "store.key")) return std::move(*key);
  std::array<uint64_t, 2> random{};
  if (::getrandom(random.data(), sizeof random, 0) != static_cast<ssize_t>(sizeof random))
    return io_error("no random bytes for a key", errno);
  const std::string key = hex(random[0]) + hex(random[1]);
  MOESTRO_RETURN_IF_ERROR(shm::write_whole_file(run_dir / "store.key", key + "\n"));
  return key;
}

bool is_key(std::string_view given, std::string_view key) {
  if (given.size() != key.size() || key.empty()) return false;
  unsigned differs = 0;
  for (size_t i = 0; i < key.size(); ++i) differs |= static_cast<unsigned char>(given[i] ^ key[i]);
  return differs == 0;
}

}  // namespace moestro::store
