#pragma once
// The certificate that the server shows, and its key. Server's thread only.

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

#include "common/status.h"
#include "common/tls/either_stream.h"
#include "orchestrator/http/server.h"

namespace moestro::orchestrator {

class TlsIdentity {
 public:
  /// Errors name the file and say what to do. A certificate that is over, or soon will be, is a warning in the log.
  static Result<std::unique_ptr<TlsIdentity>> load(TlsFiles files);

  /// For a new connection. Files that have been replaced are read again, at most every `kLookEvery`; while they cannot
  /// be used the former identity stays, and the log says why.
  std::shared_ptr<tls::Context> current(std::chrono::steady_clock::time_point now = std::chrono::steady_clock::now());

  static constexpr std::chrono::seconds kLookEvery{10};

 private:
  using Stamp = std::pair<std::filesystem::file_time_type, std::filesystem::file_time_type>;
  explicit TlsIdentity(TlsFiles files) : files_(std::move(files)) {}
  Stamp stamp() const;

  const TlsFiles files_;
  Stamp stamp_;  ///< of what was read last, be it good or not
  std::shared_ptr<tls::Context> context_;
  std::chrono::steady_clock::time_point looked_;
};

}  // namespace moestro::orchestrator
