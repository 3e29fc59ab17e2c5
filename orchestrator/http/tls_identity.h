#pragma once
// The server's certificate and its key. Server's thread only.

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
  /// Errors name the file and say what to do. A certificate that has expired, or soon will, is a warning in the log.
  static Result<std::unique_ptr<TlsIdentity>> load(TlsFiles files);

  /// The context for a new connection. Replaced files are read again, at most every `kLookEvery`. While they cannot be
  /// used, the previous identity stays, and the log says why.
  std::shared_ptr<tls::Context> current(std::chrono::steady_clock::time_point now = std::chrono::steady_clock::now());

  static constexpr std::chrono::seconds kLookEvery{10};

 private:
  using Stamp = std::pair<std::filesystem::file_time_type, std::filesystem::file_time_type>;
  explicit TlsIdentity(TlsFiles files) : files_(std::move(files)) {}
  Stamp stamp() const;

  const TlsFiles files_;
  Stamp stamp_;  ///< of the files that were read last, valid or not
  std::shared_ptr<tls::Context> context_;
  std::chrono::steady_clock::time_point looked_;
};

}  // namespace moestro::orchestrator
