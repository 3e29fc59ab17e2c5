#include "services/cli/batch/batch_targets.h"

#include <cerrno>
#include <fstream>

namespace moestro::cli {

namespace fs = std::filesystem;

namespace {

fs::path entry_of(const fs::path& path) {
  std::error_code error;
  const fs::path whole = fs::absolute(path, error);
  const fs::path directory = fs::weakly_canonical(whole.parent_path(), error);
  return (error ? whole.parent_path().lexically_normal() : directory) / whole.filename();
}

Status make_part(const fs::path& target) {
  const std::ofstream part(part_of_target(target), std::ios::binary | std::ios::trunc);
  return part ? Status::ok() : io_error("cannot write " + part_of_target(target).string(), errno);
}

}  // namespace

bool same_target(const fs::path& a, const fs::path& b) { return entry_of(a) == entry_of(b); }

fs::path part_of_target(const fs::path& target) { return target.string() + ".part"; }

Status check_target(const fs::path& target) {
  std::error_code error;
  if (fs::is_directory(target, error)) return invalid_argument("cannot write " + target.string() + ": a directory");
  MOESTRO_RETURN_IF_ERROR(make_part(target));
  fs::remove(part_of_target(target), error);
  return Status::ok();
}

Status write_empty_target(const fs::path& target) {
  MOESTRO_RETURN_IF_ERROR(make_part(target));
  return finish_target(target);
}

Status finish_target(const fs::path& target) {
  std::error_code error, ignored;
  fs::rename(part_of_target(target), target, error);
  if (!error) return Status::ok();
  fs::remove(part_of_target(target), ignored);
  return io_error("renaming " + part_of_target(target).string(), error.value());
}

}  // namespace moestro::cli
