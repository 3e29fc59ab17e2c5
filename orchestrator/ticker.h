#pragma once
// Work that is done again and again, at even intervals.

#include <chrono>
#include <functional>
#include <stop_token>
#include <thread>

namespace moestro::orchestrator {

/// Calls `act` on a thread of its own, first after one interval; its destructor waits for a call under way.
class Ticker {
 public:
  Ticker(std::chrono::milliseconds every, std::function<void()> act);
  Ticker(const Ticker&) = delete;
  Ticker& operator=(const Ticker&) = delete;

 private:
  std::jthread thread_;
};

}  // namespace moestro::orchestrator
