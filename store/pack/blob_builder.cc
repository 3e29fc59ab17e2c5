#include "store/pack/blob_builder.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "common/dense_layout.h"
#include "common/model/strict_json.h"
#include "store/pack/convert.h"
#include "store/pack/fit_int2.h"
#include "store/pack/quantise.h"

namespace moestro::store {

using model::ExpertPart;

namespace {

Status does_not_fit(const SourceTensor& tensor, DType to) {
  return invalid_argument("tensor " + model::in_quotes(tensor.name) + " holds values that " +
                          std::string(dtype_name(to)) + " cannot (beyond its range); choose another precision");
}

/// What of `bytes`, which lie at `at` in the blob, lies in its bytes [begin, begin + out.size()).
void copy_part(std::span<const std::byte> bytes, uint64_t at, uint64_t begin, std::span<std::byte> out) {
  const uint64_t first = std::max(begin, at), last = std::min(begin + out.size(), at + bytes.size());
  if (first < last) std::memcpy(out.data() + (first - begin), bytes.data() + (first - at), last - first);
}

Status has_too_many_exponents(const SourceTensor& tensor) {
  return unsupported("tensor " + model::in_quotes(tensor.name) + " has numbers of too many magnitudes for " +
                     std::string(dtype_name(DType::kBF16In12)) +
                     ": more than 1 in 128 has an exponent beyond the 16 most frequent; choose bf16");
}

/// Bytes of `columns` values of a row: whole blocks.
int64_t source_bytes(const SourceTensor& tensor, int64_t columns) { return row_bytes(*tensor.dtype, columns); }

}  // namespace

Status BlobBuilder::build(uint32_t blob, const Sink& sink) {
  return plan_.origins[blob].expert < 0 ? build_dense(blob, sink) : build_expert(blob, sink);
}

Status BlobBuilder::build_dense(uint32_t blob, const Sink& sink) {
  uint64_t begin = 0;
  for (const Slice& slice : plan_.manifest.blobs[blob].slices) {
    piece_.assign(slice.length, std::byte{0});
    for (const uint32_t tensor : plan_.origins[blob].tensors)
      MOESTRO_RETURN_IF_ERROR(fill_from_tensor(tensor, begin, piece_));
    MOESTRO_RETURN_IF_ERROR(sink(piece_));
    begin += slice.length;
  }
  dense_.reset();
  dense_band_ = {};
  return Status::ok();
}

DenseSource& BlobBuilder::dense_source(uint32_t tensor) {
  if (!dense_ || dense_tensor_ != tensor)
    dense_.emplace(checkpoint_, checkpoint_.model().dense[tensor], scratch_bytes_max_ / kBands,
                   dense_band_);
  dense_tensor_ = tensor;
  return *dense_;
}

// Writes what of the tensor lies in the blob's bytes [begin, begin + out.size()).
Status BlobBuilder::fill_from_tensor(uint32_t index, uint64_t begin, std::span<std::byte> out) {
  const PackedTensor& packed = plan_.manifest.tensors[index];
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < packed.shape.size(); ++i) rows *= packed.shape[i];
  const auto packed_end =
      packed.offset + static_cast<uint64_t>(dense_bytes(packed.dtype, rows, packed.shape.back()));
  if (begin + out.size() <= packed.offset || begin >= packed_end) return Status::ok();
  DenseSource& source = dense_source(index);
  if (packed.dtype == DType::kBF16In12) return fill_in_12_bits(packed, source, begin, out);
  if (is_quantised(packed.dtype)) return fill_from_matrix(packed, source, begin, out);
  if (*source.tensor().dtype == packed.dtype) return fill_as_it_is(packed, source, begin, out);
  // Values are converted as they lie, or whole blocks: a piece may begin and end within one.
  const SourceTensor& tensor = source.tensor();
  const int64_t columns = std::max(block_shape(*tensor.dtype).columns, block_shape(packed.dtype).columns);
  const auto from = static_cast<uint64_t>(source_bytes(tensor, columns)),
             to = static_cast<uint64_t>(row_bytes(packed.dtype, columns));
  const uint64_t first = begin > packed.offset ? (begin - packed.offset) / to : 0,
                 last = (std::min(begin + out.size(), packed_end) - packed.offset + to - 1) / to;
  source_.resize((last - first) * from);
  converted_.resize((last - first) * to);
  MOESTRO_RETURN_IF_ERROR(source.read(first * from, source_));
  if (!convert_values(*tensor.dtype, source_.data(), packed.dtype, converted_.data(),
                      static_cast<int64_t>(last - first) * columns))
    return does_not_fit(tensor, packed.dtype);
  copy_part(converted_, packed.offset + first * to, begin, out);
  return Status::ok();
}

// The same without conversion: whole blocks are read to where they go. A block that an end of the piece cuts is read
// aside.
Status BlobBuilder::fill_as_it_is(const PackedTensor& packed, DenseSource& source, uint64_t begin,
                                  std::span<std::byte> out) {
  const auto block = static_cast<uint64_t>(block_shape(packed.dtype).bytes);
  const uint64_t first = std::max(begin, packed.offset) - packed.offset,
                 last = std::min(begin + out.size() - packed.offset, source.bytes());
  const auto read_aside = [&](uint64_t at) -> Status {
    source_.resize(block);
    MOESTRO_RETURN_IF_ERROR(source.read(at, source_));
    copy_part(source_, packed.offset + at, begin, out);
    return Status::ok();
  };
  const uint64_t whole_first = (first + block - 1) / block * block, whole_last = last / block * block;
  if (whole_first != first) MOESTRO_RETURN_IF_ERROR(read_aside(whole_first - block));
  if (whole_first < whole_last)
    MOESTRO_RETURN_IF_ERROR(source.read(
        whole_first, out.subspan(packed.offset + whole_first - begin, whole_last - whole_first)));
  return whole_last != last ? read_aside(whole_last) : Status::ok();
}

// The same for a quantised matrix. A piece may begin and end within a row: its rows are quantised whole, and what of
// them lies in the piece is kept.
Status BlobBuilder::fill_from_matrix(const PackedTensor& packed, DenseSource& source, uint64_t begin,
                                     std::span<std::byte> out) {
  const SourceTensor& tensor = source.tensor();
  const int64_t rows = packed.shape[0], cols = packed.shape[1], source_row = source_bytes(tensor, cols);
  const int64_t value_row = row_bytes(packed.dtype, cols), parameter_row = parameter_bytes(packed.dtype, cols);
  std::vector<std::byte> source_bytes_of_row(static_cast<size_t>(source_row)), values(static_cast<size_t>(value_row));
  std::vector<uint16_t> parameters(static_cast<size_t>(parameter_row) / sizeof(uint16_t));
  const auto piece_begin = static_cast<int64_t>(begin), piece_end = piece_begin + static_cast<int64_t>(out.size());
  const auto fill = [&](int64_t part, int64_t row_length, const std::byte* row_data) -> Status {
    const int64_t first = std::max<int64_t>(0, (piece_begin - part) / row_length),
                  last = std::min(rows, ceil_div(piece_end - part, row_length));
    for (int64_t r = first; r < last; ++r) {
      MOESTRO_RETURN_IF_ERROR(source.read(static_cast<uint64_t>(r * source_row), source_bytes_of_row));
      MOESTRO_RETURN_IF_ERROR(convert_row(tensor, *tensor.dtype, source_bytes_of_row.data(), packed.dtype, cols,
                                          values.data(), reinterpret_cast<std::byte*>(parameters.data())));
      copy_part({row_data, static_cast<size_t>(row_length)}, static_cast<uint64_t>(part + r * row_length), begin, out);
    }
    return Status::ok();
  };
  const auto offset = static_cast<int64_t>(packed.offset);
  MOESTRO_RETURN_IF_ERROR(fill(offset, value_row, values.data()));
  return fill(offset + dense_parameters_offset(packed.dtype, rows, cols), parameter_row,
              reinterpret_cast<const std::byte*>(parameters.data()));
}

// The same in 12 bits. Which exponents have codes all numbers decide, so the matrix is read twice before its first
// piece.
Status BlobBuilder::fill_in_12_bits(const PackedTensor& packed, DenseSource& source, uint64_t begin,
                                    std::span<std::byte> out) {
  const int64_t rows = packed.shape[0], cols = packed.shape[1], row_length = row_bytes(packed.dtype, cols);
  const uint64_t parameters = packed.offset + static_cast<uint64_t>(dense_parameters_offset(packed.dtype, rows, cols));
  const uint64_t parameters_end = parameters + static_cast<uint64_t>(bf16_in_12::exponents_bytes(rows, cols)),
                 end = begin + out.size();
  if (end <= packed.offset || begin >= parameters_end) return Status::ok();
  if (rows > bf16_in_12::kNumbersMax / cols)
    return unsupported("tensor " + model::in_quotes(source.tensor().name) + " has more than " +
                       std::to_string(bf16_in_12::kNumbersMax) +
                       " numbers, the most of a matrix in 12 bits; choose bf16");
  if (encoded_ != &packed) {
    encoded_ = nullptr;
    encoder_.emplace(rows, cols);
    for (int64_t r = 0; r < rows; ++r) {
      MOESTRO_RETURN_IF_ERROR(read_row_as_bf16(source, r, cols));
      encoder_->count(wide_.data(), cols);
    }
    for (int64_t r = 0; r < rows; ++r) {
      MOESTRO_RETURN_IF_ERROR(read_row_as_bf16(source, r, cols));
      encoder_->list(wide_.data(), cols);
    }
    if (!encoder_->fits()) return has_too_many_exponents(source.tensor());
    encoded_ = &packed;
  }
  std::vector<std::byte> bytes(static_cast<size_t>(row_length));
  const auto row_of = [&](uint64_t at) {
    return at <= packed.offset ? 0 : static_cast<int64_t>(at - packed.offset) / row_length;
  };
  for (int64_t r = row_of(begin), last = std::min(rows, row_of(end - 1) + 1); r < last; ++r) {
    MOESTRO_RETURN_IF_ERROR(read_row_as_bf16(source, r, cols));
    encoder_->write_row(wide_.data(), bytes.data());
    copy_part(bytes, packed.offset + static_cast<uint64_t>(r * row_length), begin, out);
  }
  if (end <= parameters) return Status::ok();
  bytes.resize(parameters_end - parameters);
  encoder_->write_exponents(bytes.data());
  copy_part(bytes, parameters, begin, out);
  return Status::ok();
}

Status BlobBuilder::read_row_as_bf16(DenseSource& source, int64_t row, int64_t cols) {
  const SourceTensor& tensor = source.tensor();
  const int64_t bytes = source_bytes(tensor, cols);
  source_.resize(static_cast<size_t>(bytes));
  wide_.resize(static_cast<size_t>(cols));
  MOESTRO_RETURN_IF_ERROR(source.read(static_cast<uint64_t>(row * bytes), source_));
  return convert_row(tensor, *tensor.dtype, source_.data(), DType::kBF16, cols,
                     reinterpret_cast<std::byte*>(wide_.data()), nullptr);
}

Status BlobBuilder::build_expert(uint32_t blob, const Sink& sink) {
  const model::ExpertTensors& expert = checkpoint_.model().experts[static_cast<size_t>(plan_.origins[blob].expert)];
  const ExpertLayout& layout = plan_.layout(plan_.manifest.blobs[blob]);
  const auto band = [&](ExpertPart part, DType to) {
    return Band{ExpertMatrix::of(checkpoint_, expert, part), to, part == ExpertPart::kDown};
  };
  std::optional<Band> gate;
  if (layout.is_gated()) gate.emplace(band(ExpertPart::kGate, layout.formats().gate));
  Band up = band(ExpertPart::kUp, layout.formats().up), down = band(ExpertPart::kDown, layout.formats().down);
  for (int64_t i = 0; i < layout.tiles(); ++i) {
    const ExpertTile tile = layout.tile(i);
    piece_.assign(static_cast<size_t>(tile.bytes), std::byte{0});
    if (gate) MOESTRO_RETURN_IF_ERROR(fill_rows(*gate, layout, tile, tile.gate, tile.gate_scales));
    MOESTRO_RETURN_IF_ERROR(fill_rows(up, layout, tile, tile.up, tile.up_scales));
    MOESTRO_RETURN_IF_ERROR(fill_columns(down, layout, tile));
    MOESTRO_RETURN_IF_ERROR(sink(piece_));
  }
  if (!layout.has_bias()) return Status::ok();
  MOESTRO_RETURN_IF_ERROR(fill_biases(expert, layout));
  return sink(piece_);
}

// Of as many tiles at once as the scratch memory takes, if `many`.
Status BlobBuilder::load_band(Band& band, const ExpertLayout& layout, const ExpertTile& tile, bool many) {
  if (tile.first_ffn >= band.first && tile.first_ffn + tile.ffn <= band.first + band.count) return Status::ok();
  const SourceTensor& tensor = band.matrix.tensor();
  const DType from = *tensor.dtype;
  const bool widened = band.is_down && is_blocks(from) && from != band.to;
  const int64_t block = band.is_down ? block_shape(from).columns : 1, step = round_up(layout.tile_ffn(), block);
  band.dtype = widened ? DType::kF32 : from;
  const auto bytes_of = [&](DType dtype, int64_t ffn) {
    return band.is_down ? layout.hidden() * row_bytes(dtype, ffn) : ffn * row_bytes(dtype, layout.hidden());
  };
  const int64_t fitting = static_cast<int64_t>(scratch_bytes_max_) / kBands / bytes_of(band.dtype, step) * step;
  band.first = tile.first_ffn / block * block;
  const int64_t least = tile.first_ffn + tile.ffn - band.first;
  band.count = std::min(layout.ffn() - band.first, round_up(many ? std::max(fitting, least) : least, block));
  band.bytes.resize(static_cast<size_t>(bytes_of(band.dtype, band.count)));
  const ExpertMatrix::Range ffn{band.first, band.count}, hidden{0, layout.hidden()};
  if (!band.is_down) return band.matrix.read(ffn, hidden, band.bytes);
  if (!widened) return band.matrix.read(hidden, ffn, band.bytes);
  source_.resize(static_cast<size_t>(bytes_of(from, band.count)));
  MOESTRO_RETURN_IF_ERROR(band.matrix.read(hidden, ffn, source_));
  for (int64_t h = 0; h < layout.hidden(); ++h)
    MOESTRO_RETURN_IF_ERROR(convert_row(tensor, from, source_.data() + h * row_bytes(from, band.count), band.dtype,
                                        band.count, band.bytes.data() + h * row_bytes(band.dtype, band.count),
                                        nullptr));
  return Status::ok();
}

// Rows [first_ffn, first_ffn + ffn) of gate or up.
Status BlobBuilder::fill_rows(Band& band, const ExpertLayout& layout, const ExpertTile& tile, int64_t values,
                              int64_t scales) {
  MOESTRO_RETURN_IF_ERROR(load_band(band, layout, tile, band.matrix.has_short_runs()));
  const int64_t bytes = row_bytes(band.dtype, layout.hidden());
  const auto row = [&](int64_t r) { return band.bytes.data() + (tile.first_ffn - band.first + r) * bytes; };
  return fill_part(band.matrix.tensor(), band.dtype, band.to, tile.ffn, layout.hidden(), row,
                   piece_.data() + values, piece_.data() + scales);
}

// A tile needs a few columns of every row of down.
Status BlobBuilder::fill_columns(Band& band, const ExpertLayout& layout, const ExpertTile& tile) {
  MOESTRO_RETURN_IF_ERROR(load_band(band, layout, tile, !band.matrix.has_short_runs()));
  const auto row = [&](int64_t h) {
    return band.bytes.data() + h * row_bytes(band.dtype, band.count) +
           row_bytes(band.dtype, tile.first_ffn - band.first);
  };
  return fill_part(band.matrix.tensor(), band.dtype, band.to, layout.hidden(), tile.ffn, row,
                   piece_.data() + tile.down, piece_.data() + tile.down_scales);
}

Status BlobBuilder::fill_biases(const model::ExpertTensors& expert, const ExpertLayout& layout) {
  const ExpertBiases at = layout.biases();
  const int64_t begin = layout.bytes() - layout.bias_bytes();
  piece_.assign(static_cast<size_t>(layout.bias_bytes()), std::byte{0});
  const auto fill = [&](ExpertPart part, int64_t offset, int64_t count) -> Status {
    ExpertMatrix bias = ExpertMatrix::bias_of(checkpoint_, expert, part);
    const SourceTensor& tensor = bias.tensor();
    source_.resize(static_cast<size_t>(source_bytes(tensor, count)));
    MOESTRO_RETURN_IF_ERROR(bias.read({0, count}, {0, 1}, source_));
    return convert_row(tensor, *tensor.dtype, source_.data(), DType::kF32, count, piece_.data() + (offset - begin),
                       nullptr);
  };
  if (layout.is_gated()) MOESTRO_RETURN_IF_ERROR(fill(ExpertPart::kGate, at.gate, layout.ffn()));
  MOESTRO_RETURN_IF_ERROR(fill(ExpertPart::kUp, at.up, layout.ffn()));
  return fill(ExpertPart::kDown, at.down, layout.hidden());
}

template <class SourceRow>
Status BlobBuilder::fill_part(const SourceTensor& tensor, DType from, DType to, int64_t rows, int64_t cols,
                              const SourceRow& source_row, std::byte* values, std::byte* parameters) {
  if (to == DType::kBF16In12) {
    wide_.resize(static_cast<size_t>(rows * cols));
    for (int64_t r = 0; r < rows; ++r)
      MOESTRO_RETURN_IF_ERROR(convert_row(tensor, from, source_row(r), DType::kBF16, cols,
                                          reinterpret_cast<std::byte*>(wide_.data() + r * cols), nullptr));
    return bf16_in_12::encode(wide_.data(), rows, cols, values, parameters) ? Status::ok()
                                                                            : has_too_many_exponents(tensor);
  }
  for (int64_t r = 0; r < rows; ++r)
    MOESTRO_RETURN_IF_ERROR(convert_row(tensor, from, source_row(r), to, cols, values + r * row_bytes(to, cols),
                                        parameters + r * parameter_bytes(to, cols)));
  return Status::ok();
}

Status BlobBuilder::convert_row(const SourceTensor& tensor, DType from, const std::byte* source, DType to, int64_t n,
                                std::byte* values, std::byte* scales) {
  bool fits = false;
  if (is_quantised(to)) {
    work_.resize(static_cast<size_t>(n));
    fits = convert_values(from, source, DType::kF32, reinterpret_cast<std::byte*>(work_.data()), n) &&
           quantise_row(work_.data(), n, to, values, reinterpret_cast<uint16_t*>(scales));
  } else if (to == DType::kInt2) {
    work_.resize(static_cast<size_t>(n));
    fits = convert_values(from, source, DType::kF32, reinterpret_cast<std::byte*>(work_.data()), n) &&
           make_int2(work_.data(), n, values);
  } else {
    fits = convert_values(from, source, to, values, n);
  }
  return fits ? Status::ok() : does_not_fit(tensor, to);
}

}  // namespace moestro::store
