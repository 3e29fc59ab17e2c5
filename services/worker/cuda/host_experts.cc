#include "services/worker/cuda/host_experts.h"

#include <algorithm>
#include <bit>

#include "services/worker/cuda/float_bytes.h"

namespace moestro::cuda {
namespace {

constexpr double kNewShare = 0.2;

size_t class_of(int32_t rows, size_t classes) {
  return std::min<size_t>(static_cast<size_t>(std::bit_width(static_cast<uint32_t>(rows))) - 1, classes - 1);
}

}  // namespace

void HostCost::add(int32_t rows, Nanos took) {
  double& ns = ns_[class_of(rows, kClasses)];
  const auto now = static_cast<double>(took.count());
  ns = ns == 0 ? now : ns + kNewShare * (now - ns);
}

Nanos HostCost::of(int32_t rows) const { return Nanos(static_cast<int64_t>(ns_[class_of(rows, kClasses)])); }

HostExperts::HostExperts(kernels::cuda::CudaOps& device, kernels::cuda::CudaMemory& memory, kernels::Ops& cpu,
                         std::span<const ExpertLayout> layouts, kernels::GatedUnit gated, device::SlotTable& slots,
                         engine::ExpertDispatch& experts, int64_t top_k, bool on_input, const Clock& clock)
    : device_(device),
      memory_(memory),
      cpu_(cpu),
      layouts_(layouts),
      hidden_(layouts.front().hidden()),
      gated_(gated),
      slots_(slots),
      experts_(experts),
      top_k_(top_k),
      on_input_(on_input),
      inputs_of_row_(on_input ? top_k : 1),
      clock_(clock),
      h_(device, kRowsMax * inputs_of_row_ * hidden_) {
  slots_.lend();
  rows_.resize(static_cast<size_t>(kRowsMax * top_k * hidden_));
  auto& queue = device_.queue();
  queue.note("make_stream", queue.functions.make_stream(1, &out_));
  for (MoestroCudaEvent* event : {&computed_, &arrived_})
    queue.note("make_event", queue.functions.make_event(0, event));
}

HostExperts::~HostExperts() {
  const MoestroCudaFunctions& f = device_.queue().functions;
  if (out_ != nullptr) (void)f.wait_stream(out_), (void)f.end_stream(out_);
  for (MoestroCudaEvent event : {computed_, arrived_})
    if (event != nullptr) (void)f.end_event(event);
}

std::span<const lanes::RoutedExpert> HostExperts::choose(engine::LayerPart at,
                                                         std::span<const lanes::RoutedExpert> missing, const float* h,
                                                         int64_t rows) {
  at_ = at;
  chosen_.clear(), leases_.clear(), missing_.clear();
  if (rows <= kRowsMax) lease(missing, h, rows);
  slots_.decided();
  return chosen_;
}

void HostExperts::lease(std::span<const lanes::RoutedExpert> missing, const float* h, int64_t rows) {
  for (const lanes::RoutedExpert& r : missing)
    missing_.push_back({experts_.blob(at_.layer, r.expert), cost_.of(r.rows)});
  slots_.choose_for_cpu(missing_);
  for (size_t i = 0; i < missing.size(); ++i)
    if (missing_[i].on_cpu) chosen_.push_back(missing[i]);
  std::erase_if(chosen_, [this](const lanes::RoutedExpert& r) {
    auto lease = slots_.lease_host(experts_.blob(at_.layer, r.expert));
    if (lease) leases_.push_back(std::move(*lease));
    return !lease;
  });
  if (!chosen_.empty() && !copy_input(h, rows)) chosen_.clear(), leases_.clear();
  for (const lanes::RoutedExpert& r : chosen_) experts_.withdraw(at_.layer, r.expert);
}

bool HostExperts::copy_input(const float* h, int64_t rows) {
  auto& queue = device_.queue();
  const MoestroCudaFunctions& f = queue.functions;
  const auto bytes = static_cast<uint64_t>(rows * inputs_of_row_ * hidden_ * kFloatBytes);
  return queue.error == 0 && queue.note("record_event", f.record_event(computed_, queue.stream)) &&
         queue.note("stream_waits", f.stream_waits(out_, computed_)) &&
         queue.note("copy_out", f.copy_out(h_.data(), h, bytes, out_)) &&
         queue.note("record_event", f.record_event(arrived_, out_));
}

size_t HostExperts::compute(float* expert_rows) {
  auto& queue = device_.queue();
  size_t rows = 0;
  spoiled_.clear();
  if (queue.note("wait_event", queue.functions.wait_event(arrived_)))
    for (size_t i = 0; i < chosen_.size(); ++i) rows += compute_one(chosen_[i].expert, leases_[i], expert_rows);
  leases_.clear();
  return rows;
}

size_t HostExperts::compute_one(int32_t expert, const store::Lease& lease, float* expert_rows) {
  const auto rows = experts_.rows(at_, expert);
  const Nanos from = clock_.now();
  if (on_input_) engine::rows_of_choices(rows, top_k_, input_rows_);
  cpu_.expert_ffn(layouts_[at_.layer.value], lease.data(), h_.data(), on_input_ ? input_rows_ : rows,
                  on_input_ ? 1 : top_k_, rows_.data(), gated_);
  cost_.add(static_cast<int32_t>(rows.size()), clock_.now() - from);
  if (Status used = experts_.check(at_.layer, expert, lease); !used.is_ok())
    spoiled_.push_back({expert, std::move(used)});
  for (const kernels::RoutedRow& r : rows) {
    const int64_t at = (r.token * top_k_ + r.rank) * hidden_;
    memory_.copy_in(expert_rows + at, rows_.data() + at, hidden_ * kFloatBytes);
  }
  return rows.size();
}

}  // namespace moestro::cuda
