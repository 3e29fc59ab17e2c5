#pragma once
// Runs the program `moestro` as a user would.

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

namespace moestro::test {

struct Ran {
  int exit_code = -1;
  std::string out, err;
};

/// The built one.
std::filesystem::path moestro_binary();

/// Runs to the end, with `input` on stdin.
Ran run_moestro(const std::vector<std::string>& arguments, const std::string& input = "");

/// A process in the background, its output in files; killed at the end of the test if it still lives.
class Background {
 public:
  Background(const std::filesystem::path& binary, const std::vector<std::string>& arguments,
             const std::filesystem::path& dir);
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  pid_t pid() const { return pid_; }
  std::string out() const;
  std::string err() const;
  /// Looks every 5 ms, for 30 s at most, until `text` stands in stdout or stderr; false if it ended or never
  /// did.
  bool wait_for(const std::string& text);
  int wait_exit();
  void signal(int number);

 private:
  std::filesystem::path dir_;
  pid_t pid_ = -1;
};

}  // namespace moestro::test
