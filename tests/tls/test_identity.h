#pragma once
// Certificates for tests: made when they are wanted, signed by themselves.

#include <filesystem>
#include <string>

namespace moestro::test {

struct TestIdentity {
  std::string name = "localhost";
  bool loopback = true;  ///< it is for 127.0.0.1 too
  int days = 30;         ///< from yesterday; negative: it is over since so many
  std::string passphrase = {};
};

/// Writes STEM.crt and STEM.key into `dir`.
void make_identity(const std::filesystem::path& dir, const std::string& stem, const TestIdentity& wanted = {});

}  // namespace moestro::test
