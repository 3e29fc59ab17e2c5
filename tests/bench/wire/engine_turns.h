#pragma once
// `moestro bench engine --turns` as a child: runs one measurement when it is told to.

#include <sys/socket.h>
#include <sys/types.h>

#include <string>
#include <vector>

namespace moestro::bench {

class EngineTurns {
 public:
  /// `words`: the program and its arguments. Returns once it is ready; the reason why not is on its standard error.
  explicit EngineTurns(std::vector<std::string> words);
  ~EngineTurns();
  EngineTurns(const EngineTurns&) = delete;
  EngineTurns& operator=(const EngineTurns&) = delete;

  bool ready() const { return ready_; }
  /// Tokens per second of its first measurement; 0 if it has ended.
  double run();

 private:
  std::string line();
  int fd_ = -1;
  pid_t pid_ = -1;
  bool ready_ = false;
  std::string buffer_;
};

}  // namespace moestro::bench
