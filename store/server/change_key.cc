#include "store/server/change_key.h"

#include <sys/random.h>

#include <array>
#include <cerrno>

#include "store/arena/text_file.h"

namespace moestro::store {

Result<std::string> write_change_key(const std::filesystem::path& run_dir) {
  std::array<uint64_t, 2> random{};
  if (::getrandom(random.data(), sizeof random, 0) != static_cast<ssize_t>(sizeof random)) return io_error("no random bytes for a key", errno);
  const std::string key = hex(random[0]) + hex(random[1]);
  MOESTRO_RETURN_IF_ERROR(write_lines_file(run_dir / "store.key", key + "\n"));
  return key;
}

bool is_key(std::string_view given, std::string_view key) {
  if (given.size() != key.size() || key.empty()) return false;
  unsigned differs = 0;
  for (size_t i = 0; i < key.size(); ++i) differs |= static_cast<unsigned char>(given[i] ^ key[i]);
  return differs == 0;
}

}  // namespace moestro::store
