#include "orchestrator/api/metric_text.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <limits>

namespace moestro::orchestrator {

struct MetricText::Families {
  std::vector<prometheus::MetricFamily> all;

  void begin(const std::string& name, const std::string& help, prometheus::MetricType type) {
    if (!all.empty() && all.back().metric.empty()) all.pop_back();
    prometheus::MetricFamily& family = all.emplace_back();
    family.name = name, family.help = help, family.type = type;
  }
  prometheus::ClientMetric& add(const Labels& labels) {
    prometheus::ClientMetric& metric = all.back().metric.emplace_back();
    for (const auto& [name, value] : labels) metric.label.push_back({name, value});
    return metric;
  }
};

MetricText::MetricText() : families_(std::make_unique<Families>()) {}
MetricText::~MetricText() = default;

MetricText& MetricText::counter(const std::string& name, const std::string& help) {
  families_->begin(name, help, prometheus::MetricType::Counter);
  return *this;
}

MetricText& MetricText::gauge(const std::string& name, const std::string& help) {
  families_->begin(name, help, prometheus::MetricType::Gauge);
  return *this;
}

MetricText& MetricText::histogram(const std::string& name, const std::string& help) {
  families_->begin(name, help, prometheus::MetricType::Histogram);
  return *this;
}

MetricText& MetricText::sample(double value, const Labels& labels) {
  const bool counts = families_->all.back().type == prometheus::MetricType::Counter;
  prometheus::ClientMetric& metric = families_->add(labels);
  (counts ? metric.counter.value : metric.gauge.value) = value;
  return *this;
}

MetricText& MetricText::sample(const DurationHistogram& durations, const Labels& labels) {
  auto& histogram = families_->add(labels).histogram;
  histogram.sample_count = durations.count;
  histogram.sample_sum = durations.sum;
  uint64_t so_far = 0;
  for (size_t i = 0; i < durations.counts.size(); ++i) {
    so_far += durations.counts[i];
    const bool last = i == DurationHistogram::kBounds.size();
    histogram.bucket.push_back(
        {so_far, last ? std::numeric_limits<double>::infinity() : DurationHistogram::kBounds[i]});
  }
  return *this;
}

std::string MetricText::text() const {
  auto families = families_->all;
  if (!families.empty() && families.back().metric.empty()) families.pop_back();
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace moestro::orchestrator
