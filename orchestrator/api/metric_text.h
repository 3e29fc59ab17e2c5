#pragma once
// Figures that somebody else has counted, as Prometheus reads them. Names in full: a counter's ends in _total.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "orchestrator/control/duration_histogram.h"

namespace moestro::orchestrator {

class MetricText {
 public:
  using Labels = std::vector<std::pair<std::string, std::string>>;
  MetricText();
  ~MetricText();

  /// Begins a family; what follows are its samples.
  MetricText& counter(const std::string& name, const std::string& help);
  MetricText& gauge(const std::string& name, const std::string& help);
  MetricText& histogram(const std::string& name, const std::string& help);
  MetricText& sample(double value, const Labels& labels = {});
  MetricText& sample(const DurationHistogram& durations, const Labels& labels);
  /// All families, or none where a family has no sample.
  std::string text() const;

 private:
  struct Families;
  std::unique_ptr<Families> families_;
};

}  // namespace moestro::orchestrator
