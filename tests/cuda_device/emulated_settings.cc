#include "tests/cuda_device/emulated_settings.h"

#include <cstdio>
#include <cstdlib>
#include <sstream>

namespace moestro::test {
namespace {

[[noreturn]] void wrong(const char* what, const std::string& text) {
  std::fprintf(stderr, "the emulated CUDA plugin: '%s' is no %s\n", text.c_str(), what);
  std::abort();
}

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, at);) parts.push_back(part);
  return parts;
}

/// Whole numbers with M or G behind them, or none.
uint64_t size_of(const std::string& text) {
  char* end = nullptr;
  const uint64_t number = std::strtoull(text.c_str(), &end, 10);
  const std::string unit = end;
  if (end == text.c_str() || !(unit.empty() || unit == "M" || unit == "G")) wrong("size", text);
  return unit == "G" ? number << 30 : unit == "M" ? number << 20 : number;
}

EmulatedCard card_of(const std::string& text) {
  const std::vector<std::string> parts = split(text, ',');
  EmulatedCard card;
  if (parts.size() < 3 || std::sscanf(parts[1].c_str(), "%d.%d", &card.major, &card.minor) != 2) wrong("card", text);
  card.name = parts[0];
  card.total_bytes = size_of(parts[2]);
  if (parts.size() > 3) card.taken_bytes = size_of(parts[3]);
  if (parts.size() > 4) card.pci = parts[4];
  return card;
}

void take_fault(const std::string& text, EmulatedCuda& cuda) {
  const std::string fall = "fall-off=", faulty = "faulty-card=", slow = "slow-copies=";
  if (text == "no-driver") cuda.no_driver = true;
  else if (text == "refuse-register") cuda.refuse_register = true;
  else if (text.starts_with(faulty)) cuda.faulty.push_back(size_of(text.substr(faulty.size())));
  else if (text.starts_with(slow)) cuda.slow_copies_ms = size_of(text.substr(slow.size()));
  else if (const size_t colon = text.find(':'); text.starts_with(fall) && colon != std::string::npos) {
    cuda.falls_after = text.substr(fall.size(), colon - fall.size());
    cuda.falls_at = size_of(text.substr(colon + 1));
  } else wrong("fault", text);
}

EmulatedCuda from_environment() {
  EmulatedCuda cuda;
  const char* devices = std::getenv("MOESTRO_EMULATED_CUDA_DEVICES");
  for (const std::string& card : split(devices == nullptr ? "Emulated,9.0,8G,0,0000:01:00.0" : devices, ';'))
    cuda.cards.push_back(card_of(card));
  if (const char* faults = std::getenv("MOESTRO_EMULATED_CUDA_FAULTS"))
    for (const std::string& fault : split(faults, ',')) take_fault(fault, cuda);
  if (const char* file = std::getenv("MOESTRO_EMULATED_CUDA_FALLEN")) cuda.fallen_file = file;
  return cuda;
}

}  // namespace

const EmulatedCuda& emulated_cuda() {
  static const EmulatedCuda cuda = from_environment();
  return cuda;
}

}  // namespace moestro::test
