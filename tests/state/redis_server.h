#pragma once
// A redis-server of a test's own. Tests that need one skip where the program is not installed.

#include <sys/types.h>

#include <string>
#include <vector>

#include "tests/cli/temp_dir.h"

namespace moestro::test {

class RedisServer {
 public:
  /// Whether redis-server is installed.
  static bool is_installed();

  /// `settings` come after those that make it safe, as "--appendfsync everysec".
  explicit RedisServer(std::vector<std::string> settings = {});
  ~RedisServer();
  RedisServer(const RedisServer&) = delete;
  RedisServer& operator=(const RedisServer&) = delete;

  /// SIGKILL, and until it is gone.
  void kill();
  /// On the same port and with the same files. Returns when it answers.
  void start();
  int port() const { return port_; }
  std::string url() const { return "redis://127.0.0.1:" + std::to_string(port_) + "/3"; }

 private:
  bool answers() const;
  TempDir dir_;
  std::vector<std::string> settings_;
  int port_ = 0;
  pid_t pid_ = -1;
};

}  // namespace moestro::test
