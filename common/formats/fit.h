#pragma once
// The scales with which groups of numbers, rounded to some levels, have the least squared error.
//
// From several first scales, numbers are rounded and the scale is solved for by least squares, in turn; the best of all
// that came up is kept. Errors are those with scales as they are stored.

#include "common/formats/lanes.h"

namespace moestro::formats {

struct ScaleFit {
  float scale[kLanes] = {};
};

/// `stored` rounds a scale to what a block can say.
ScaleFit fit_scales(const Lanes& lanes, const Levels& levels, float (*stored)(float));

struct AffineFit {
  float scale[kLanes] = {}, minimum[kLanes] = {};  ///< neither is below 0
};
/// x = scale * q - minimum, q from 0 to `most`, in f32.
using RoundAffine = void (*)(const Lanes&, const float* scale, const float* minimum, LaneSums&);
AffineFit fit_affine(const Lanes& lanes, RoundAffine round, float most);

}  // namespace moestro::formats
